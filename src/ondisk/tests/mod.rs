//! The format against images that the real mke2fs, e2fsck and debugfs made,
//! and the parsers against arbitrary bytes.

mod hostile;
mod image;
mod real;
