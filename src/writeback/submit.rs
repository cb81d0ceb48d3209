//! The device's part of a run: its bytes, in few and large requests, several in flight.

use super::stats::PassStats;
use crate::{
    cache::pages::Taken,
    device::{IoDone, IoRequest, IoResult, WriteSeg},
    error::Result,
    inode::Volume,
    map::Mapping,
};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::{io::IoSlice, sync::Arc};

/// Where the blocks of a run are.
pub type Pieces = SmallVec<[Mapping; 8]>;

/// The most buffers in one vectored request (the kernel's `IOV_MAX`).
const IOV_MAX: usize = 1024;
/// A part of a run is written in place up to here, in bytes; larger ones are submitted, if there is
/// more than one request.
const IN_PLACE: u64 = 256 << 10;

/// Writes the bytes of the pieces of a run, and waits until they are on the device. One request for each
/// contiguous stretch of the device, as far as one request goes.
pub fn write_pieces(
    vol: &Volume,
    stats: &PassStats,
    taken: &Taken,
    pieces: &[Mapping],
) -> Result<()> {
    let bytes = pieces.iter().map(|m| u64::from(m.len)).sum::<u64>() << vol.geo.block_size.log2();
    let requests: usize = pieces.iter().map(|m| (m.len as usize).div_ceil(IOV_MAX)).sum();
    let flight = (bytes > IN_PLACE && requests > 1).then(|| Arc::new(Flight::new(requests)));
    let mut sent = 0;
    let mut first_error = Ok(());
    for (chunk, at) in chunks(vol, taken, pieces) {
        stats.request(chunk.iter().map(|b| b.len() as u64).sum());
        match &flight {
            Some(f) => {
                let segs = chunk.iter().map(|b| WriteSeg::whole(b.clone()));
                let done = crate::device::Done::Shared(f.clone(), sent);
                let mut r = IoRequest::write(segs, at, |_| {});
                r.done = done;
                vol.dev.submit(r);
                sent += 1;
            }
            None => {
                let slices: SmallVec<[IoSlice<'_>; 64]> =
                    chunk.iter().map(|b| IoSlice::new(b)).collect();
                first_error = vol.dev.write_vectored_at(&slices, at);
                if first_error.is_err() {
                    break;
                }
            }
        }
    }
    match flight {
        Some(f) => f.wait(),
        None => first_error,
    }
}

/// The buffers of each request, and its byte offset on the device.
fn chunks<'a>(
    vol: &Volume,
    taken: &'a Taken,
    pieces: &'a [Mapping],
) -> impl Iterator<Item = (&'a [Arc<crate::device::AlignedBuf>], u64)> {
    let bs = vol.geo.block_size;
    pieces.iter().flat_map(move |m| {
        let first = (m.lblk.0 - taken.first.0) as usize;
        let bufs = &taken.bufs[first..first + m.len as usize];
        (0u64..)
            .zip(bufs.chunks(IOV_MAX))
            .map(move |(i, chunk)| (chunk, bs.offset(m.pblk.plus(i * IOV_MAX as u64))))
    })
}

/// Requests in flight, and the first error.
struct Flight {
    state: Mutex<(usize, Result<()>)>,
    landed: Condvar,
}

impl Flight {
    fn new(requests: usize) -> Flight {
        Flight { state: Mutex::new((requests, Ok(()))), landed: Condvar::new() }
    }

    fn wait(&self) -> Result<()> {
        let mut s = self.state.lock();
        while s.0 > 0 {
            self.landed.wait(&mut s);
        }
        std::mem::replace(&mut s.1, Ok(()))
    }
}

impl IoDone for Flight {
    fn done(&self, _token: u64, r: IoResult) {
        let mut s = self.state.lock();
        s.0 = s.0.saturating_sub(1);
        if s.1.is_ok() {
            s.1 = r.result;
        }
        if s.0 == 0 {
            self.landed.notify_all();
        }
    }
}
