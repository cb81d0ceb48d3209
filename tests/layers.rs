//! The rules of the house, read from the source itself:
//!
//! - a room imports only from the rooms below it, in the order in which `lib.rs`
//!   declares them (the tests inside a room keep the rule too);
//! - `ondisk` is plain data: it names neither I/O nor locks;
//! - `unsafe` occurs only in the rooms that talk to the operating system;
//! - a file holds one idea, and so stays short.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms where `unsafe` may occur.
const UNSAFE_ROOMS: &[&str] = &["device", "fuse", "cli"];
/// What a file may be long, tests included.
const MAX_LINES: usize = 750;
/// What the pure room may not name outside its tests.
const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "io"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "sync"],
    &["std", "thread"],
    &["parking_lot"],
    &["crossbeam"],
    &["libc"],
    &["fuser"],
    &["io_uring"],
];

/// One file of the source, as the checker sees it.
struct Source<'a> {
    /// Below `src/`, such as `alloc/buddy.rs`.
    path: &'a Path,
    text: &'a str,
}

/// A path that the code names, groups expanded: `use crate::{a::B, c}` is two.
#[derive(Debug, PartialEq)]
struct Named {
    path: Vec<String>,
    line: usize,
    in_test: bool,
}

#[derive(Default)]
struct Found {
    named: Vec<Named>,
    unsafe_lines: Vec<usize>,
}

impl Source<'_> {
    /// The module path of the file: `["alloc", "buddy"]`; empty for the crate's root.
    fn module(&self) -> Vec<String> {
        let mut parts: Vec<String> =
            self.path.iter().map(|c| c.to_string_lossy().replace(".rs", "")).collect();
        if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            parts.pop();
        }
        parts
    }

    fn room(&self) -> Option<String> {
        self.module().into_iter().next()
    }

    fn scan(&self) -> Found {
        let tokens: TokenStream = match self.text.parse() {
            Ok(tokens) => tokens,
            Err(e) => panic!("src/{}: cannot be read as Rust: {e}", self.path.display()),
        };
        let is_test_file = self.path.components().any(|c| {
            let name = c.as_os_str().to_string_lossy();
            name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs")
        });
        let mut found = Found::default();
        walk(tokens, &self.module(), is_test_file, &mut found);
        found
    }
}

fn punct(t: Option<&TokenTree>, c: char) -> bool {
    matches!(t, Some(TokenTree::Punct(p)) if p.as_char() == c)
}

fn colons(t: &[TokenTree], at: usize) -> bool {
    punct(t.get(at), ':') && punct(t.get(at + 1), ':')
}

/// Collects what the tokens of module `module` name.
fn walk(tokens: TokenStream, module: &[String], in_test: bool, found: &mut Found) {
    let t: Vec<TokenTree> = tokens.into_iter().collect();
    let mut test_attribute = false;
    let mut i = 0;
    while i < t.len() {
        match &t[i] {
            TokenTree::Punct(p) if p.as_char() == '#' => {
                if let Some(TokenTree::Group(g)) = t.get(i + 1)
                    && g.delimiter() == Delimiter::Bracket
                {
                    let attribute = g.stream().to_string().replace(' ', "");
                    test_attribute |= attribute.starts_with("cfg(") && attribute.contains("test");
                    i += 2;
                    continue;
                }
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (t.get(i + 1), t.get(i + 2))
                {
                    let mut inner = module.to_vec();
                    inner.push(name.to_string());
                    walk(body.stream(), &inner, in_test || test_attribute, found);
                    test_attribute = false;
                    i += 3;
                    continue;
                }
            }
            TokenTree::Ident(word) if word == "unsafe" => {
                found.unsafe_lines.push(word.span().start().line);
            }
            TokenTree::Ident(word) if !(i >= 2 && colons(&t, i - 2)) => {
                if colons(&t, i + 1) {
                    let mut paths = Vec::new();
                    let end = expand(&t, i, &[], &mut paths);
                    let line = word.span().start().line;
                    for path in paths {
                        let path = resolve(path, module);
                        found.named.push(Named { path, line, in_test: in_test || test_attribute });
                    }
                    i = end;
                    continue;
                }
                if i > 0 && matches!(&t[i - 1], TokenTree::Ident(u) if u == "use") {
                    found.named.push(Named {
                        path: vec![word.to_string()],
                        line: word.span().start().line,
                        in_test,
                    });
                }
            }
            TokenTree::Group(g) => {
                walk(g.stream(), module, in_test || test_attribute, found);
                if g.delimiter() == Delimiter::Brace {
                    test_attribute = false;
                }
            }
            TokenTree::Punct(p) if p.as_char() == ';' => test_attribute = false,
            _ => {}
        }
        i += 1;
    }
}

/// Expands the path that begins at `at` into `out`, and answers where it ends.
fn expand(t: &[TokenTree], at: usize, prefix: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    let mut i = at;
    loop {
        match t.get(i) {
            Some(TokenTree::Ident(word)) => path.push(word.to_string()),
            Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace && i > at => {
                let inner: Vec<TokenTree> = g.stream().into_iter().collect();
                for branch in inner.split(|x| punct(Some(x), ',')) {
                    if !branch.is_empty() {
                        expand(branch, 0, &path, out);
                    }
                }
                return i + 1;
            }
            _ => {
                out.push(path);
                return i;
            }
        }
        i += 1;
        if !colons(t, i) {
            out.push(path);
            return i;
        }
        i += 2;
    }
}

/// Makes `self::` and `super::` paths absolute, so that `crate` heads each path of ours.
fn resolve(path: Vec<String>, module: &[String]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path.iter();
    match path.first().map(String::as_str) {
        Some("self") => {
            rest.next();
        }
        Some("super") => {}
        _ => return path,
    }
    let mut rest = rest.peekable();
    while rest.next_if(|s| *s == "super").is_some() {
        base.pop();
    }
    let mut whole = vec!["crate".to_string()];
    whole.extend(base);
    whole.extend(rest.cloned());
    whole
}

/// The rooms, from the ground up, as `lib.rs` declares them.
fn rooms(lib: &str) -> Vec<String> {
    lib.lines()
        .filter_map(|l| l.trim().strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_string)
        .collect()
}

/// What is wrong with one file, a line each.
fn violations(rooms: &[String], source: &Source) -> Vec<String> {
    let shown = format!("src/{}", source.path.display());
    let mut wrong = Vec::new();
    let lines = source.text.lines().count();
    if lines > MAX_LINES {
        wrong.push(format!("{shown}: {lines} lines, more than {MAX_LINES}: is it two ideas?"));
    }
    let Some(room) = source.room() else { return wrong };
    let Some(level) = rooms.iter().position(|r| *r == room) else {
        wrong.push(format!("{shown}: lib.rs declares no room `{room}`"));
        return wrong;
    };
    let found = source.scan();
    for named in &found.named {
        let path = named.path.join("::");
        let at = format!("{shown}:{}", named.line);
        if named.path[0] == "crate" {
            let Some(target) = named.path.get(1) else { continue };
            match rooms.iter().position(|r| r == target) {
                None => wrong.push(format!("{at}: `{path}` names no room")),
                Some(l) if l > level => {
                    wrong.push(format!("{at}: `{room}` imports `{path}`, which lies above it"));
                }
                Some(_) => {}
            }
        } else if room == "ondisk" && !named.in_test && !is_errno(&named.path) {
            let impure = IMPURE.iter().any(|p| {
                named.path.len() >= p.len() && p.iter().zip(&named.path).all(|(a, b)| a == b)
            });
            if impure {
                wrong.push(format!("{at}: `ondisk` is plain data and may not name `{path}`"));
            }
        }
    }
    if !UNSAFE_ROOMS.contains(&room.as_str()) {
        for line in found.unsafe_lines {
            wrong.push(format!("{shown}:{line}: `unsafe` in `{room}`"));
        }
    }
    wrong
}

/// `libc::ENOSPC` and its like are numbers, and the superblock records them.
fn is_errno(path: &[String]) -> bool {
    let number = |n: &String| n.starts_with('E') && n.chars().all(|c| c.is_ascii_uppercase());
    path.len() == 2 && path[0] == "libc" && number(&path[1])
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn the_source_keeps_the_rules() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms = rooms(&fs::read_to_string(src.join("lib.rs")).unwrap());
    assert!(rooms.len() > 10, "lib.rs declares the rooms, found only {rooms:?}");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    files.sort();
    assert!(files.len() >= rooms.len());
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let path = file.strip_prefix(&src).unwrap();
        wrong.extend(violations(&rooms, &Source { path, text: &text }));
    }
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
}

mod checker {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        let rooms = ["types", "error", "ondisk", "device", "cache", "fs", "fuse"];
        let rooms: Vec<String> = rooms.iter().map(|r| r.to_string()).collect();
        violations(&rooms, &Source { path: Path::new(path), text })
    }

    #[track_caller]
    fn one(path: &str, text: &str, word: &str) {
        let wrong = check(path, text);
        assert_eq!(wrong.len(), 1, "{path}: {text}: {wrong:?}");
        assert!(wrong[0].contains(word), "{wrong:?} does not say {word}");
    }

    #[track_caller]
    fn clean(path: &str, text: &str) {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }

    #[test]
    fn downward_imports_pass() {
        clean("cache/mod.rs", "use crate::device::Disk; use crate::{types::Block, error};");
        clean("cache/page.rs", "use super::Buffer; use super::super::types::Ino; use self::x::Y;");
        clean("cache/mod.rs", "#[cfg(test)] mod tests { use super::*; use crate::device; }");
    }

    #[test]
    fn upward_imports_are_seen() {
        one("cache/mod.rs", "use crate::fs::Fs;", "imports `crate::fs::Fs`");
        one("cache/mod.rs", "use crate::{device, fs::{Fs}};", "crate::fs::Fs");
        one("cache/mod.rs", "pub(crate) use crate::fs as below;", "crate::fs");
        one("cache/page.rs", "use super::super::fs::Fs;", "crate::fs::Fs");
        one("types.rs", "use super::error::Error;", "crate::error::Error");
        one("cache/mod.rs", "fn f() { let x = crate::fs::open(); }", "crate::fs::open");
        one("cache/mod.rs", "fn f(x: &dyn crate::fuse::Reply) {}", "crate::fuse::Reply");
        one("cache/mod.rs", "fn f() { println!(\"{}\", crate::fs::X) }", "crate::fs::X");
        one("cache/mod.rs", "macro_rules! m { () => { $crate::fs::X } }", "crate::fs::X");
    }

    #[test]
    fn upward_imports_of_tests_are_seen() {
        one("cache/mod.rs", "#[cfg(test)] mod tests { use crate::fs::Fs; }", "crate::fs::Fs");
        one("cache/mod.rs", "mod tests { use super::super::fs::Fs; }", "crate::fs::Fs");
    }

    #[test]
    fn words_in_comments_and_strings_are_no_imports() {
        clean("cache/mod.rs", "//! See crate::fs::Fs.\n// use crate::fs; unsafe\nfn f() {}");
        clean("cache/mod.rs", "const S: &str = \"use crate::fs; unsafe\";");
    }

    #[test]
    fn unknown_rooms_are_seen() {
        one("cache/mod.rs", "use crate::attic::Box;", "names no room");
        one("attic/mod.rs", "", "no room `attic`");
    }

    #[test]
    fn line_numbers_are_right() {
        one("cache/mod.rs", "\n\nuse crate::fs::Fs;", "src/cache/mod.rs:3:");
    }

    #[test]
    fn ondisk_is_plain_data() {
        one("ondisk/inode.rs", "use std::fs::File;", "std::fs::File");
        one("ondisk/inode.rs", "use std::{fmt, io};", "std::io");
        one("ondisk/inode.rs", "fn f(m: &std::sync::Mutex<u8>) {}", "std::sync::Mutex");
        one("ondisk/inode.rs", "use libc;", "libc");
        clean("ondisk/inode.rs", "use std::fmt; use std::num::NonZero;");
        clean("ondisk/inode.rs", "#[cfg(test)] mod tests { use std::fs::File; }");
        clean("ondisk/tests.rs", "use std::fs::File;");
        clean("ondisk/inode.rs", "const FULL: i32 = libc::ENOSPC;");
        one("ondisk/inode.rs", "fn f() { libc::open(); }", "libc::open");
        one("ondisk/inode.rs", "#[cfg(test)] mod tests {} use std::fs::File;", "std::fs::File");
        clean("device/file.rs", "use std::fs::File;");
    }

    #[test]
    fn unsafe_is_for_the_rooms_that_talk_to_the_system() {
        one("cache/mod.rs", "fn f() {\n unsafe { g() } }", "src/cache/mod.rs:2: `unsafe`");
        one("cache/mod.rs", "unsafe impl Send for X {}", "`unsafe`");
        clean("device/uring.rs", "fn f() { unsafe { g() } }");
    }

    #[test]
    fn long_files_are_seen() {
        one("cache/mod.rs", &"// x\n".repeat(MAX_LINES + 1), "751 lines");
        clean("cache/mod.rs", &"// x\n".repeat(MAX_LINES));
    }
}
