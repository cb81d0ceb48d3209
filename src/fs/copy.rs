//! copy_file_range(2): the copy happens here, without the data crossing to the caller.

use super::{Cred, Fs, ReadHow, WriteHow};
use crate::{
    device::AlignedBuf,
    error::{Error, Result},
    types::Ino,
};

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

impl Fs {
    /// Copies up to `len` bytes; returns how many, fewer at the end of the source.
    pub fn copy_range(
        &self,
        cred: Cred,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<u64> {
        if from.0 == to.0 {
            let (a, b) = (from.1, to.1);
            if a.checked_add(len).ok_or(Error::TooBig)? > b && b.saturating_add(len) > a {
                return Err(Error::Invalid("ranges overlap"));
            }
        }
        let mut buf = AlignedBuf::for_overwrite(len.min(CHUNK as u64) as usize);
        let mut done = 0;
        while done < len {
            let want = (len - done).min(buf.len() as u64) as usize;
            let n = self.read(from.0, from.1 + done, &mut buf[..want], ReadHow::BUFFERED)?;
            if n == 0 {
                break;
            }
            if done == 0 && cred.uid != 0 {
                self.kill_privileges(cred, to.0)?;
            }
            match self.write(cred, to.0, to.1 + done, &buf[..n], WriteHow::default()) {
                Ok(w) => done += w as u64,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
