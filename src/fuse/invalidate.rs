//! Drops what the kernel cached of a file, from a thread that holds no lock and serves no request: the
//! kernel may wait there for pages whose reads and writes the other threads serve.

use crossbeam::channel::{Sender, unbounded};
use fuser::{INodeNo, Notifier};
use std::sync::OnceLock;

/// A range of a file, and what is done once it is dropped.
struct Order {
    node: INodeNo,
    off: i64,
    len: i64,
    then: Box<dyn FnOnce() + Send>,
}

/// The thread, which is started when it is first needed.
#[derive(Default)]
pub struct Invalidator {
    orders: OnceLock<Sender<Order>>,
}

impl Invalidator {
    /// Drops the pages of the range, then calls `then`, from the thread.
    pub fn drop_range(
        &self,
        notifier: &Notifier,
        node: INodeNo,
        off: u64,
        len: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        let orders = self.orders.get_or_init(|| {
            let (tx, rx) = unbounded::<Order>();
            let notifier = notifier.clone();
            let started =
                std::thread::Builder::new().name("uext4-invalidate".into()).spawn(move || {
                    for o in rx {
                        // Nothing cached is no error; the end of the mount is none to tell of.
                        let _ = notifier.inval_inode(o.node, o.off, o.len);
                        (o.then)();
                    }
                });
            if let Err(e) = started {
                log::error!("no thread to drop cached pages: {e}");
            }
            tx
        });
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let order = Order { node, off: signed(off), len: signed(len), then: Box::new(then) };
        if let Err(back) = orders.send(order) {
            (back.into_inner().then)();
        }
    }
}
