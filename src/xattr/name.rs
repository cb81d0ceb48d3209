//! Attribute names: the prefixes that ext4 stores as a number. Pure.

use crate::error::{Error, Result};

/// Longest full name, in bytes (`XATTR_NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// `user.`
pub const USER: u8 = 1;
/// `system.posix_acl_access`
pub const ACL_ACCESS: u8 = 2;
/// `system.posix_acl_default`
pub const ACL_DEFAULT: u8 = 3;
/// `trusted.`
pub const TRUSTED: u8 = 4;
/// `security.`
pub const SECURITY: u8 = 6;
/// `system.`: only `system.data`, the tail of inline data, which is no attribute to anybody else.
pub const SYSTEM: u8 = 7;

/// The name of the entry that holds inline data.
pub const DATA: &[u8] = b"data";

/// Number and rest of a full name.
///
/// # Errors
/// `Range` if it is empty or too long, `Invalid` if nothing follows the prefix, `NotSupported` for
/// a prefix that ext4 does not have.
pub fn split(full: &[u8]) -> Result<(u8, &[u8])> {
    if full.is_empty() || full.len() > NAME_MAX {
        return Err(Error::Range);
    }
    if full.contains(&0) {
        return Err(Error::Invalid("attribute name with a NUL"));
    }
    match full {
        b"system.posix_acl_access" => return Ok((ACL_ACCESS, b"")),
        b"system.posix_acl_default" => return Ok((ACL_DEFAULT, b"")),
        _ => {}
    }
    for index in [USER, TRUSTED, SECURITY] {
        if let Some(rest) = full.strip_prefix(prefix(index).unwrap_or_default()) {
            if rest.is_empty() {
                return Err(Error::Invalid("attribute name"));
            }
            return Ok((index, rest));
        }
    }
    Err(Error::NotSupported)
}

/// What stands for a number in a full name; `None` for numbers that are not shown.
pub fn prefix(index: u8) -> Option<&'static [u8]> {
    Some(match index {
        USER => b"user.",
        ACL_ACCESS => b"system.posix_acl_access",
        ACL_DEFAULT => b"system.posix_acl_default",
        TRUSTED => b"trusted.",
        SECURITY => b"security.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(split(b"user.a").unwrap(), (USER, &b"a"[..]));
        assert_eq!(split(b"system.posix_acl_default").unwrap(), (ACL_DEFAULT, &b""[..]));
        assert!(matches!(split(b"user."), Err(Error::Invalid(_))));
        assert!(matches!(split(b"bogus.x"), Err(Error::NotSupported)));
        assert!(matches!(split(b"system.data"), Err(Error::NotSupported)));
        let mut long = b"user.".to_vec();
        long.resize(255, b'n');
        assert!(split(&long).is_ok());
        long.push(b'n');
        assert!(matches!(split(&long), Err(Error::Range)));
        assert!(matches!(split(b""), Err(Error::Range)));
    }
}
