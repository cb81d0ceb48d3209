//! The map on real images: e2fsck and debugfs judge.

mod hostile;
mod image;
mod model;
mod tree;
