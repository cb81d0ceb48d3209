//! The option table as text: `-o help`, and the manual page's list.

use super::{Arg, Group, MountOptions, Row, TABLE};
use std::fmt::Write;

const SECTIONS: &[(Group, &str)] = &[
    (Group::Ext4, "Options of ext4"),
    (Group::Generic, "Options of every file system"),
    (Group::Fuse, "Options of FUSE"),
    (Group::Uext4, "Options of uext4"),
    (Group::Ignored, "Accepted with a warning"),
    (Group::Silent, "Accepted and left to mount(8)"),
];

fn default_of(row: &Row) -> String {
    let shown = row.show.map(|show| show(&MountOptions::default())).unwrap_or_default();
    if shown.is_empty() { row.default.to_string() } else { shown }
}

fn spelled(row: &Row) -> Vec<String> {
    let whole = |s: &super::Spelling| match s.arg {
        Arg::None => s.name.to_string(),
        Arg::Required(what) => format!("{}={what}", s.name),
        Arg::Optional("...") => s.name.to_string(),
        Arg::Optional(what) => format!("{}[={what}]", s.name),
    };
    row.spellings.iter().map(whole).collect()
}

/// Breaks `text` into lines of at most `width` characters, each after `indent`.
fn wrap(out: &mut String, indent: &str, width: usize, text: &str) {
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            let _ = writeln!(out, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{indent}{line}");
}

/// What `-o help` prints: every option with its default.
pub fn help() -> String {
    let mut out = String::from(
        "Mount options, separated by commas. In brackets: the default; * marks what\n\
         mount -o remount may change.\n",
    );
    for (group, title) in SECTIONS {
        let _ = writeln!(out, "\n{title}:");
        for row in TABLE.iter().filter(|r| r.group == *group) {
            if matches!(group, Group::Ignored | Group::Silent) {
                wrap(&mut out, "  ", 76, &spelled(row).join(", "));
                continue;
            }
            let mut head = spelled(row).join(", ");
            let default = default_of(row);
            if !default.is_empty() {
                let _ = write!(head, "  [{default}]");
            }
            if row.live {
                head.push_str(" *");
            }
            wrap(&mut out, "  ", 76, &head);
            wrap(&mut out, "      ", 72, row.help);
        }
    }
    out.push_str("  x-*, X-*\n");
    out
}

/// The options as roff, for the manual page.
pub fn manual() -> String {
    let escape = |s: &str| s.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.");
    let mut out = String::new();
    for (group, title) in SECTIONS {
        let _ = writeln!(out, ".SS \"{title}\"");
        for row in TABLE.iter().filter(|r| r.group == *group) {
            if matches!(group, Group::Ignored | Group::Silent) {
                let mut names = String::new();
                wrap(&mut names, "", 76, &spelled(row).join(", "));
                let _ = write!(out, ".PP\n{}\n{}", escape(row.help), escape(&names));
                continue;
            }
            let names: Vec<String> =
                spelled(row).iter().map(|s| format!("\\fB{}\\fR", escape(s))).collect();
            let _ = writeln!(out, ".TP\n{}\n{}", names.join(", "), escape(row.help));
            let default = default_of(row);
            if !default.is_empty() {
                let _ = writeln!(out, "Default: {}.", escape(&default));
            }
            if !row.live {
                let _ = writeln!(out, "Cannot be changed by a remount.");
            }
        }
    }
    out
}
