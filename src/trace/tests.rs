use super::*;
use crate::types::Ino;
use std::time::Duration;

fn filter(text: &str) -> Result<Filter, String> {
    Filter::parse(text, |p| if p == "/a" { Ok(Ino(77)) } else { Err("no such file".into()) })
}

fn lines(r: &Reader) -> Vec<String> {
    let without_time = |l: &str| l.split_once(": ").map(|(_, l)| l.to_string());
    r.drain().lines().filter_map(without_time).collect()
}

// Readers of other tests may run at the same time: each asks for inodes of its own.
#[test]
fn a_reader_gets_what_it_asked_for() {
    let r = open(filter("ext4_da_write* ino=4000000001").unwrap());
    let (mine, other) = (Ino(4_000_000_001), Ino(4_000_000_002));
    event!(DaWriteBegin, mine, pos: 4096u64, len: 10usize, policy: "extent");
    event!(DaWriteBegin, other, pos: 0u64, len: 10usize);
    event!(SyncFileEnter, mine, datasync: true);
    event!(Jbd2StartCommit, -, transaction: 5u32);
    assert_eq!(lines(&r), ["ext4_da_write_begin: ino 4000000001 pos 4096 len 10 policy extent"]);
    assert_eq!(r.next(Duration::from_millis(1)), Next::Idle);
}

#[test]
fn values_are_evaluated_only_for_a_reader() {
    let mut evaluated = 0;
    let mut value = || {
        evaluated += 1;
        7u32
    };
    event!(EvictInode, Ino(4_000_000_010), nlink: value());
    let r = open(filter("ext4_evict_inode ino=4000000010 json").unwrap());
    event!(EvictInode, Ino(4_000_000_010), nlink: value());
    let Next::Line(l) = r.next(Duration::ZERO) else { panic!("nothing") };
    assert!(l.starts_with("{\"time\":") && l.ends_with(",\"ino\":4000000010,\"nlink\":7}"), "{l}");
    drop(r);
    assert!(evaluated <= 2);
}

#[test]
fn a_slow_reader_loses_events_and_is_told() {
    let r = open(filter("ext4_unlink_enter ino=4000000020").unwrap());
    for i in 0..20_000u32 {
        event!(UnlinkEnter, Ino(4_000_000_020), size: i);
    }
    let all = r.drain();
    assert_eq!(all.lines().count(), (16 << 10) + 1);
    assert!(
        all.ends_with(&format!("# {} events lost\n", 20_000 - (16 << 10))),
        "{}",
        &all[all.len() - 80..]
    );
}

#[test]
fn wrong_filters_are_refused_by_name() {
    assert!(filter("ext4_nonsense").unwrap_err().contains("ext4_da_write_begin"));
    assert!(filter("ino=x").unwrap_err().contains("ino=x"));
    assert!(filter("path=/b").unwrap_err().contains("no such file"));
    assert_eq!(filter("path=/a").unwrap().inos, [Ino(77)]);
}
