//! Extended attributes and access control lists.

pub mod acl_format;
pub mod name;
