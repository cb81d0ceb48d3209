//! Transactions through the log: commit, crash, recovery, checkpoint.

use super::image::{cache, first_bytes, fsck, log_map, mkfs, open_log, recover, superblock};
use crate::device::{BlockDevice, MemDevice};
use crate::error::Result;
use crate::journal::{Journal, JournalOptions};
use crate::ondisk::Seal;
use crate::ondisk::jbd2::{JBD2_MAGIC, JIncompat};
use crate::types::Block;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

fn quiet() -> JournalOptions {
    JournalOptions { commit_interval: Duration::from_secs(3600), ..JournalOptions::default() }
}

/// Keeps a snapshot from before every write.
struct Snoop {
    dev: Arc<MemDevice>,
    before: Mutex<Vec<MemDevice>>,
}

impl Snoop {
    fn new(dev: MemDevice) -> Arc<Snoop> {
        Arc::new(Snoop { dev: Arc::new(dev), before: Mutex::default() })
    }
    fn writes(&self) -> usize {
        self.before.lock().len()
    }
}

impl BlockDevice for Snoop {
    fn read_at(&self, buf: &mut [u8], off: u64) -> Result<()> {
        self.dev.read_at(buf, off)
    }
    fn write_at(&self, buf: &[u8], off: u64) -> Result<()> {
        self.before.lock().push(self.dev.snapshot());
        self.dev.write_at(buf, off)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        self.dev.size()
    }
}

fn fill(j: &Arc<Journal>, blocks: impl IntoIterator<Item = u64>, value: u32) {
    let blocks: Vec<u64> = blocks.into_iter().collect();
    let mut h = j.start("fill", blocks.len() as u32).unwrap();
    for b in blocks {
        h.create(Block(b), &Seal::None, |d| {
            d.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&value.to_be_bytes()));
        })
        .unwrap();
    }
}

fn value(dev: &dyn BlockDevice, block: u64) -> u32 {
    let bs = superblock(dev).block_size().bytes64();
    u32::from_be_bytes(first_bytes(dev, bs, Block(block)))
}

/// A free block of a 16 MiB image with 1 KiB blocks, and the blocks after it.
const FREE: u64 = 12_000;

fn small(args: &[&str]) -> MemDevice {
    let mut all = vec!["-b", "1024", "-J", "size=1"];
    all.extend(args);
    mkfs(16, &all)
}

#[test]
fn what_committed_survives_a_crash_and_what_did_not_is_gone() {
    for args in
        [&[][..], &["-O", "^metadata_csum,^64bit"], &["-O", "^metadata_csum"], &["-O", "^64bit"]]
    {
        let dev = Arc::new(small(args));
        let (j, _) = open_log(dev.clone(), quiet());
        fill(&j, FREE..FREE + 100, 1);
        j.commit_all().unwrap();
        fill(&j, FREE + 50..FREE + 60, JBD2_MAGIC);
        j.commit_all().unwrap();
        fill(&j, FREE..FREE + 100, 3);
        assert_eq!(value(&*dev, FREE), 0, "nothing is at home yet");
        j.set_emergency_stop();
        drop(j);

        let ours = Arc::new(dev.snapshot());
        let r = recover(ours.clone()).unwrap();
        assert_eq!((r.transactions, r.blocks, r.revoked), (2, 100, 0));
        let theirs = tempfile::NamedTempFile::new().unwrap();
        dev.save(theirs.path()).unwrap();
        let out =
            std::process::Command::new("e2fsck").arg("-fy").arg(theirs.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.code().unwrap() <= 1 && said.contains("recovering journal"), "{said}");
        let theirs = MemDevice::load(theirs.path()).unwrap();
        for b in FREE..FREE + 100 {
            let want = if (FREE + 50..FREE + 60).contains(&b) { JBD2_MAGIC } else { 1 };
            assert_eq!(value(&*ours, b), want, "ours, block {b}");
            assert_eq!(value(&theirs, b), want, "e2fsck's, block {b}");
        }
        assert!(recover(ours.clone()).is_none(), "the log is empty now");
        let (code, said) = fsck(&ours, &["-fy"]);
        assert!(code <= 1, "{said}");
    }
}

#[test]
fn close_leaves_a_clean_image() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    assert!(superblock(&*dev).needs_recovery());
    fill(&j, FREE..FREE + 10, 7);
    j.close().unwrap();
    assert_eq!(value(&*dev, FREE + 9), 7);
    assert!(!superblock(&*dev).needs_recovery());
    let (code, said) = fsck(&dev, &["-fn"]);
    assert_eq!(code, 0, "{said}");
    let (j, recovered) = open_log(dev.clone(), quiet());
    assert!(recovered.is_none());
    fill(&j, FREE..FREE + 1, 8);
    j.close().unwrap();
    assert_eq!(value(&*dev, FREE), 8);
}

#[test]
fn features_are_set_while_the_log_is_empty() {
    let dev = Arc::new(mkfs(64, &["-O", "64bit,metadata_csum"]));
    let (j, _) = open_log(dev.clone(), quiet());
    let sb = crate::ondisk::jbd2::JournalSuper::parse(
        &log_map(dev.clone()).read(0).unwrap(),
        j.cache().geo().block_size,
        u64::from(u32::MAX),
    )
    .unwrap();
    assert_eq!(sb.incompat(), JIncompat::REVOKE | JIncompat::BIT64 | JIncompat::CSUM_V3);
    j.close().unwrap();
    let (code, said) = fsck(&dev, &["-fn"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_revoked_block_keeps_its_new_data() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    fill(&j, FREE..FREE + 20, 1);
    j.commit_all().unwrap();
    let mut h = j.start("free", 8).unwrap();
    for b in FREE..FREE + 10 {
        h.forget(Block(b)).unwrap();
    }
    drop(h);
    j.commit_all().unwrap();
    // Reused for file data, which does not go through the journal.
    dev.write_at(&[9; 10 << 10], FREE * 1024).unwrap();
    // And one of them for metadata again, later.
    fill(&j, [FREE + 3], 5);
    j.commit_all().unwrap();
    j.set_emergency_stop();
    drop(j);
    let theirs = tempfile::NamedTempFile::new().unwrap();
    dev.save(theirs.path()).unwrap();
    let out = std::process::Command::new("e2fsck").arg("-fy").arg(theirs.path()).output().unwrap();
    assert!(out.status.code().unwrap() <= 1);
    let theirs = MemDevice::load(theirs.path()).unwrap();
    let r = recover(dev.clone()).unwrap();
    assert_eq!((r.transactions, r.blocks, r.revoked), (3, 11, 9));
    for b in FREE..FREE + 20 {
        let want = match b - FREE {
            3 => 5,
            0..10 => 0x0909_0909,
            _ => 1,
        };
        assert_eq!((value(&*dev, b), value(&theirs, b)), (want, want), "block {b}");
    }
}

#[test]
fn a_block_freed_and_used_again_at_once_is_not_revoked() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    let mut h = j.start("free and create", 8).unwrap();
    h.forget(Block(FREE)).unwrap();
    h.create(Block(FREE), &Seal::None, |d| d.fill(4)).unwrap();
    drop(h);
    j.commit_all().unwrap();
    j.set_emergency_stop();
    recover(dev.clone()).unwrap();
    assert_eq!(value(&*dev, FREE), 0x0404_0404);
}

#[test]
fn the_log_wraps_many_times() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    for i in 1..=200u32 {
        let first = FREE + u64::from(i % 7) * 10;
        fill(&j, first..first + 60, i);
        j.commit_all().unwrap();
    }
    j.set_emergency_stop();
    let (start, seq) = {
        let map = log_map(dev.clone());
        let bs = map.block_size();
        let sb = crate::ondisk::jbd2::JournalSuper::parse(&map.read(0).unwrap(), bs, u64::MAX);
        let sb = sb.unwrap();
        (sb.start(), sb.sequence())
    };
    assert!(start > 0 && seq.0 > 100, "the tail moved: {start} {seq}");
    // Whether anything is left to replay depends on how far the checkpoint got by itself.
    recover(dev.clone()).unwrap();
    for b in FREE..FREE + 120 {
        // The last transaction that wrote it.
        let want = (1..=200u32).rev().find(|i| {
            let first = FREE + u64::from(i % 7) * 10;
            (first..first + 60).contains(&b)
        });
        assert_eq!(value(&*dev, b), want.unwrap(), "block {b}");
    }
    let (code, said) = fsck(&dev, &["-fy"]);
    assert!(code <= 1, "{said}");
}

#[test]
fn a_crash_between_any_two_writes_leaves_one_of_the_committed_states() {
    let snoop = Snoop::new(small(&[]));
    let (j, _) = open_log(snoop.clone(), quiet());
    // state after transaction i: block FREE+k holds the last value written.
    let mut states: Vec<Vec<u32>> = vec![vec![0; 300]];
    let mut acked: Vec<(usize, usize)> = vec![(0, 0)];
    for i in 1..=40u32 {
        let mut s = states.last().unwrap().clone();
        let first = u64::from(i * 37 % 120);
        let n = u64::from(i * 13 % 150) + 1;
        fill(&j, (FREE + first..FREE + first + n).chain([FREE + 299]), i);
        s[first as usize..(first + n) as usize].fill(i);
        s[299] = i;
        states.push(s);
        j.commit_all().unwrap();
        acked.push((snoop.writes(), i as usize));
        if i % 11 == 0 {
            j.checkpoint_all().unwrap();
        }
    }
    j.close().unwrap();
    let snapshots = snoop.before.lock();
    for (n, snap) in snapshots.iter().enumerate() {
        let at_least = acked.iter().rev().find(|a| a.0 <= n).unwrap().1;
        let dev = Arc::new(snap.snapshot());
        recover(dev.clone());
        let which = value(&*dev, FREE + 299) as usize;
        assert!(which >= at_least, "write {n}: state {which}, {at_least} was durable");
        for (k, want) in states[which].iter().enumerate() {
            let got = value(&*dev, FREE + k as u64);
            assert_eq!(got, *want, "write {n}, state {which}, block {k}");
        }
    }
    assert!(snapshots.len() > 100, "{}", snapshots.len());
}

#[test]
fn many_threads_on_a_small_log() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    let threads: Vec<_> = (0..8u64)
        .map(|t| {
            let j = Arc::clone(&j);
            std::thread::spawn(move || {
                for i in 0..60u32 {
                    let (h, rsv) = j.start_with_reserve("load", 100, 20).unwrap();
                    let tid = h.tid();
                    drop(h);
                    let mut h = j.start_reserved(rsv, "completion").unwrap();
                    for b in 0..20 {
                        h.create(Block(FREE + t * 40 + b), &Seal::None, |d| {
                            d[..4].copy_from_slice(&i.to_be_bytes());
                        })
                        .unwrap();
                    }
                    assert!(!tid.after(h.tid()));
                    while !h.ensure(30).unwrap() {
                        h.restart(30).unwrap();
                    }
                    let tid = h.tid();
                    drop(h);
                    if i % 5 == 0 {
                        j.wait_commit_flush(tid).unwrap();
                        assert!(!tid.after(j.committed_tid()));
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    j.close().unwrap();
    for t in 0..8 {
        assert_eq!(value(&*dev, FREE + t * 40 + 19), 59);
    }
    let (code, said) = fsck(&dev, &["-fn"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn journalled_data_is_seen_before_it_is_home() {
    let dev = Arc::new(small(&[]));
    let (j, _) = open_log(dev.clone(), quiet());
    let data = Arc::new(crate::device::AlignedBuf::copy_of(&[5; 1024]));
    let mut h = j.start("data", 1).unwrap();
    h.journal_data(Block(FREE), Arc::clone(&data)).unwrap();
    drop(h);
    assert_eq!(&**j.pending_data(Block(FREE)).unwrap(), &[5; 1024]);
    j.commit_all().unwrap();
    assert!(j.pending_data(Block(FREE)).is_some());
    assert_eq!(value(&*dev, FREE), 0);
    j.checkpoint_all().unwrap();
    assert!(j.pending_data(Block(FREE)).is_none());
    assert_eq!(value(&*dev, FREE), 0x0505_0505);
    j.close().unwrap();
    let _ = cache(dev.clone());
}

#[test]
fn operations_of_many_threads_stay_whole_across_any_crash() {
    let snoop = Snoop::new(small(&[]));
    let (j, _) = open_log(snoop.clone(), quiet());
    // Operation `n` of a thread writes n to four blocks, which it shares with nobody, and one of a
    // block shared with all.
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let j = Arc::clone(&j);
            std::thread::spawn(move || {
                for n in 1..=120u32 {
                    let mut h = j.start("pair", 5).unwrap();
                    for b in 0..4 {
                        let buf = j.cache().read(Block(FREE + t * 10 + b), &Seal::None).unwrap();
                        h.modify(&buf, &Seal::None, |d| d[..4].copy_from_slice(&n.to_be_bytes()))
                            .unwrap();
                        if b == 1 {
                            std::thread::yield_now();
                        }
                    }
                    let shared = j.cache().read(Block(FREE + 100), &Seal::None).unwrap();
                    let at = 8 * t as usize;
                    h.modify(&shared, &Seal::None, |d| {
                        d[at..at + 4].copy_from_slice(&n.to_be_bytes());
                    })
                    .unwrap();
                    let tid = h.tid();
                    drop(h);
                    if n % 6 == 0 {
                        j.wait_commit(tid).unwrap();
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    j.close().unwrap();
    let snapshots = snoop.before.lock();
    for (n, snap) in snapshots.iter().enumerate() {
        let dev = Arc::new(snap.snapshot());
        recover(dev.clone());
        let mut shared = [0; 32];
        dev.read_at(&mut shared, (FREE + 100) * 1024).unwrap();
        for t in 0..4 {
            let at = 8 * t as usize;
            let want = u32::from_be_bytes(shared[at..at + 4].try_into().unwrap());
            for b in 0..4 {
                let got = value(&*dev, FREE + t * 10 + b);
                assert_eq!(got, want, "write {n} of {}, thread {t}, block {b}", snapshots.len());
            }
        }
    }
}
