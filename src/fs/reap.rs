//! The end of unlinked inodes, off the request threads: their blocks are freed
//! once nobody has them open, their number once the kernel has forgotten them.

use super::Fs;
use crate::{
    error::{Error, Result},
    inode::{self, Inode, Volume},
    types::LBlock,
    writeback::Writeback,
    xattr,
};
use crossbeam::channel::{Receiver, Sender, TryRecvError, unbounded};
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

enum Job {
    End(Arc<Inode>),
    /// Answer when everything before is done.
    Ping(Sender<()>),
    Stop,
}

/// The thread that ends unlinked inodes.
pub(super) struct Reaper {
    jobs: Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reaper {
    pub(super) fn start(vol: Arc<Volume>, wb: Arc<Writeback>) -> std::io::Result<Reaper> {
        let (jobs, rx) = unbounded();
        let t = std::thread::Builder::new()
            .name("uext4-reap".into())
            .spawn(move || run(&vol, &wb, &rx))?;
        Ok(Reaper { jobs, thread: Mutex::new(Some(t)) })
    }

    /// Waits until every inode handed over so far has ended.
    pub(super) fn drain(&self) {
        let (tx, rx) = unbounded();
        if self.jobs.send(Job::Ping(tx)).is_ok() {
            let _ = rx.recv();
        }
    }

    pub(super) fn stop(&self) {
        let _ = self.jobs.send(Job::Stop);
        if let Some(t) = self.thread.lock().take() {
            let _ = t.join();
        }
    }
}

/// How long the thread sleeps before it looks for more: waking it costs the request that does so more
/// than the rest of what it hands over.
const GATHER: Duration = Duration::from_millis(1);

fn run(vol: &Volume, wb: &Writeback, rx: &Receiver<Job>) {
    loop {
        let job = match rx.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) => {
                std::thread::sleep(GATHER);
                match rx.try_recv().or_else(|_| rx.recv()) {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match job {
            Job::End(i) => {
                let r = end(vol, wb, &i);
                if let Err(e) = vol.check("evict_inode", r) {
                    log::error!("inode {}: freeing it failed: {e}", i.ino);
                }
            }
            Job::Ping(tx) => {
                let _ = tx.send(());
            }
            Job::Stop => return,
        }
    }
}

/// Frees the blocks of an unlinked, closed inode, and its number if the kernel has forgotten it.
pub(super) fn end(vol: &Volume, wb: &Writeback, i: &Arc<Inode>) -> Result<()> {
    if i.nlink() != 0
        || i.opens.load(Ordering::Acquire) != 0
        || i.freed.load(Ordering::Acquire)
        || vol.writable().is_err()
    {
        return Ok(());
    }
    drop_pages(vol, wb, i, LBlock(0), u64::MAX);
    vol.alloc.discard_prealloc(i.ino);
    let number = vol.inodes.lookups(i.ino) == 0;
    if !number && i.blocks512() == 0 {
        return Ok(());
    }
    let credits = xattr::release_credits(vol);
    inode::free_inode(vol, i, number, |h| xattr::release_all(vol, h, i), credits)
}

/// Drops dirty pages of a range that is going away, waiting for those in flight.
pub(super) fn drop_pages(vol: &Volume, wb: &Writeback, i: &Inode, from: LBlock, end: u64) {
    let (gone, reserved) = {
        let mut p = i.pages.lock();
        while p.writing_in(from, end) {
            i.pages_idle.wait(&mut p);
        }
        p.drop_range(from, end)
    };
    if reserved > 0 {
        drop(i.take_reservation(reserved));
    }
    wb.cleaned(u64::from(gone) * vol.geo.block_size.bytes64());
}

impl Fs {
    /// Hands an inode to the reaper if nothing keeps it.
    pub(super) fn maybe_reap(&self, i: &Arc<Inode>) {
        if i.nlink() != 0 || i.opens.load(Ordering::Acquire) != 0 {
            return;
        }
        // With nothing to free but its number it is ended when the kernel forgets it, which then sees
        // that it has no links.
        let kept = self.vol.inodes.lookups(i.ino) != 0;
        if kept && i.blocks512() == 0 && i.pages.lock().is_empty() {
            return;
        }
        let _ = self.reaper.jobs.send(Job::End(i.clone()));
    }

    /// The last open handle went.
    pub(super) fn closed(&self, i: &Arc<Inode>) {
        self.vol.alloc.discard_prealloc(i.ino);
        self.maybe_reap(i);
    }

    /// Every orphan that the kernel no longer holds ends now: at unmount.
    pub(super) fn end_orphans(&self) -> Result<()> {
        self.vol.inodes.forget_all();
        self.reaper.drain();
        let mut first: Result<(), Error> = Ok(());
        for i in self.vol.inodes.all() {
            if i.nlink() == 0 {
                i.opens.store(0, Ordering::Release);
                first = first.and(end(&self.vol, &self.wb, &i));
            }
        }
        first
    }
}
