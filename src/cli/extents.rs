//! `uext4 extents FILE...`: what `filefrag -v` would print, delayed ranges included.

use super::Failure;
use super::args::{ExtentsArgs, print};
use super::target;
use std::fmt::Write as _;

/// Prints the extents of each file.
pub fn run(args: &ExtentsArgs) -> Result<(), Failure> {
    for file in &args.files {
        let (mount, inode) = target::inode(file)?;
        let inode = inode.ok_or_else(|| {
            Failure::failed(format!("{}: a mount point, not a file in it", file.display()))
        })?;
        let mut client = target::daemon(&mount)?;
        let text = client
            .ask(&format!("inode {inode} get extents"))
            .map_err(|e| target::refused(file, e))?;
        let shown = file.display().to_string();
        let table = table(&shown, &text).ok_or_else(|| {
            Failure::failed(format!("{shown}: the daemon's answer makes no sense"))
        })?;
        print(&table)?;
    }
    Ok(())
}

/// One line of the daemon's answer.
struct Extent<'a> {
    lblk: u64,
    len: u64,
    pblk: u64,
    flags: &'a str,
}

fn extent(line: &str) -> Option<Extent<'_>> {
    let mut words = line.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (lblk, len, pblk) = (number()?, number()?, number()?);
    let flags = words.next().unwrap_or_default();
    Some(Extent { lblk, len: Some(len).filter(|l| *l > 0)?, pblk, flags })
}

/// The table, in the layout of `filefrag -v`.
fn table(name: &str, text: &str) -> Option<String> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next()?.split(' ').collect();
    let ["size", size, "block", block] = head.as_slice() else { return None };
    let (size, block): (u64, u64) = (size.parse().ok()?, block.parse().ok()?);
    let blocks = size.div_ceil(Some(block).filter(|b| *b > 0)?);
    let extents = lines.map(extent).collect::<Option<Vec<_>>>()?;
    let plural = |n: u64, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });

    let mut s = String::from("Filesystem type is: ef53\n");
    let _ =
        writeln!(s, "File size of {name} is {size} ({} of {block} bytes)", plural(blocks, "block"));
    if !extents.is_empty() {
        s.push_str(
            " ext:     logical_offset:        physical_offset: length:   expected: flags:\n",
        );
    }
    let mut found = u64::from(!extents.is_empty());
    let mut before: Option<&Extent<'_>> = None;
    for (n, e) in extents.iter().enumerate() {
        let expected = before.and_then(|b| {
            let dense = b.pblk.checked_add(b.len)?;
            let gap = e.lblk.checked_sub(b.lblk.checked_add(b.len)?)?;
            let sparse = dense.checked_add(gap)?;
            (e.pblk != dense && e.pblk != sparse).then_some(sparse)
        });
        found += u64::from(expected.is_some());
        let _ = writeln!(
            s,
            "{n:4}: {:8}..{:8}: {:10}..{:10}: {:6}: {:>10} {}",
            e.lblk,
            e.lblk.checked_add(e.len - 1)?,
            e.pblk,
            e.pblk.checked_add(e.len - 1)?,
            e.len,
            expected.map(|x| format!("{x}:")).unwrap_or_default(),
            e.flags
        );
        before = Some(e);
    }
    let _ = writeln!(s, "{name}: {} found", plural(found, "extent"));
    Some(s)
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn as_filefrag_prints_it() {
        let text = "size 40960 block 4096\n0 4 34304 \n4 2 34400 unwritten\n6 4 0 last,unknown_loc,delalloc,eof\n";
        let t = table("f", text).unwrap();
        let lines: Vec<&str> = t.lines().collect();
        assert_eq!(lines[1], "File size of f is 40960 (10 blocks of 4096 bytes)");
        assert_eq!(
            lines[3],
            "   0:        0..       3:      34304..     34307:      4:            "
        );
        assert_eq!(
            lines[4],
            "   1:        4..       5:      34400..     34401:      2:     34308: unwritten"
        );
        assert_eq!(lines[6], "f: 3 extents found");
    }

    #[test]
    fn neither_nonsense_nor_nothing_is_trouble() {
        assert_eq!(
            table("f", "size 0 block 4096\n").unwrap().lines().last(),
            Some("f: 0 extents found")
        );
        for bad in
            ["", "size x block 1", "size 1 block 0", "size 1 block 1\n0 0 0", "size 1 block 1\nx"]
        {
            assert!(table("f", bad).is_none(), "{bad}");
        }
    }
}
