//! The three feature words of the superblock, by the names e2fsprogs prints.

// The bits are documented by their e2fsprogs names, in `name`.
#![allow(missing_docs)]

use bitflags::bitflags;
use std::fmt;

bitflags! {
    /// `s_feature_compat`: a driver may ignore what it does not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        const DIR_PREALLOC = 0x1;
        const IMAGIC_INODES = 0x2;
        const HAS_JOURNAL = 0x4;
        const EXT_ATTR = 0x8;
        const RESIZE_INODE = 0x10;
        const DIR_INDEX = 0x20;
        const LAZY_BG = 0x40;
        const EXCLUDE_INODE = 0x80;
        const EXCLUDE_BITMAP = 0x100;
        const SPARSE_SUPER2 = 0x200;
        const FAST_COMMIT = 0x400;
        const STABLE_INODES = 0x800;
        const ORPHAN_FILE = 0x1000;
    }

    /// `s_feature_incompat`: a driver must refuse what it does not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        const COMPRESSION = 0x1;
        const FILETYPE = 0x2;
        const RECOVER = 0x4;
        const JOURNAL_DEV = 0x8;
        const META_BG = 0x10;
        const EXTENTS = 0x40;
        const BIT64 = 0x80;
        const MMP = 0x100;
        const FLEX_BG = 0x200;
        const EA_INODE = 0x400;
        const DIRDATA = 0x1000;
        const CSUM_SEED = 0x2000;
        const LARGEDIR = 0x4000;
        const INLINE_DATA = 0x8000;
        const ENCRYPT = 0x1_0000;
        const CASEFOLD = 0x2_0000;
    }

    /// `s_feature_ro_compat`: a driver must not write where it meets what it does not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        const SPARSE_SUPER = 0x1;
        const LARGE_FILE = 0x2;
        const BTREE_DIR = 0x4;
        const HUGE_FILE = 0x8;
        const GDT_CSUM = 0x10;
        const DIR_NLINK = 0x20;
        const EXTRA_ISIZE = 0x40;
        const HAS_SNAPSHOT = 0x80;
        const QUOTA = 0x100;
        const BIGALLOC = 0x200;
        const METADATA_CSUM = 0x400;
        const REPLICA = 0x800;
        const READONLY = 0x1000;
        const PROJECT = 0x2000;
        const SHARED_BLOCKS = 0x4000;
        const VERITY = 0x8000;
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

impl Compat {
    /// The name `dumpe2fs` prints for one bit, e.g. `has_journal`.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Compat::DIR_PREALLOC => "dir_prealloc",
            Compat::IMAGIC_INODES => "imagic_inodes",
            Compat::HAS_JOURNAL => "has_journal",
            Compat::EXT_ATTR => "ext_attr",
            Compat::RESIZE_INODE => "resize_inode",
            Compat::DIR_INDEX => "dir_index",
            Compat::LAZY_BG => "lazy_bg",
            Compat::EXCLUDE_BITMAP => "snapshot_bitmap",
            Compat::SPARSE_SUPER2 => "sparse_super2",
            Compat::FAST_COMMIT => "fast_commit",
            Compat::STABLE_INODES => "stable_inodes",
            Compat::ORPHAN_FILE => "orphan_file",
            _ => return None,
        })
    }
}

impl Incompat {
    /// What this driver can mount read-only.
    pub const SUPPORTED: Incompat = Incompat::FILETYPE
        .union(Incompat::RECOVER)
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD);
    /// Understood for reading only: they force a read-only mount.
    pub const READ_ONLY: Incompat = Incompat::CASEFOLD;

    /// The name `dumpe2fs` prints for one bit, e.g. `needs_recovery`.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Incompat::COMPRESSION => "compression",
            Incompat::FILETYPE => "filetype",
            Incompat::RECOVER => "needs_recovery",
            Incompat::JOURNAL_DEV => "journal_dev",
            Incompat::META_BG => "meta_bg",
            Incompat::EXTENTS => "extent",
            Incompat::BIT64 => "64bit",
            Incompat::MMP => "mmp",
            Incompat::FLEX_BG => "flex_bg",
            Incompat::EA_INODE => "ea_inode",
            Incompat::DIRDATA => "dirdata",
            Incompat::CSUM_SEED => "metadata_csum_seed",
            Incompat::LARGEDIR => "large_dir",
            Incompat::INLINE_DATA => "inline_data",
            Incompat::ENCRYPT => "encrypt",
            Incompat::CASEFOLD => "casefold",
            _ => return None,
        })
    }
}

impl RoCompat {
    /// What this driver can write.
    pub const WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::VERITY)
        .union(RoCompat::ORPHAN_PRESENT);

    /// The name `dumpe2fs` prints for one bit, e.g. `metadata_csum`.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            RoCompat::SPARSE_SUPER => "sparse_super",
            RoCompat::LARGE_FILE => "large_file",
            RoCompat::HUGE_FILE => "huge_file",
            RoCompat::GDT_CSUM => "uninit_bg",
            RoCompat::DIR_NLINK => "dir_nlink",
            RoCompat::EXTRA_ISIZE => "extra_isize",
            RoCompat::HAS_SNAPSHOT => "snapshot",
            RoCompat::QUOTA => "quota",
            RoCompat::BIGALLOC => "bigalloc",
            RoCompat::METADATA_CSUM => "metadata_csum",
            RoCompat::REPLICA => "replica",
            RoCompat::READONLY => "read-only",
            RoCompat::PROJECT => "project",
            RoCompat::SHARED_BLOCKS => "shared_blocks",
            RoCompat::VERITY => "verity",
            RoCompat::ORPHAN_PRESENT => "orphan_present",
            _ => return None,
        })
    }
}

/// The three feature words together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`
    pub compat: Compat,
    /// `s_feature_incompat`
    pub incompat: Incompat,
    /// `s_feature_ro_compat`
    pub ro_compat: RoCompat,
}

/// What [`Features::check`] found: names of features, as e2fsprogs prints them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureCheck {
    /// The file system cannot be mounted at all because of these.
    pub refuse: Vec<String>,
    /// It can be mounted read-only, and only so, because of these.
    pub read_only: Vec<String>,
}

impl Features {
    /// From the raw words; bits we do not know are kept.
    pub fn from_words(compat: u32, incompat: u32, ro_compat: u32) -> Features {
        Features {
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits_retain(incompat),
            ro_compat: RoCompat::from_bits_retain(ro_compat),
        }
    }

    /// Which features stand in the way of mounting, and of mounting read-write.
    pub fn check(&self) -> FeatureCheck {
        let refuse = self.incompat.bits() & !Incompat::SUPPORTED.bits();
        let ro_incompat = self.incompat.bits() & Incompat::READ_ONLY.bits();
        let ro = self.ro_compat.bits() & !RoCompat::WRITABLE.bits();
        let mut read_only: Vec<String> = bit_names(ro_incompat, incompat_name).collect();
        read_only.extend(bit_names(ro, ro_compat_name));
        FeatureCheck { refuse: bit_names(refuse, incompat_name).collect(), read_only }
    }
}

impl fmt::Display for Features {
    /// All names, space separated, in the order `dumpe2fs` prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = bit_names(self.compat.bits(), compat_name)
            .chain(bit_names(self.incompat.bits(), incompat_name))
            .chain(bit_names(self.ro_compat.bits(), ro_compat_name));
        for (i, name) in names.enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(&name)?;
        }
        Ok(())
    }
}

fn bit_names(word: u32, name: fn(u32) -> String) -> impl Iterator<Item = String> {
    (0..32).filter(move |i| word >> i & 1 == 1).map(name)
}

fn compat_name(bit: u32) -> String {
    let name = Compat::from_bits_retain(1 << bit).name();
    name.map_or_else(|| format!("FEATURE_C{bit}"), str::to_owned)
}

fn incompat_name(bit: u32) -> String {
    let name = Incompat::from_bits_retain(1 << bit).name();
    name.map_or_else(|| format!("FEATURE_I{bit}"), str::to_owned)
}

fn ro_compat_name(bit: u32) -> String {
    let name = RoCompat::from_bits_retain(1 << bit).name();
    name.map_or_else(|| format!("FEATURE_R{bit}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_named() {
        let f = Features::from_words(0x8000_0000, 0x4000_0001 | 0x2_0042, 0x8000_0103);
        let check = f.check();
        assert_eq!(check.refuse, ["compression", "FEATURE_I30"]);
        assert_eq!(check.read_only, ["casefold", "quota", "FEATURE_R31"]);
        assert_eq!(f.compat.bits(), 0x8000_0000);
        assert!(f.to_string().starts_with("FEATURE_C31 compression filetype extent casefold"));
    }

    #[test]
    fn defaults_are_writable() {
        let f = Features::from_words(0x103c, 0x22c2, 0x46b);
        assert_eq!(f.check(), FeatureCheck::default());
    }
}
