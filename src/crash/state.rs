//! One state of the disk that a crash may leave.

use std::fmt;

/// A crash just before an entry of the log, and what became of the writes that were not yet stable.
#[derive(Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct State {
    /// The sequence number of the first entry that did not happen.
    pub at: u64,
    /// The changes that reached the disk though nothing had made them stable, in order of issue.
    pub keep: Vec<u64>,
    /// Of those kept: the ones of which only some 512-byte sectors did, and which (bit `n % 64` for sector `n`).
    pub torn: Vec<(u64, u64)>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.at)?;
        for (i, k) in self.keep.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{k}")?;
            if let Some((_, mask)) = self.torn.iter().find(|t| t.0 == *k) {
                write!(f, "/{mask:x}")?;
            }
        }
        Ok(())
    }
}

impl State {
    /// From what `Display` printed.
    pub fn parse(text: &str) -> Option<State> {
        let (at, rest) = text.split_once(':')?;
        let mut s = State { at: at.parse().ok()?, keep: Vec::new(), torn: Vec::new() };
        for word in rest.split(',').filter(|w| !w.is_empty()) {
            let (seq, mask) = match word.split_once('/') {
                Some((seq, mask)) => (seq, Some(u64::from_str_radix(mask, 16).ok()?)),
                None => (word, None),
            };
            let seq = seq.parse().ok()?;
            s.keep.push(seq);
            s.torn.extend(mask.map(|m| (seq, m)));
        }
        Some(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        for text in ["12:", "12:3", "12:3,4/f0,9", "0:"] {
            assert_eq!(State::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(State::parse("x:1"), None);
        assert_eq!(State::parse("1:1/z"), None);
    }
}
