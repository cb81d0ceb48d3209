//! Transactions without a log.

use super::image::{cache, fsck, mkfs};
use crate::cache::SuperBuf;
use crate::device::{BlockDevice, MemDevice};
use crate::journal::{CommitListener, Journal, JournalOptions};
use crate::ondisk::Seal;
use crate::types::{Block, Tid};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

fn quiet() -> JournalOptions {
    JournalOptions { commit_interval: Duration::from_secs(3600), ..JournalOptions::default() }
}

fn open(dev: &Arc<MemDevice>) -> Arc<Journal> {
    Journal::none(cache(Arc::clone(dev) as Arc<dyn BlockDevice>), quiet())
}

struct Newest(AtomicU32);

impl CommitListener for Newest {
    fn committed(&self, tid: Tid) {
        self.0.store(tid.0, SeqCst);
    }
}

#[test]
fn a_commit_writes_home_and_tells() {
    let dev = Arc::new(mkfs(8, &["-O", "^has_journal"]));
    let j = open(&dev);
    let newest = Arc::new(Newest(AtomicU32::new(0)));
    j.add_listener(newest.clone());
    let sb = SuperBuf::load(j.cache()).unwrap();
    let mut h = j.start("test", 1).unwrap();
    h.modify(&sb.buf, &Seal::Superblock, |b| sb.slice_mut(b)[0x78..0x7b].copy_from_slice(b"abc"))
        .unwrap();
    let tid = h.tid();
    assert_eq!(j.running_tid(), tid);
    let mut on_disk = [0; 3];
    dev.read_at(&mut on_disk, 1024 + 0x78).unwrap();
    assert_eq!(&on_disk, &[0; 3], "nothing goes home before the commit");
    drop(h);
    j.wait_commit(tid).unwrap();
    dev.read_at(&mut on_disk, 1024 + 0x78).unwrap();
    assert_eq!(&on_disk, b"abc");
    assert_eq!(newest.0.load(SeqCst), tid.0);
    assert_eq!(j.committed_tid(), tid);
    j.close().unwrap();
    assert!(j.start("late", 1).is_err());
    let (code, said) = fsck(&dev, &["-fn"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_commit_waits_for_handles_and_data() {
    let dev = Arc::new(mkfs(8, &["-O", "^has_journal"]));
    let j = open(&dev);
    let mut h = j.start("test", 2).unwrap();
    let block = Block(1000);
    h.create(block, &Seal::None, |b| b.fill(7)).unwrap();
    let token = h.attach();
    let tid = h.tid();
    let (tx, rx) = std::sync::mpsc::channel();
    let j2 = Arc::clone(&j);
    let t = std::thread::spawn(move || {
        j2.wait_commit(tid).unwrap();
        tx.send(()).unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(rx.try_recv().is_err(), "committed under an open handle");
    drop(h);
    std::thread::sleep(Duration::from_millis(50));
    assert!(rx.try_recv().is_err(), "committed before its data");
    assert!(j.start("next", 1).unwrap().tid().after(tid), "the next transaction runs meanwhile");
    token.done();
    rx.recv_timeout(Duration::from_secs(5)).unwrap();
    t.join().unwrap();
    j.close().unwrap();
}

#[test]
fn a_reserved_handle_joins_a_closing_transaction() {
    let dev = Arc::new(mkfs(8, &["-O", "^has_journal"]));
    let j = open(&dev);
    let rsv = j.reserve(3).unwrap();
    let h = j.start("holds it open", 1).unwrap();
    let tid = h.tid();
    let j2 = Arc::clone(&j);
    let t = std::thread::spawn(move || j2.wait_commit(tid).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    let mut h2 = j.start_reserved(rsv, "completion").unwrap();
    assert_eq!(h2.tid(), tid);
    h2.create(Block(1001), &Seal::None, |b| b.fill(1)).unwrap();
    drop(h2);
    drop(h);
    t.join().unwrap();
    let mut b = [0; 4];
    dev.read_at(&mut b, 1001 * j.cache().geo().block_size.bytes64()).unwrap();
    assert_eq!(b, [1; 4]);
    j.close().unwrap();
}

#[test]
fn after_an_abort_nothing_starts_and_nobody_waits() {
    let dev = Arc::new(mkfs(8, &["-O", "^has_journal"]));
    let j = open(&dev);
    let mut h = j.start("test", 1).unwrap();
    let tid = h.tid();
    h.create(Block(1000), &Seal::None, |b| b.fill(7)).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    j.on_committed(tid, Box::new(move |r| tx.send(r.is_err()).unwrap()));
    j.abort(&crate::error::Error::NoMemory);
    assert!(rx.recv_timeout(Duration::from_secs(5)).unwrap());
    assert!(h.create(Block(1001), &Seal::None, |_| ()).is_err());
    drop(h);
    assert!(matches!(j.start("late", 1), Err(crate::error::Error::ReadOnly)));
    assert!(j.wait_commit(tid).is_err());
    assert!(j.close().is_err());
}
