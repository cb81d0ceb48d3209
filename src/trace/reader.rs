//! Readers, what each wants, and what waits for it.

use super::{Record, WANTED, format, names};
use crate::types::Ino;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Events that wait for one reader at most.
const CAPACITY: usize = 16 << 10;

/// Which events a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// A bit for each event; 0: all.
    events: u64,
    /// Events about these inodes only; empty: all.
    pub inos: Vec<Ino>,
    /// JSON instead of text.
    pub json: bool,
}

impl Filter {
    /// Reads words: names of events (`jbd2_*` for all that begin so), `ino=N`, `json`. `path` says
    /// which inode a `path=` means.
    ///
    /// # Errors
    /// What is wrong with which word.
    pub fn parse(text: &str, path: impl Fn(&str) -> Result<Ino, String>) -> Result<Filter, String> {
        let mut f = Filter::default();
        for word in text.split_whitespace() {
            if word == "json" {
                f.json = true;
            } else if let Some(n) = word.strip_prefix("ino=") {
                let n = n.parse().map_err(|_| format!("\"{word}\": not an inode number"))?;
                f.inos.push(Ino(n));
            } else if let Some(p) = word.strip_prefix("path=") {
                f.inos.push(path(p).map_err(|e| format!("\"{word}\": {e}"))?);
            } else {
                f.events |= names::matching(word).ok_or_else(|| {
                    let all: Vec<_> = super::Event::ALL.iter().map(|e| e.name()).collect();
                    format!("no event \"{word}\"; there are {}", all.join(" "))
                })?;
            }
        }
        Ok(f)
    }

    fn wants(&self, r: &Record) -> bool {
        let event = self.mask() & r.event.bit() != 0;
        event && (self.inos.is_empty() || r.ino.is_some_and(|i| self.inos.contains(&Ino(i))))
    }

    fn mask(&self) -> u64 {
        if self.events == 0 { u64::MAX } else { self.events }
    }
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    lost: u64,
}

struct Shared {
    filter: Filter,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

static READERS: RwLock<Vec<Arc<Shared>>> = RwLock::new(Vec::new());

/// Events from now on, until it is dropped.
pub struct Reader(Arc<Shared>);

/// What a reader got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A line, without the newline.
    Line(String),
    /// Nothing came.
    Idle,
}

/// A reader of what the filter lets through.
pub fn open(filter: Filter) -> Reader {
    let shared = Arc::new(Shared { filter, queue: Mutex::default(), arrived: Condvar::new() });
    let mut all = READERS.write();
    all.push(shared.clone());
    want(&all);
    Reader(shared)
}

fn want(all: &[Arc<Shared>]) {
    WANTED.store(all.iter().fold(0, |m, r| m | r.filter.mask()), Relaxed);
}

pub(super) fn tell(r: &Record) {
    for s in READERS.read().iter().filter(|s| s.filter.wants(r)) {
        let mut q = s.queue.lock();
        if q.records.len() >= CAPACITY {
            q.lost += 1;
            continue;
        }
        q.records.push_back(r.clone());
        if q.records.len() == 1 {
            s.arrived.notify_one();
        }
    }
}

impl Reader {
    /// The next event; waits for it up to `timeout`.
    pub fn next(&self, timeout: Duration) -> Next {
        let end = Instant::now() + timeout;
        let json = self.0.filter.json;
        let mut q = self.0.queue.lock();
        loop {
            if q.lost > 0 && q.records.is_empty() {
                return Next::Line(format::lost(std::mem::take(&mut q.lost), json));
            }
            if let Some(r) = q.records.pop_front() {
                drop(q);
                return Next::Line(if json { r.json() } else { r.text() });
            }
            if self.0.arrived.wait_until(&mut q, end).timed_out() && q.records.is_empty() {
                return Next::Idle;
            }
        }
    }

    /// All that waits, one a line.
    pub fn drain(&self) -> String {
        let mut s = String::new();
        while let Next::Line(l) = self.next(Duration::ZERO) {
            s.push_str(&l);
            s.push('\n');
        }
        s
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut all = READERS.write();
        all.retain(|r| !Arc::ptr_eq(r, &self.0));
        want(&all);
    }
}
