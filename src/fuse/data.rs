//! READ and WRITE: who serves them, and what the reply waits for.

use super::{
    adaptor::Adaptor,
    convert::{errno, ino_of},
};
use crate::{
    device::AlignedBuf,
    error::Result,
    fs::{Cred, Fs, Grant, ReadHow, Wait, WriteHow},
    types::Ino,
};
use fuser::{INodeNo, OpenFlags, ReplyData, ReplyWrite, WriteFlags};

/// A WRITE, but for its data.
pub(super) struct Write {
    pub cred: Cred,
    pub node: INodeNo,
    pub off: u64,
    pub flags: OpenFlags,
    pub how: WriteFlags,
}

impl Write {
    fn how(&self) -> WriteHow {
        let cached = self.how.contains(WriteFlags::FUSE_WRITE_CACHE);
        WriteHow {
            direct: self.flags.0 & libc::O_DIRECT != 0 && !cached,
            sync: self.flags.0 & libc::O_SYNC == libc::O_SYNC,
            datasync: self.flags.0 & libc::O_DSYNC != 0,
        }
    }
}

impl Adaptor {
    pub(super) fn serve_read(
        &self,
        ino: Ino,
        off: u64,
        len: usize,
        flags: OpenFlags,
        reply: ReplyData,
    ) {
        let direct = flags.0 & libc::O_DIRECT != 0;
        let how = ReadHow { direct, noatime: flags.0 & libc::O_NOATIME != 0 };
        let fs = self.fs.clone();
        let request = fs.requests.begin(if direct { "direct read" } else { "read" }, ino);
        let job = move |held| {
            let buf = AlignedBuf::for_overwrite(len);
            fs.start_read(ino, off, buf, how, held, move |r| {
                drop(request);
                match r {
                    Ok(b) => reply.data(&b),
                    Err(e) => reply.error(errno(&e)),
                }
            });
        };
        self.after(self.fs.read_wait(ino, off, len, direct), (off, len), job);
    }

    pub(super) fn serve_write(&self, w: Write, data: &[u8], reply: ReplyWrite) {
        let (how, ino) = (w.how(), ino_of(w.node));
        let op = if how.direct { "direct write" } else { "write" };
        let request = self.fs.requests.begin(op, ino);
        let (node, off, cred) = (w.node, w.off, w.cred);
        let kill = w.how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let notifier = self.notifier();
        // The reply to a write has no room for the mode: the kernel is told to ask again.
        let prepare = move |fs: &Fs| -> Result<()> {
            if kill
                && fs.kill_privileges(cred, ino)?
                && let Some(n) = notifier.get()
            {
                let _ = n.inval_inode(node, -1, 0);
            }
            Ok(())
        };
        let (handles, invalidator) = (self.handles.clone(), self.invalidator.clone());
        let notifier = self.notifier();
        let finish = move |r: Result<usize>, reply: ReplyWrite| {
            drop(request);
            match r {
                // The kernel dropped its pages before; who reads meanwhile may have brought old data back.
                Ok(n) => {
                    match notifier.get().filter(|_| how.direct && handles.has_cached(node.0)) {
                        Some(to) => {
                            let then = move || reply.written(n as u32);
                            invalidator.drop_range(to, node, off, n as u64, then);
                        }
                        None => reply.written(n as u32),
                    }
                }
                Err(e) => reply.error(errno(&e)),
            }
        };
        let len = data.len();
        let wait = self.fs.write_wait(ino, off, len, how);
        if matches!(wait, Wait::Nothing) && !(how.direct && self.fs.submits()) {
            // Served here, from the worker's own buffer.
            let fs = &self.fs;
            let r = prepare(fs).and_then(|()| fs.write_here(cred, ino, off, data, how, None));
            return finish(r, reply);
        }
        let data = AlignedBuf::copy_of(data);
        let fs = self.fs.clone();
        let job = move |held| match prepare(&fs) {
            Ok(()) => {
                fs.start_write(cred, (ino, off), data, how, held, move |r| finish(r, reply));
            }
            Err(e) => {
                drop(held);
                finish(Err(e), reply);
            }
        };
        self.after(wait, (off, len), job);
    }

    /// Runs the job where and when it may: here, in a thread that may sleep, or once it has the lock.
    fn after(
        &self,
        wait: Wait,
        (off, len): (u64, usize),
        job: impl FnOnce(Option<Grant>) + Send + 'static,
    ) {
        match wait {
            Wait::Nothing => job(None),
            Wait::Thread => self.pool.run(move || job(None)),
            Wait::Lock(inode, share, dir) => {
                let (fs, granted, pool) =
                    (self.fs.clone(), self.granted.clone(), self.pool.clone());
                let i = inode.clone();
                self.fs.lock_then(&inode, share, dir, move |g| {
                    granted.run(move || {
                        if fs.fits(&i, dir, off, len, &g) {
                            return job(Some(g));
                        }
                        // It has to wait again: not here, where those are served that others wait for.
                        drop(g);
                        pool.run(move || job(None));
                    });
                });
            }
        }
    }
}
