//! S3 in, engine verbs out.

pub mod checksum;
pub mod conditions;
pub mod error;
