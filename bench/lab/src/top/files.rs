//! The largest files of a mount, and in how many pieces they are.

use super::sample::Source;
use crate::work::{extents, pieces_of};
use std::path::{Path, PathBuf};

/// No more names than this are looked at.
const LOOKED_AT: usize = 5000;
/// So many are shown.
const SHOWN: usize = 8;

/// Name, bytes, pieces; those in most pieces first.
pub fn largest(source: &Source, root: &Path) -> Vec<(String, u64, usize)> {
    let mut found = Vec::new();
    let mut left = LOOKED_AT;
    walk(root, &mut left, &mut found);
    found.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let mut all: Vec<(String, u64, usize)> = found
        .into_iter()
        .take(SHOWN)
        .filter_map(|(path, size)| {
            let text = source.ask(&path, &["extents"]).ok()?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            Some((name, size, pieces_of(&extents(&text))))
        })
        .collect();
    all.sort_by_key(|f| std::cmp::Reverse(f.2));
    all
}

fn walk(dir: &Path, left: &mut usize, found: &mut Vec<(PathBuf, u64)>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for e in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        match e.file_type() {
            Ok(kind) if kind.is_dir() => walk(&e.path(), left, found),
            Ok(kind) if kind.is_file() => {
                if let Ok(m) = e.metadata() {
                    found.push((e.path(), m.len()));
                }
            }
            _ => {}
        }
    }
}
