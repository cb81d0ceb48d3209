//! What happens, as it happens, under the names of ext4's and jbd2's tracepoints.
//!
//! Every room above may emit (see [`event!`]); readers come through [`open`]. Nobody reading costs one
//! relaxed load for each event passed. A reader has a bounded queue of its own: one that is too
//! slow loses events and is told how many, and never holds anybody up.
//!
//! Events are of the process: a daemon serves one mount.

mod format;
mod names;
mod reader;

pub use names::Event;
pub use reader::{Filter, Next, Reader, open};

use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// The events that some reader wants, a bit each.
static WANTED: AtomicU64 = AtomicU64::new(0);

/// Whether anybody wants this event.
#[inline]
pub fn wanted(e: Event) -> bool {
    WANTED.load(Relaxed) & e.bit() != 0
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Num(i128),
    /// A name of ours: letters, digits and underscores.
    Word(&'static str),
}

macro_rules! value_from {
    ($($t:ty),*) => {
        $(impl From<$t> for Value {
            fn from(n: $t) -> Value {
                Value::Num(n as i128)
            }
        })*
    };
}
value_from!(bool, u8, u16, u32, u64, usize, i32, i64);

impl From<&'static str> for Value {
    fn from(s: &'static str) -> Value {
        Value::Word(s)
    }
}

/// Fields of an event, in the order in which they are shown.
pub type Fields = SmallVec<[(&'static str, Value); 8]>;

/// One event that happened.
#[derive(Debug, Clone)]
pub struct Record {
    /// When.
    pub time: SystemTime,
    /// What.
    pub event: Event,
    /// The inode it is about, if one.
    pub ino: Option<u32>,
    /// The rest.
    pub fields: Fields,
}

/// Tells every reader that wants it. Callers use [`event!`], which asks [`wanted`] first.
#[cold]
pub fn emit(event: Event, ino: Option<u32>, fields: &[(&'static str, Value)]) {
    reader::tell(&Record { time: SystemTime::now(), event, ino, fields: fields.into() });
}

/// `event!(Event, ino, name: value, ...)`, or `event!(Event, -, name: value, ...)` where no inode is
/// concerned. The values are evaluated only if somebody wants the event.
macro_rules! trace_event {
    ($event:ident, - $(, $name:ident: $value:expr)* $(,)?) => {
        if $crate::trace::wanted($crate::trace::Event::$event) {
            $crate::trace::emit($crate::trace::Event::$event, None,
                &[$((stringify!($name), $crate::trace::Value::from($value))),*]);
        }
    };
    ($event:ident, $ino:expr $(, $name:ident: $value:expr)* $(,)?) => {
        if $crate::trace::wanted($crate::trace::Event::$event) {
            $crate::trace::emit($crate::trace::Event::$event, Some($ino.0),
                &[$((stringify!($name), $crate::trace::Value::from($value))),*]);
        }
    };
}
pub(crate) use trace_event as event;

/// What tracepoints show as `ret`: 0, or the errno below zero.
pub fn ret<T>(r: &crate::error::Result<T>) -> i32 {
    r.as_ref().map_or_else(|e| -e.errno(), |_| 0)
}

#[cfg(test)]
mod tests;
