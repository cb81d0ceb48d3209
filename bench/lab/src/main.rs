//! `uext4 lab` and `uext4 top`.

fn main() {}
