//! An event as a line.

use super::{Record, Value};
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

impl Record {
    fn seconds(&self) -> String {
        let d = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}.{:06}", d.as_secs(), d.subsec_micros())
    }

    /// As ftrace shows it: the time, the name, fields and values.
    pub fn text(&self) -> String {
        let mut s = format!("{}: {}:", self.seconds(), self.event.name());
        if let Some(i) = self.ino {
            let _ = write!(s, " ino {i}");
        }
        for (name, v) in &self.fields {
            let _ = match v {
                Value::Num(n) => write!(s, " {name} {n}"),
                Value::Word(w) => write!(s, " {name} {w}"),
            };
        }
        s
    }

    /// One JSON object. Names and words need no escapes.
    pub fn json(&self) -> String {
        let mut s = format!("{{\"time\":{},\"event\":\"{}\"", self.seconds(), self.event.name());
        if let Some(i) = self.ino {
            let _ = write!(s, ",\"ino\":{i}");
        }
        for (name, v) in &self.fields {
            let _ = match v {
                Value::Num(n) => write!(s, ",\"{name}\":{n}"),
                Value::Word(w) => write!(s, ",\"{name}\":\"{w}\""),
            };
        }
        s.push('}');
        s
    }
}

/// What a reader is told that was too slow.
pub(super) fn lost(n: u64, json: bool) -> String {
    if json { format!("{{\"lost\":{n}}}") } else { format!("# {n} events lost") }
}
