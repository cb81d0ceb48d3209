//! Longer texts: counters, locks, what the superblock says.

use super::super::Fs;
use crate::ondisk::{SUPERBLOCK_SIZE, Superblock};
use std::{fmt::Write as _, sync::atomic::Ordering::Relaxed, time::Duration};

impl Fs {
    /// The superblock as it is in memory.
    pub(super) fn superblock(&self) -> Option<Superblock> {
        self.vol.sb.read(|b| {
            let raw: &[u8; SUPERBLOCK_SIZE] = b.try_into().ok()?;
            Superblock::parse(raw).ok()
        })
    }

    /// `session_write_kbytes`: what was written to the device since the mount, in KiB.
    pub fn session_write_kbytes(&self) -> u64 {
        self.io.writes.get().bytes >> 10
    }

    /// `lifetime_write_kbytes`: the same since the file system was made.
    pub fn lifetime_write_kbytes(&self) -> u64 {
        self.kbytes_before.saturating_add(self.session_write_kbytes())
    }

    pub(super) fn stats_text(&self) -> String {
        let mut s = self.wb.stats.text();
        let (r, w) = (self.io.reads.get(), self.io.writes.get());
        let flushes = self.io.flushes.load(Relaxed);
        let _ = writeln!(s, "device_reads {}\ndevice_read_bytes {}", r.requests, r.bytes);
        let _ = writeln!(s, "device_writes {}\ndevice_write_bytes {}", w.requests, w.bytes);
        let _ = writeln!(s, "device_flushes {flushes}");
        let (held, pending) = self.vol.alloc.withheld_blocks();
        let _ = writeln!(s, "preallocated_blocks {held}\nfreed_blocks_uncommitted {pending}");
        s += &self.vol.dio.text();
        s
    }

    /// The requests not answered yet, then the I/O locks that are held or waited for, one a line.
    pub(super) fn locks_text(&self) -> String {
        let mut out = String::new();
        for r in self.requests.older_than(Duration::ZERO) {
            let age = r.age.as_secs_f64();
            let _ = writeln!(out, "inode {} request - {} {age:.3} s", r.ino, r.op);
        }
        for i in self.vol.inodes.all() {
            for l in i.io.list() {
                let _ = writeln!(
                    out,
                    "inode {} {} {:?} {} {:.3} s",
                    i.ino,
                    if l.held { "held" } else { "waiting" },
                    l.share,
                    l.op,
                    l.age.as_secs_f64()
                );
            }
        }
        out
    }
}
