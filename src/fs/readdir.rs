//! Reading directories.

use super::{Fs, Stat};
use crate::{dir, error::Result, ondisk::FileKind, types::Ino};

/// One entry, as a reader of the directory gets it.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What it names.
    pub ino: Ino,
    /// The type recorded in the entry, where the file system records it.
    pub kind: Option<FileKind>,
    /// Where to go on after it.
    pub next: u64,
}

impl Fs {
    /// Calls `sink` for each entry from position `pos` on until it returns false.
    pub fn readdir(
        &self,
        ino: Ino,
        pos: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let d = self.dir(ino)?;
        self.accessed(&d);
        let _l = d.dir.read();
        let r = dir::read(&self.vol, &d, pos, &mut |name, e, next| {
            sink(DirEntry { name, ino: e.ino, kind: e.kind, next })
        });
        self.op("readdir", r)
    }

    /// The attributes of an entry for readdirplus, counting a look-up of the kernel unless it is
    /// `.` or `..`. `None` if it cannot be read: the entry is then listed without.
    pub fn entry_stat(&self, name: &[u8], ino: Ino) -> Option<Stat> {
        let counted = !matches!(name, b"." | b"..");
        if counted {
            self.vol.inodes.add_lookup(ino);
        }
        match self.get(ino) {
            Ok(i) => Some(Stat::of(self, &i)),
            Err(_) => {
                if counted {
                    self.vol.inodes.forget(ino, 1);
                }
                None
            }
        }
    }
}
