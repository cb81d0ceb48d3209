//! The map on real images: e2fsck and debugfs judge.

mod image;
mod model;
