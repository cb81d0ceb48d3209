//! What measuring a file system takes, whoever measures: images and mounts of several
//! kinds ([`target`]), fio ([`fio`]), repetitions in an order that is fair ([`plan`]),
//! statistics that say what is noise ([`stats`]), a record of the machine
//! ([`machine`]), results as JSON ([`results`]), tables ([`table`]), charts
//! ([`chart`]) and a page that holds them ([`page`]).
//!
//! Nothing here knows uext4's inside: it is driven as a command, like its peers.
//! Ctrl-C ([`interrupt`]) ends children and leaves the rest to `Drop`: mounts are
//! unmounted, what was measured is written.

pub mod chart;
pub mod command;
pub mod fio;
pub mod image;
pub mod interrupt;
pub mod machine;
pub mod page;
pub mod plan;
pub mod procs;
pub mod results;
pub mod stats;
pub mod svg;
pub mod table;
pub mod target;
pub mod tools;

pub use anyhow::{Context, Error, Result, anyhow, bail, ensure};
