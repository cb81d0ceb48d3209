//! Direct requests that are submitted: the completion answers, no thread waits.

use super::{Grant, read, write};
use crate::{
    device::{AlignedBuf, BufPart, IoPayload, IoRequest, IoResult, ReadBuf, WriteSeg},
    error::{Error, Result},
    inode::{Inode, Volume},
    writeback::Writeback,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// A direct read into `buf` (see [`super::read_direct`]). It may wait for its lock and for dirty data to
/// go out, but not for the device: `done` is called with the bytes read, cut at the end of the file, perhaps
/// from a thread of the device's engine. It must not block.
pub fn start_read(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    mut buf: AlignedBuf,
    held: Option<Grant>,
    done: impl FnOnce(Result<AlignedBuf>) + Send + 'static,
) {
    let r = match read::admit(vol, wb, inode, off, buf.len(), held) {
        Ok(r) => r,
        Err(e) => return done(Err(e)),
    };
    buf.truncate(r.len);
    let hold = r.hold;
    if r.pieces.iter().all(|p| p.disk.is_none()) {
        buf.fill(0);
        drop(hold);
        return done(Ok(buf));
    }
    if let [one] = r.pieces.as_slice()
        && let Some(disk) = one.disk
    {
        return vol.dev.submit(IoRequest::read(buf, disk, move |r| {
            drop(hold);
            let buf = whole(r);
            done(buf)
        }));
    }
    let lens: Vec<usize> = r.pieces.iter().map(|p| p.len).collect();
    let Some(parts) = buf.into_parts(&lens) else {
        drop(hold);
        return done(Err(inode.corrupt("pieces of a read")));
    };
    let left = r.pieces.iter().filter(|p| p.disk.is_some()).count();
    let mut slots: Vec<Option<BufPart>> = Vec::new();
    slots.resize_with(parts.len(), || None);
    let mut to_read = Vec::with_capacity(left);
    for (i, (p, mut part)) in r.pieces.iter().zip(parts).enumerate() {
        match p.disk {
            Some(disk) => to_read.push((i, part, disk)),
            None => {
                part.fill(0);
                slots[i] = Some(part);
            }
        }
    }
    let all = Arc::new(Gather::new(left, slots, move |r: Result<Vec<Option<BufPart>>>| {
        drop(hold);
        let torn = || Error::Invalid("parts of a buffer");
        done(r.and_then(|v| BufPart::join(v.into_iter().flatten()).ok_or_else(torn)));
    }));
    for (i, part, disk) in to_read {
        let all = all.clone();
        vol.dev.submit(IoRequest::read(part, disk, move |r| {
            all.one(r.result, |slots| {
                if let IoPayload::Read(bufs) = r.payload
                    && let Some(ReadBuf::Part(p)) = bufs.into_iter().next()
                    && let Some(slot) = slots.get_mut(i)
                {
                    *slot = Some(p);
                }
            })
        }));
    }
}

fn whole(r: IoResult) -> Result<AlignedBuf> {
    r.result?;
    match r.payload {
        IoPayload::Read(bufs) => match bufs.into_iter().next() {
            Some(ReadBuf::Whole(b)) => Ok(b),
            _ => Err(Error::Invalid("buffer of a read")),
        },
        _ => Err(Error::Invalid("buffer of a read")),
    }
}

/// A direct write to written blocks that has its locks: see [`admit_overwrite`].
pub struct Admitted(write::Overwrite);

/// Locks and maps a direct write of `len` bytes at `off`, if all it does is overwrite written blocks.
/// It takes what is in `held`. `None`: the write has to allocate, convert or extend, see
/// [`super::write_direct`].
pub fn admit_overwrite(
    vol: &Volume,
    wb: &Writeback,
    inode: &Arc<Inode>,
    off: u64,
    len: usize,
    held: &mut Option<Grant>,
) -> Result<Option<Admitted>> {
    let unit = u64::from(vol.dev.logical_block_size());
    if !off.is_multiple_of(unit) || !(len as u64).is_multiple_of(unit) || len == 0 {
        return Ok(None);
    }
    let end = off.checked_add(len as u64).ok_or(Error::TooBig)?;
    Ok(write::admit_overwrite(vol, wb, inode, off, end, held)?.map(Admitted))
}

/// Submits the write of `data` at `off` that was admitted: as [`start_read`], `done` is called with the
/// bytes written.
pub fn start_overwrite(
    vol: &Volume,
    inode: &Inode,
    off: u64,
    data: &Arc<AlignedBuf>,
    Admitted(w): Admitted,
    done: impl FnOnce(Result<usize>) + Send + 'static,
) {
    let (len, hold) = (data.len(), w.hold);
    let all = Arc::new(Gather::new(w.pieces.len(), (), move |r: Result<()>| {
        drop(hold);
        done(r.map(|()| len));
    }));
    for m in &w.pieces {
        let (part, disk) = write::place(vol, m, off, len);
        let all = all.clone();
        match WriteSeg::new(data.clone(), part.start, part.len()) {
            Some(seg) => {
                vol.dev.submit(IoRequest::write([seg], disk, move |r| all.one(r.result, |()| ())))
            }
            None => all.one(Err(inode.corrupt("pieces of a write")), |()| ()),
        }
    }
}

struct Parts<T, F> {
    left: usize,
    result: Result<()>,
    value: Option<(T, F)>,
}

/// Waits for the parts of a request without a thread: the last one tells.
struct Gather<T, F>(Mutex<Parts<T, F>>);

impl<T, F: FnOnce(Result<T>)> Gather<T, F> {
    fn new(left: usize, value: T, done: F) -> Gather<T, F> {
        Gather(Mutex::new(Parts { left, result: Ok(()), value: Some((value, done)) }))
    }

    fn one(&self, r: Result<()>, f: impl FnOnce(&mut T)) {
        let mut p = self.0.lock();
        if let Some((v, _)) = &mut p.value {
            f(v);
        }
        if p.result.is_ok() {
            p.result = r;
        }
        p.left = p.left.saturating_sub(1);
        if p.left == 0
            && let Some((v, done)) = p.value.take()
        {
            let r = std::mem::replace(&mut p.result, Ok(()));
            drop(p);
            done(r.map(|()| v));
        }
    }
}
