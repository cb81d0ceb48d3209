//! The hashes of names in hashed directories.

/// `s_def_hash_version` and `hash_version` of an htree root, signedness included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVersion {
    /// 0, and 3 unsigned.
    Legacy,
    /// 1, and 4 unsigned.
    HalfMd4,
    /// 2, and 5 unsigned.
    Tea,
}

/// What is needed to hash the names of one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash {
    version: HashVersion,
    unsigned: bool,
    seed: [u32; 4],
}

/// The largest major hash is kept for "end of directory" (`EXT4_HTREE_EOF_32BIT`).
const EOF_MAJOR: u32 = 0x7fff_ffff << 1;

const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl NameHash {
    /// For a `hash_version` as stored; versions 0 to 2 are signed or not as the
    /// superblock's flags say. `None` for versions not known here (siphash, 6,
    /// needs the directory's encryption key).
    pub fn new(hash_version: u8, fs_unsigned: bool, seed: [u32; 4]) -> Option<NameHash> {
        let version = match hash_version % 3 {
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            _ => HashVersion::Tea,
        };
        (hash_version < 6).then_some(NameHash {
            version,
            unsigned: fs_unsigned || hash_version >= 3,
            seed: if seed == [0; 4] { DEFAULT_SEED } else { seed },
        })
    }

    /// Major and minor hash of a name. The major one is even and never the end-of-directory value.
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let mut buf = self.seed;
                self.words::<8>(name, |input| half_md4(&mut buf, input));
                (buf[1], buf[2])
            }
            HashVersion::Tea => {
                let mut buf = self.seed;
                self.words::<4>(name, |input| tea(&mut buf, input));
                (buf[0], buf[1])
            }
        };
        let major = major & !1;
        (if major == EOF_MAJOR { EOF_MAJOR - 2 } else { major }, minor)
    }

    /// A byte of the name as the platform that made the directory saw a `char`.
    fn char(&self, b: u8) -> u32 {
        if self.unsigned { u32::from(b) } else { i32::from(b as i8) as u32 }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut h0, mut h1) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &b in name {
            let mut h = h1.wrapping_add(h0 ^ self.char(b).wrapping_mul(7_152_373));
            if h & 0x8000_0000 != 0 {
                h = h.wrapping_sub(0x7fff_ffff);
            }
            h1 = h0;
            h0 = h;
        }
        h0 << 1
    }

    /// Gives the name to `f` in groups of `N` words, padded with its remaining length.
    fn words<const N: usize>(&self, name: &[u8], mut f: impl FnMut(&[u32; N])) {
        let mut rest = name;
        while !rest.is_empty() {
            let len = rest.len() as u32;
            let pad = len | len << 8;
            let pad = pad | pad << 16;
            let mut input = [pad; N];
            let (now, later) = rest.split_at(rest.len().min(4 * N));
            for (word, bytes) in input.iter_mut().zip(now.chunks(4)) {
                *word = bytes.iter().fold(pad, |w, &b| self.char(b).wrapping_add(w << 8));
            }
            f(&input);
            rest = later;
        }
    }
}

/// One step of the reduced MD4: three rounds of eight.
fn half_md4(buf: &mut [u32; 4], x: &[u32; 8]) {
    fn select(x: u32, y: u32, z: u32) -> u32 {
        z ^ (x & (y ^ z))
    }
    fn majority(x: u32, y: u32, z: u32) -> u32 {
        (x & y).wrapping_add((x ^ y) & z)
    }
    fn parity(x: u32, y: u32, z: u32) -> u32 {
        x ^ y ^ z
    }
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (select, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (majority, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (parity, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *buf;
    for (mix, k, order, shifts) in ROUNDS {
        for (i, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(x[word]).wrapping_add(k);
            (a, b, c, d) = (d, sum.rotate_left(shifts[i % 4]), b, c);
        }
    }
    for (v, add) in buf.iter_mut().zip([a, b, c, d]) {
        *v = v.wrapping_add(add);
    }
}

/// Sixteen rounds of the Tiny Encryption Algorithm.
fn tea(buf: &mut [u32; 4], key: &[u32; 4]) {
    let [mut b0, mut b1, _, _] = *buf;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mix = |v: u32, k0: u32, k1: u32| {
            (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
        };
        b0 = b0.wrapping_add(mix(b1, key[0], key[1]));
        b1 = b1.wrapping_add(mix(b0, key[2], key[3]));
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Major and minor as `debugfs dx_hash` prints them.
    fn debugfs(alg: &str, seed: &str, name: &str) -> (u32, u32) {
        let request = format!("dx_hash -h {alg} -s {seed} {name}");
        let out = Command::new("/usr/sbin/debugfs").args(["-R", &request]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        let hex = |key: &str| {
            let at = words.iter().rposition(|w| w.contains(key)).expect(key);
            let word = words[at + 1].trim_start_matches("0x").trim_end_matches(')');
            u32::from_str_radix(word, 16).unwrap()
        };
        (hex("is"), hex("minor"))
    }

    #[test]
    fn agrees_with_debugfs() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let seed = [0x6745_2301, 0xefcd_ab89, 0x6745_2301, 0xefcd_ab89];
        let long: String = ('a'..='z').cycle().take(255).collect();
        let names =
            ["a", "ab", "abc", "abcd", "lost+found", "näme-ÿ-ß", &long[..32], &long[..33], &long];
        for (version, alg) in [(0, "legacy"), (1, "half_md4"), (2, "tea")] {
            for seed in [[0; 4], seed] {
                let text =
                    if seed == [0; 4] { "00000000-0000-0000-0000-000000000000" } else { uuid };
                let h = NameHash::new(version, false, seed).unwrap();
                for name in names {
                    assert_eq!(h.hash(name.as_bytes()), debugfs(alg, text, name), "{alg} {name}");
                }
            }
        }
    }

    #[test]
    fn versions() {
        assert_eq!(NameHash::new(6, false, [0; 4]), None);
        assert_eq!(NameHash::new(4, false, [1; 4]), NameHash::new(1, true, [1; 4]));
        let signed = NameHash::new(1, false, [0; 4]).unwrap();
        let unsigned = NameHash::new(1, true, [0; 4]).unwrap();
        assert_eq!(signed.hash(b"plain"), unsigned.hash(b"plain"));
        assert_ne!(signed.hash(b"\xff"), unsigned.hash(b"\xff"));
    }
}
