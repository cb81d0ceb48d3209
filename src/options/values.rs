//! The value types of mount options, and how their text is read. Every error
//! says what was expected; the caller adds the option's name.

use std::time::Duration;

/// Declares an enum whose variants have one spelling each, with `parse` and `as_str`.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $name {
            /// Every spelling, in the order of declaration.
            pub const SPELLINGS: &'static [&'static str] = &[$($text),+];
            /// The spelling of this value.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
            /// The value spelled `text`; the error lists the possible ones.
            pub fn parse(text: &str) -> Result<$name, String> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err(format!("must be one of {}", $name::SPELLINGS.join(", "))),
                }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

choice!(
    /// `data=`: what the journal promises about file data.
    DataMode {
        /// Metadata and data both go through the journal.
        Journal = "journal",
        /// Data reaches its blocks before the transaction that maps them commits.
        Ordered = "ordered",
        /// No order between data and metadata.
        Writeback = "writeback",
    }
);
choice!(
    /// `errors=`: what to do when the file system contradicts itself.
    ErrorsMode {
        /// Note it and go on.
        Continue = "continue",
        /// Become read-only.
        RemountRo = "remount-ro",
        /// Stop at once: here the daemon dies as if the machine had.
        Panic = "panic",
    }
);
choice!(
    /// `data_err=`: what a failed write of ordered data does.
    DataErr {
        /// Log it.
        Ignore = "ignore",
        /// Abort the journal.
        Abort = "abort",
    }
);
choice!(
    /// Locking of direct reads beside other I/O on the same inode.
    DioreadMode {
        /// Direct reads take the inode's I/O lock exclusively (`dioread_lock`).
        Lock = "lock",
        /// Direct reads share the inode's I/O lock (`dioread_shared`).
        Shared = "shared",
        /// Direct reads take no inode lock (`dioread_nolock`).
        Nolock = "nolock",
    }
);
choice!(
    /// How many pages one write-out pass may take.
    PolicyName {
        /// `nr_to_write` as given.
        None = "none",
        /// Count the contiguous dirty pages, up to the cap.
        DirtyPages = "dirty_pages",
        /// Eight times `nr_to_write`, up to the cap.
        Fixed8 = "fixed8",
        /// The whole contiguous dirty range, up to the cap.
        Extent = "extent",
    }
);
choice!(
    /// How requests reach the device.
    EngineName {
        /// The best that the kernel allows.
        Auto = "auto",
        /// In the calling thread.
        Sync = "sync",
        /// A pool of threads.
        Threads = "threads",
        /// The kernel's io_uring.
        IoUring = "io_uring",
    }
);
choice!(
    /// Whether the host's page cache stands between the daemon and the image.
    Backing {
        /// Through the host's page cache.
        Buffered = "buffered",
        /// Around it (O_DIRECT).
        Direct = "direct",
    }
);
choice!(
    /// When reading a file updates its access time.
    Atime {
        /// Never.
        Noatime = "noatime",
        /// When it is not newer than the last change, or a day old.
        Relatime = "relatime",
        /// Always.
        Strictatime = "strictatime",
    }
);

/// A whole number between `min` and `max`; decimal, or hexadecimal after 0x.
pub fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse::<u64>().ok(),
    };
    match parsed {
        Some(n) if (min..=max).contains(&n) => Ok(n),
        Some(_) if max == u64::MAX => Err(format!("must be at least {min}")),
        Some(_) => Err(format!("must be between {min} and {max}")),
        None => Err("must be a whole number".into()),
    }
}

/// [`number`] within `u32`.
pub fn number32(text: &str, min: u32, max: u32) -> Result<u32, String> {
    number(text, min.into(), max.into())
        .and_then(|n| u32::try_from(n).map_err(|_| "is too large".to_string()))
}

/// A number of bytes with an optional suffix k, m, g or t (powers of 1024).
pub fn bytes(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("must be a number of bytes, with an optional suffix k, m, g or t".into()),
    };
    let n: u64 = digits
        .parse()
        .map_err(|_| "must be a number of bytes, with an optional suffix k, m, g or t")?;
    match n.checked_mul(1 << shift) {
        Some(n) if (min..=max).contains(&n) => Ok(n),
        _ if max == u64::MAX => Err(format!("must be at least {}", show_bytes(min))),
        _ => Err(format!("must be between {} and {}", show_bytes(min), show_bytes(max))),
    }
}

/// The shortest text that [`bytes`] reads back as `n`.
pub fn show_bytes(n: u64) -> String {
    for (shift, suffix) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if n != 0 && n.trailing_zeros() >= shift {
            return format!("{}{suffix}", n >> shift);
        }
    }
    n.to_string()
}

/// Seconds, whole or decimal, up to a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a number of seconds, at most 86400".to_string();
    let ok = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let n: f64 = if ok { text.parse().map_err(|_| wrong())? } else { return Err(wrong()) };
    if n > 86_400.0 { Err(wrong()) } else { Ok(Duration::from_secs_f64(n)) }
}

/// The text that [`seconds`] reads back as `d`.
pub fn show_seconds(d: Duration) -> String {
    if d.subsec_nanos() == 0 { d.as_secs().to_string() } else { d.as_secs_f64().to_string() }
}

/// A flag with an optional value: nothing means 1; 0 or a number.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "" => Ok(true),
        _ => number(text, 0, u32::MAX.into()).map(|n| n != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(number("0x10", 0, 99), Ok(16));
        assert_eq!(number("17", 17, 17), Ok(17));
        assert!(number("18", 0, 17).unwrap_err().contains("between 0 and 17"));
        for bad in ["", "-1", "+1", "1.5", "one", "99999999999999999999", "0x"] {
            assert!(number(bad, 0, u64::MAX).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_take_suffixes_and_never_overflow() {
        assert_eq!(bytes("1m", 0, u64::MAX), Ok(1 << 20));
        assert_eq!(bytes("3GiB", 0, u64::MAX), Ok(3 << 30));
        assert!(bytes("99999999999t", 0, u64::MAX).is_err());
        assert!(bytes("k", 0, u64::MAX).is_err());
        assert!(bytes("1x", 0, u64::MAX).is_err());
        for n in [0, 1, 1023, 1024, 3 << 20, 5 << 40, (1 << 40) + 1] {
            assert_eq!(bytes(&show_bytes(n), 0, u64::MAX), Ok(n));
        }
    }

    #[test]
    fn times_read_back() {
        for d in [Duration::ZERO, Duration::from_secs(5), Duration::from_millis(250)] {
            assert_eq!(seconds(&show_seconds(d)), Ok(d));
        }
        for bad in ["", "-1", "1e9", "inf", "NaN", "86401", "."] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
