//! The ioctls that ext4 has and FUSE lets through.

use crate::{
    error::{Error, Result},
    fs::{Fs, Fsxattr},
    types::Ino,
};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;

/// Runs one; the bytes go back to the caller. `root`: the caller is the superuser.
pub fn run(fs: &Fs, root: bool, ino: Ino, cmd: u32, data: &[u8]) -> Result<Vec<u8>> {
    match cmd {
        FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => {
            Ok(u64::from(fs.get_flags(ino)?).to_le_bytes()[..size_of_arg(cmd)].to_vec())
        }
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
            fs.set_flags(root, ino, word(data, 0)?)?;
            Ok(Vec::new())
        }
        FS_IOC_GETVERSION => {
            Ok(u64::from(fs.get_version(ino)?).to_le_bytes()[..size_of_arg(cmd)].to_vec())
        }
        FS_IOC_FSGETXATTR => {
            let x = fs.get_fsxattr(ino)?;
            // struct fsxattr: xflags, extsize, nextents, projid, cowextsize, pad.
            let mut out = vec![0; size_of_arg(cmd)];
            out[..4].copy_from_slice(&x.xflags.to_le_bytes());
            out[12..16].copy_from_slice(&x.projid.to_le_bytes());
            Ok(out)
        }
        FS_IOC_FSSETXATTR => {
            let x = Fsxattr { xflags: word(data, 0)?, projid: word(data, 12)? };
            fs.set_fsxattr(root, ino, x)?;
            Ok(Vec::new())
        }
        FITRIM => {
            if !root {
                return Err(Error::Perm);
            }
            let (start, len, min) = (long(data, 0)?, long(data, 8)?, long(data, 16)?);
            let done = fs.trim(start, len, min)?;
            let mut out = data.get(..24).unwrap_or_default().to_vec();
            out[8..16].copy_from_slice(&done.to_le_bytes());
            Ok(out)
        }
        FS_IOC_SHUTDOWN => {
            if !root {
                return Err(Error::Perm);
            }
            fs.shutdown();
            Ok(vec![0; 4])
        }
        _ => Err(Error::NotTty),
    }
}

/// The size field of an ioctl number.
fn size_of_arg(cmd: u32) -> usize {
    (cmd >> 16 & 0x3fff) as usize
}

fn word(d: &[u8], at: usize) -> Result<u32> {
    let b = d.get(at..at + 4).and_then(|b| b.try_into().ok());
    b.map(u32::from_le_bytes).ok_or(Error::Invalid("ioctl argument"))
}

fn long(d: &[u8], at: usize) -> Result<u64> {
    let b = d.get(at..at + 8).and_then(|b| b.try_into().ok());
    b.map(u64::from_le_bytes).ok_or(Error::Invalid("ioctl argument"))
}
