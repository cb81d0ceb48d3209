//! The `uext4` command with a toy behind it: a directory with one file, `hello`.
//! The "image" is a text file that begins with "toy"; the end of a mount appends
//! "clean" to it, after TOY_END_DELAY milliseconds, or fails if TOY_END_FAILS is
//! set.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uext4::cli::{Backend, Started};
use uext4::options::*;

const TEXT: &[u8] = b"Hello!\n";

fn attr(ino: INodeNo) -> Option<FileAttr> {
    let (kind, perm, size) = match u64::from(ino) {
        1 => (FileType::Directory, 0o755, 0),
        2 => (FileType::RegularFile, 0o644, TEXT.len() as u64),
        _ => return None,
    };
    Some(FileAttr {
        ino,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: SystemTime::now(),
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    })
}

struct Toy;

impl Filesystem for Toy {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match attr(INodeNo(2)) {
            Some(a) if u64::from(parent) == 1 && name == "hello" => {
                reply.entry(&Duration::from_secs(1), &a, Generation(0))
            }
            _ => reply.error(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attr(ino) {
            Some(a) => reply.attr(&Duration::from_secs(1), &a),
            None => reply.error(Errno::ENOENT),
        }
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(TEXT.get(offset as usize..).unwrap_or_default());
    }
    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, at: u64, mut reply: ReplyDirectory) {
        let all = [
            (1, FileType::Directory, "."),
            (1, FileType::Directory, ".."),
            (2, FileType::RegularFile, "hello"),
        ];
        for (i, (ino, kind, name)) in all.into_iter().enumerate().skip(at as usize) {
            if reply.add(INodeNo(ino), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

struct Panel {
    options: Mutex<MountOptions>,
}

impl Control for Panel {
    fn names(&self) -> Vec<ControlName> {
        vec![
            ControlName { name: "options", writable: false, per_inode: false },
            ControlName { name: "number", writable: false, per_inode: true },
        ]
    }
    fn get(&self, scope: Scope, name: &str) -> Result<String, ControlError> {
        match (name, scope) {
            ("options", Scope::Mount) => Ok(self.options.lock().unwrap().lines()),
            ("number", Scope::Inode(ino)) => Ok(format!("{ino}\n")),
            ("number", Scope::Mount) => Ok("0\n".into()),
            _ => Err(ControlError::unknown(name)),
        }
    }
    fn set(&self, _: Scope, name: &str, value: &str) -> Result<(), ControlError> {
        let tried = match name {
            "panic" => panic!("asked for"),
            "open" => File::open(value).map(drop),
            "run" => std::process::Command::new(value).status().map(drop),
            "connect" => std::net::TcpStream::connect(value).map(drop),
            _ => return Err(ControlError::read_only(name)),
        };
        tried.map_err(|e| ControlError::refused(e.kind().to_string()))
    }
    fn remount(&self, changes: &str) -> Result<Vec<String>, ControlError> {
        let mut options = self.options.lock().unwrap();
        let new = options.remounted(changes).map_err(|e| ControlError::refused(e.0))?;
        *options = new.clone();
        Ok(new.warnings().to_vec())
    }
    fn sync(&self) -> Result<(), ControlError> {
        Ok(())
    }
    fn shutdown(&self, how: Shutdown) -> Result<(), ControlError> {
        Err(ControlError::refused(format!("no shutdown {how:?}")))
    }
    fn trace(&self, _: &str) -> Result<Box<dyn TraceStream>, ControlError> {
        Err(ControlError::refused("no trace"))
    }
}

#[derive(Default)]
struct Image {
    file: Option<File>,
    read_only: bool,
}

impl Backend for Image {
    type Filesystem = Toy;

    fn open(&mut self, source: &Path, options: &MountOptions) -> Result<(), String> {
        self.read_only = options.read_only;
        let file = File::options().read(true).append(!options.read_only).open(source);
        self.file = Some(file.map_err(|e| e.to_string())?);
        Ok(())
    }

    fn start(&mut self, options: &MountOptions) -> Result<Started<Toy>, String> {
        let mut magic = [0; 3];
        let read = self.file.as_mut().map(|f| f.read_exact(&mut magic));
        if !matches!(read, Some(Ok(()))) || &magic != b"toy" {
            return Err("not a toy image".into());
        }
        Ok(Started {
            notifier: Default::default(),
            filesystem: Toy,
            control: Arc::new(Panel { options: Mutex::new(options.clone()) }),
            warnings: vec![],
            read_only: false,
        })
    }

    fn end(self) -> Result<(), String> {
        let delay = std::env::var("TOY_END_DELAY").ok().and_then(|d| d.parse().ok());
        std::thread::sleep(Duration::from_millis(delay.unwrap_or(0)));
        if std::env::var_os("TOY_END_FAILS").is_some() {
            return Err("the journal could not be written".into());
        }
        match self.file {
            Some(mut file) if !self.read_only => {
                file.write_all(b"clean\n").map_err(|e| e.to_string())
            }
            _ => Ok(()),
        }
    }
}

/// The command.
pub fn main() -> ExitCode {
    uext4::cli::run(std::env::args_os().collect(), Image::default())
}
