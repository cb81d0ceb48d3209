//! Requests that have not been answered yet, for the watchdog and for `locks`.

use crate::types::Ino;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const SHARDS: usize = 16;

#[derive(Clone, Copy)]
struct Entry {
    id: u64,
    op: &'static str,
    ino: Ino,
    since: Instant,
}

#[derive(Default)]
struct Shard {
    /// Slots, reused.
    slots: Vec<Option<Entry>>,
    free: Vec<usize>,
    begun: u64,
}

/// The list.
pub struct Requests {
    shards: [Mutex<Shard>; SHARDS],
    next: AtomicUsize,
}

/// A request; dropping it says that it is answered.
pub struct Request {
    list: Arc<Requests>,
    shard: usize,
    slot: usize,
}

/// A request as it is shown.
#[derive(Debug, Clone)]
pub struct RequestLine {
    /// Names it among all requests of the mount.
    pub id: u64,
    /// What it does.
    pub op: &'static str,
    /// On which inode.
    pub ino: Ino,
    /// For how long.
    pub age: Duration,
}

impl Requests {
    pub(super) fn new() -> Arc<Requests> {
        Arc::new(Requests { shards: Default::default(), next: AtomicUsize::new(0) })
    }

    /// A request has come.
    pub fn begin(self: &Arc<Requests>, op: &'static str, ino: Ino) -> Request {
        let shard = self.next.fetch_add(1, Relaxed) % SHARDS;
        let mut s = self.shards[shard].lock();
        s.begun += 1;
        let id = s.begun * SHARDS as u64 + shard as u64;
        let entry = Some(Entry { id, op, ino, since: Instant::now() });
        let slot = match s.free.pop() {
            Some(i) => {
                s.slots[i] = entry;
                i
            }
            None => {
                s.slots.push(entry);
                s.slots.len() - 1
            }
        };
        drop(s);
        Request { list: self.clone(), shard, slot }
    }

    /// Those older than `age`, oldest first.
    pub fn older_than(&self, age: Duration) -> Vec<RequestLine> {
        let (mut out, now) = (Vec::new(), Instant::now());
        for s in &self.shards {
            out.extend(s.lock().slots.iter().flatten().filter_map(|e| {
                let line = RequestLine {
                    id: e.id,
                    op: e.op,
                    ino: e.ino,
                    age: now.saturating_duration_since(e.since),
                };
                (line.age >= age).then_some(line)
            }));
        }
        out.sort_by_key(|l| std::cmp::Reverse(l.age));
        out
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut s = self.list.shards[self.shard].lock();
        s.slots[self.slot] = None;
        s.free.push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_the_oldest_comes_first() {
        let list = Requests::new();
        let first = list.begin("read", Ino(12));
        std::thread::sleep(Duration::from_millis(2));
        for _ in 0..1000 {
            drop(list.begin("write", Ino(13)));
        }
        let _last = list.begin("fsync", Ino(14));
        let all = list.older_than(Duration::ZERO);
        assert_eq!(all.iter().map(|l| l.op).collect::<Vec<_>>(), ["read", "fsync"]);
        assert_ne!(all[0].id, all[1].id);
        drop(first);
        assert_eq!(list.older_than(Duration::ZERO).len(), 1);
        assert!(list.shards.iter().all(|s| s.lock().slots.len() <= 2));
    }
}
