use super::*;
use crate::alloc::Kind;
use crate::error::Error;

#[test]
fn a_full_file_system_gives_every_block_and_not_one_more() {
    let fs = Fs::new(&["-b", "1024", "-m", "10"], "16M");
    let c = fs.alloc.counters();
    let pool = c.pool();
    assert_eq!(pool, fs.geo.blocks_count / 50);
    let mut user = 0;
    let mut lblk = 0;
    loop {
        match fs.take_data(12, lblk, 100) {
            Ok(r) => {
                user += u64::from(r.len);
                lblk += r.len;
            }
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(c.avail(), c.root_reserve() + pool);
    let mut root = 0;
    while let Ok(r) = fs.take(Request { root_ok: true, ..Request::data(Ino(13), LBlock(root), 64) })
    {
        root += r.len;
    }
    assert_eq!(u64::from(root), c.root_reserve());
    let mut map = 0;
    while let Ok(r) = fs.take(Request { use_pool: true, ..Request::metadata(Ino(12), None) }) {
        map += u64::from(r.len);
    }
    assert_eq!(map, pool);
    assert_eq!((c.free(), c.avail()), (0, 0));
    assert!(user > 0);
    assert!(matches!(
        fs.take(Request { use_pool: true, ..Request::metadata(Ino(12), None) }),
        Err(Error::NoSpace)
    ));
}

#[test]
fn who_reserved_finds_blocks_though_others_filled_up() {
    let fs = Fs::new(&["-b", "1024", "-m", "0"], "16M");
    let mut r = fs.alloc.reserve(1000, 3, false).unwrap();
    let mut other = 0;
    while let Ok(x) = fs.take_data(13, other, 2000) {
        other += x.len;
    }
    assert!(fs.alloc.reserve(1, 0, false).is_err());
    let mut got = 0;
    while got < 1000 {
        let req = Request {
            reservation: Some(&mut r),
            delalloc: true,
            ..Request::data(Ino(12), LBlock(got), 1000 - got)
        };
        got += fs.take(req).unwrap().len;
    }
    for _ in 0..3 {
        let req = Request { reservation: Some(&mut r), ..Request::metadata(Ino(12), None) };
        assert_eq!(req.kind, Kind::Metadata);
        fs.take(req).unwrap();
    }
    assert!(r.is_empty());
    drop(r);
    assert_eq!(fs.alloc.counters().dirty(), 0);
}

#[test]
fn no_false_enospc_for_blocks_that_wait_or_are_held() {
    let fs = Fs::new(&["-b", "1024", "-m", "0"], "16M");
    let mut runs = Vec::new();
    let mut at = 0;
    while let Ok(r) = fs.take_data(12, at, 500) {
        at += r.len;
        runs.push(r);
    }
    let freed: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
    runs.into_iter().for_each(|r| fs.give(r));
    // Reserved at once, though no block can be handed out before the commit.
    let mut token = fs.alloc.reserve(freed, 0, false).unwrap();
    let mut at = 0;
    let mut commits = 0;
    while token.data() > 0 {
        let req =
            Request { reservation: Some(&mut token), ..Request::data(Ino(14), LBlock(at), 4000) };
        match fs.take(req) {
            Ok(r) => at += r.len,
            Err(Error::NoSpace) => {
                commits += 1;
                assert!(fs.alloc.reclaim(&fs.journal).unwrap());
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(u64::from(at), freed);
    assert!(commits <= 1, "{commits}");
}

#[test]
fn preallocations_give_way_when_space_is_short() {
    let fs = Fs::new(&["-b", "1024", "-m", "0"], "16M");
    for ino in 20..28 {
        fs.take(Request { size_hint: 900 << 10, ..Request::data(Ino(ino), LBlock(0), 1) }).unwrap();
    }
    assert!(fs.alloc.withheld_blocks().0 > 7000);
    let want = fs.alloc.counters().avail() - fs.alloc.counters().pool();
    let mut got = 0;
    while got < want {
        let left = (want - got) as u32;
        got += u64::from(fs.take_data(12, got as u32, left).unwrap().len);
    }
    assert_eq!(fs.alloc.counters().avail(), fs.alloc.counters().pool());
}
