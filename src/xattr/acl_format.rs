//! POSIX access control lists as values: the two encodings and the arithmetic between a list and a
//! file mode. Pure; the rules are POSIX 1003.1e draft 17 as Linux applies them.

use crate::{
    error::{Error, Result},
    ondisk::bytes::{le16, le32},
};
use smallvec::SmallVec;

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// The file's owner.
    UserObj,
    /// The user with this id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// The group with this id.
    Group(u32),
    /// The upper bound of what `User`, `GroupObj` and `Group` entries grant.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry: `perm` is three bits, read 4, write 2, execute 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: Tag,
    /// What they may do.
    pub perm: u16,
}

/// An access control list, in the order it was given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// The entries.
    pub entries: SmallVec<[AclEntry; 8]>,
}

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const NO_ID: u32 = u32::MAX;
const BAD_ACL: Error = Error::Invalid("access control list");

impl Tag {
    fn parts(self) -> (u16, Option<u32>) {
        match self {
            Tag::UserObj => (0x01, None),
            Tag::User(id) => (0x02, Some(id)),
            Tag::GroupObj => (0x04, None),
            Tag::Group(id) => (0x08, Some(id)),
            Tag::Mask => (0x10, None),
            Tag::Other => (0x20, None),
        }
    }

    /// `id` is called only for the tags that carry one.
    fn from_parts(tag: u16, id: impl FnOnce() -> Option<u32>) -> Option<Tag> {
        Some(match tag {
            0x01 => Tag::UserObj,
            0x02 => Tag::User(id()?),
            0x04 => Tag::GroupObj,
            0x08 => Tag::Group(id()?),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }
}

impl Acl {
    /// From the value user space passes as `system.posix_acl_*` (version 2). `None`: a list
    /// without entries, which means "remove it".
    ///
    /// # Errors
    /// `NotSupported` for another version, `Invalid` for anything malformed or that breaks the
    /// rules of [`Acl::check`].
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>> {
        if le32(value, 0).ok_or(BAD_ACL)? != XATTR_VERSION {
            return Err(Error::NotSupported);
        }
        let (entries, []) = value.get(4..).unwrap_or_default().as_chunks::<8>() else {
            return Err(BAD_ACL);
        };
        let mut acl = Acl::default();
        for e in entries {
            let tag = le16(e, 0).ok_or(BAD_ACL)?;
            let perm = le16(e, 2).ok_or(BAD_ACL)?;
            let id = || le32(e, 4).filter(|&id| id != NO_ID);
            let tag = Tag::from_parts(tag, id).ok_or(BAD_ACL)?;
            acl.entries.push(AclEntry { tag, perm });
        }
        if acl.entries.is_empty() {
            return Ok(None);
        }
        acl.check()?;
        Ok(Some(acl))
    }

    /// As user space gets it (version 2).
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(4 + 8 * self.entries.len());
        v.extend_from_slice(&XATTR_VERSION.to_le_bytes());
        for e in &self.entries {
            let (tag, id) = e.tag.parts();
            v.extend_from_slice(&tag.to_le_bytes());
            v.extend_from_slice(&e.perm.to_le_bytes());
            v.extend_from_slice(&id.unwrap_or(NO_ID).to_le_bytes());
        }
        v
    }

    /// From the value ext4 stores (version 1, ids only where there is one); `None` if malformed.
    pub fn from_disk(value: &[u8]) -> Option<Acl> {
        if le32(value, 0)? != DISK_VERSION {
            return None;
        }
        let mut acl = Acl::default();
        let mut at = 4;
        while at < value.len() {
            let (tag, perm) = (le16(value, at)?, le16(value, at + 2)?);
            at += 4;
            let tag = Tag::from_parts(tag, || {
                let id = le32(value, at);
                at += 4;
                id
            })?;
            acl.entries.push(AclEntry { tag, perm });
        }
        Some(acl)
    }

    /// As ext4 stores it.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(4 + 8 * self.entries.len());
        v.extend_from_slice(&DISK_VERSION.to_le_bytes());
        for e in &self.entries {
            let (tag, id) = e.tag.parts();
            v.extend_from_slice(&tag.to_le_bytes());
            v.extend_from_slice(&e.perm.to_le_bytes());
            if let Some(id) = id {
                v.extend_from_slice(&id.to_le_bytes());
            }
        }
        v
    }

    /// Whether the list is well-formed: owner, named users, group, named groups, mask (needed if
    /// there is a named entry), others, in that order; permissions of three bits.
    pub fn check(&self) -> Result<()> {
        #[derive(PartialEq)]
        enum Want {
            Owner,
            Users,
            Groups,
            Other,
            Nothing,
        }
        let mut want = Want::Owner;
        let mut needs_mask = false;
        for e in &self.entries {
            if e.perm & !7 != 0 {
                return Err(BAD_ACL);
            }
            match (e.tag, &want) {
                (Tag::UserObj, Want::Owner) => want = Want::Users,
                (Tag::User(id), Want::Users) if id != NO_ID => needs_mask = true,
                (Tag::GroupObj, Want::Users) => want = Want::Groups,
                (Tag::Group(id), Want::Groups) if id != NO_ID => needs_mask = true,
                (Tag::Mask, Want::Groups) => want = Want::Other,
                (Tag::Other, Want::Other) => want = Want::Nothing,
                (Tag::Other, Want::Groups) if !needs_mask => want = Want::Nothing,
                _ => return Err(BAD_ACL),
            }
        }
        if want == Want::Nothing { Ok(()) } else { Err(BAD_ACL) }
    }

    /// The nine permission bits this list shows as, and whether they say all of it (then no list
    /// need be stored).
    pub fn equivalent_mode(&self) -> (u16, bool) {
        let (mut mode, mut equivalent) = (0, true);
        for e in &self.entries {
            let perm = e.perm & 7;
            match e.tag {
                Tag::UserObj => mode |= perm << 6,
                Tag::GroupObj => mode |= perm << 3,
                Tag::Other => mode |= perm,
                Tag::Mask => {
                    mode = (mode & !0o070) | perm << 3;
                    equivalent = false;
                }
                Tag::User(_) | Tag::Group(_) => equivalent = false,
            }
        }
        (mode, equivalent)
    }

    /// The list after chmod to `mode`: owner and others change, and the mask, or the group where
    /// there is no mask. `false` if the list has neither (it is malformed).
    #[must_use]
    pub fn chmod(&mut self, mode: u16) -> bool {
        let has_mask = self.entries.iter().any(|e| e.tag == Tag::Mask);
        let mut done = false;
        for e in &mut self.entries {
            match e.tag {
                Tag::UserObj => e.perm = mode >> 6 & 7,
                Tag::Other => e.perm = mode & 7,
                Tag::Mask => {
                    e.perm = mode >> 3 & 7;
                    done = true;
                }
                Tag::GroupObj if !has_mask => {
                    e.perm = mode >> 3 & 7;
                    done = true;
                }
                Tag::GroupObj | Tag::User(_) | Tag::Group(_) => {}
            }
        }
        done
    }

    /// Turns a directory's default list into the access list of a file created in it with `mode`
    /// (umask not applied). Returns the file's mode and whether it says all of the list; `None`
    /// if the list is malformed.
    pub fn inherit(&mut self, mode: u16) -> Option<(u16, bool)> {
        let has_mask = self.entries.iter().any(|e| e.tag == Tag::Mask);
        let (mut perms, mut equivalent, mut group_seen) = (mode & 0o777, true, false);
        for e in &mut self.entries {
            match e.tag {
                Tag::UserObj => {
                    e.perm &= perms >> 6 | !7;
                    perms &= e.perm << 6 | !0o700;
                }
                Tag::Other => {
                    e.perm &= perms | !7;
                    perms &= e.perm | !7;
                }
                Tag::Mask => {
                    e.perm &= perms >> 3 | !7;
                    perms &= e.perm << 3 | !0o070;
                    (equivalent, group_seen) = (false, true);
                }
                Tag::GroupObj if !has_mask => {
                    e.perm &= perms >> 3 | !7;
                    perms &= e.perm << 3 | !0o070;
                    group_seen = true;
                }
                Tag::GroupObj => {}
                Tag::User(_) | Tag::Group(_) => equivalent = false,
            }
        }
        group_seen.then_some(((mode & !0o777) | (perms & 0o777), equivalent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(Tag, u16)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
    }

    fn sample() -> Acl {
        acl(&[
            (Tag::UserObj, 6),
            (Tag::User(1), 7),
            (Tag::GroupObj, 4),
            (Tag::Group(5), 4),
            (Tag::Mask, 7),
            (Tag::Other, 4),
        ])
    }

    #[test]
    fn encodings_are_the_published_ones() {
        // As `setfacl -m u:1:rwx,g:5:r` leaves them (getfattr -e hex, debugfs ea_get).
        let x = sample().to_xattr();
        assert_eq!(x.len(), 4 + 6 * 8);
        assert_eq!(&x[..20], b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x07\0\x01\0\0\0");
        let d = sample().to_disk();
        assert_eq!(d.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(&d[..16], b"\x01\0\0\0\x01\0\x06\0\x02\0\x07\0\x01\0\0\0");
        assert_eq!(Acl::from_xattr(&x).unwrap(), Some(sample()));
        assert_eq!(Acl::from_disk(&d), Some(sample()));
    }

    #[test]
    fn malformed_lists_are_refused() {
        assert!(matches!(Acl::from_xattr(b""), Err(Error::Invalid(_))));
        assert!(matches!(Acl::from_xattr(b"\x01\0\0\0"), Err(Error::NotSupported)));
        assert!(matches!(Acl::from_xattr(b"\x02\0\0\0\x01"), Err(Error::Invalid(_))));
        assert!(matches!(Acl::from_xattr(b"\x02\0\0\0"), Ok(None)));
        let named_without_mask =
            acl(&[(Tag::UserObj, 6), (Tag::User(1), 7), (Tag::GroupObj, 4), (Tag::Other, 4)]);
        assert!(named_without_mask.check().is_err());
        let twice =
            acl(&[(Tag::UserObj, 6), (Tag::UserObj, 6), (Tag::GroupObj, 4), (Tag::Other, 4)]);
        assert!(twice.check().is_err());
        assert!(acl(&[(Tag::UserObj, 8), (Tag::GroupObj, 4), (Tag::Other, 4)]).check().is_err());
        assert!(acl(&[(Tag::UserObj, 7), (Tag::GroupObj, 4), (Tag::Other, 4)]).check().is_ok());
        assert_eq!(Acl::from_disk(b"\x01\0\0\0\x02\0\x07\0"), None);
        assert_eq!(Acl::from_disk(b"\x01\0\0\0\x02\0\x07"), None);
    }

    #[test]
    fn mode_arithmetic() {
        assert_eq!(sample().equivalent_mode(), (0o674, false));
        let mut a = sample();
        assert!(a.chmod(0o640));
        assert_eq!(a.equivalent_mode(), (0o640, false));
        assert_eq!(
            a.entries[2].perm, 4,
            "chmod changes the mask, not the group, where there is one"
        );
        // d:u:1:rwx,d:g:4:rx,d:m::rx on a 755 directory; a file created 0666.
        let mut d = acl(&[
            (Tag::UserObj, 7),
            (Tag::User(1), 7),
            (Tag::GroupObj, 5),
            (Tag::Group(4), 5),
            (Tag::Mask, 5),
            (Tag::Other, 5),
        ]);
        assert_eq!(d.inherit(0o100666), Some((0o100644, false)));
        assert_eq!(d.entries[4].perm, 4);
        let mut plain = acl(&[(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 0)]);
        assert_eq!(plain.inherit(0o102777), Some((0o102750, true)));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(v in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Acl::from_disk(&v);
            if let Ok(Some(a)) = Acl::from_xattr(&v) {
                prop_assert_eq!(a.to_xattr(), v);
                let disk = a.to_disk();
                prop_assert_eq!(Acl::from_disk(&disk), Some(a));
            }
        }
    }
}
