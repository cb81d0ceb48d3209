//! The devices of a mount, put one upon the other as its options say.

use super::file::Claimed;
use super::model::{self, ModelDevice, Spec};
use super::{BlockDevice, Counted, DeviceStats, FileDevice, OpenHow, Recorder};
use crate::error::{Error, Result};
use crate::options::MountOptions;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The seed of the disk model under a mount: two runs of one experiment meet the same disks.
const MODEL_SEED: u64 = 1;

/// What a mount reads and writes through, and the parts of it that can be asked something.
pub struct Stack {
    /// The top: everything goes through here.
    pub dev: Arc<dyn BlockDevice>,
    /// The bottom: the image or the device itself.
    pub file: Arc<FileDevice>,
    /// With `disk_model=`.
    pub model: Option<Arc<ModelDevice>>,
    /// With `record=`, unless mounted read-only.
    pub recorder: Option<Arc<Recorder>>,
    /// What is asked of `dev`.
    pub stats: Arc<DeviceStats>,
}

/// Everything of a [`Stack`] that has a name, open; nothing of it runs.
pub struct Opened {
    file: Claimed,
    model: Option<Spec>,
    /// The record, and how a message about it begins.
    record: Option<(File, String)>,
}

impl Opened {
    /// Opens what the options say over `path`.
    ///
    /// # Errors
    /// `Unmountable` for an unknown model and a record that cannot be made; those of [`FileDevice::open`].
    pub fn open(path: &Path, o: &MountOptions) -> Result<Opened> {
        let model = match o.disk_model.as_deref() {
            None | Some("none") => None,
            Some(name) => Some(model::presets::by_name(name).ok_or_else(|| {
                let names = model::presets::NAMES.join(", ");
                Error::Unmountable(format!("disk_model={name}: must be one of {names}"))
            })?),
        };
        let how = OpenHow {
            read_only: o.read_only,
            offset: o.offset,
            backing: o.backing,
            engine: o.io_engine,
        };
        let file = FileDevice::claim(path, how)?;
        let record = match o.record.as_deref().filter(|_| !o.read_only) {
            None => None,
            Some(log) => {
                let what = format!("cannot write record={}", log.display());
                let file = File::create(log);
                Some((file.map_err(|e| Error::Unmountable(format!("{what}: {e}")))?, what))
            }
        };
        Ok(Opened { file, model, record })
    }

    /// Starts the threads and puts one upon the other.
    ///
    /// # Errors
    /// `Unmountable` if the record cannot be written.
    pub fn start(self, o: &MountOptions) -> Result<Stack> {
        let file = Arc::new(self.file.start());
        let mut dev: Arc<dyn BlockDevice> = file.clone();
        let model = self
            .model
            .map(|s| Arc::new(ModelDevice::new(dev.clone(), s, o.disk_scale, MODEL_SEED)));
        if let Some(m) = &model {
            dev = m.clone();
        }
        let recorder = match self.record {
            None => None,
            Some((log, what)) => Some(Arc::new(
                Recorder::into_file(dev.clone(), log)
                    .map_err(|e| Error::Unmountable(format!("{what}: {e}")))?,
            )),
        };
        if let Some(r) = &recorder {
            dev = r.clone();
        }
        let counted = Counted::new(dev);
        let stats = counted.stats();
        Ok(Stack { dev: Arc::new(counted), file, model, recorder, stats })
    }
}

impl Stack {
    /// Opens `path` as the options say, and starts it.
    ///
    /// # Errors
    /// As [`Opened::open`] and [`Opened::start`].
    pub fn open(path: &Path, o: &MountOptions) -> Result<Stack> {
        Opened::open(path, o)?.start(o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("img");
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        let mut o = MountOptions::default();
        let plain = Stack::open(&image, &o).unwrap();
        assert!(plain.model.is_none() && plain.recorder.is_none());
        drop(plain);
        o.disk_model = Some("floppy".into());
        let e = Stack::open(&image, &o).err().unwrap();
        assert!(e.to_string().contains("raid10-14"), "{e}");
        o.disk_model = Some("nvme".into());
        o.record = Some(dir.path().join("log"));
        let s = Stack::open(&image, &o).unwrap();
        s.dev.write_at(&[1; 4096], 8192).unwrap();
        s.dev.flush().unwrap();
        assert_eq!(s.stats.writes.get().bytes, 4096);
        assert_eq!(s.model.as_ref().unwrap().counts().iter().map(|c| c.writes).sum::<u64>(), 1);
        drop(s);
        let log = super::super::reclog::LogReader::open(&dir.path().join("log")).unwrap();
        assert_eq!(log.count(), 4);
        assert_eq!(std::fs::read(&image).unwrap()[8192..12288], [1; 4096]);
    }
}
