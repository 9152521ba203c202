//! The words every other Penstock crate needs, and nothing that performs I/O.
//!
//! Fence: an item enters only when two crates need it. Sockets, files and clocks that tick live
//! elsewhere; here are errors, ranges, sizes, secrets, and the two tables (settings, metrics) from
//! which help texts, DuckDB settings and reference pages are made.

pub mod bytesize;
pub mod door;
pub mod error;
pub mod histogram;
pub mod metrics;
pub mod nearest;
pub mod range;
pub mod redact;
pub mod secret;
pub mod settings;

pub use bytesize::ByteSize;
pub use error::{Error, Kind, Result, Retry};
pub use histogram::Histogram;
pub use metrics::{DeviceMetric, Metric, Metrics, micros};
pub use range::ByteRange;
pub use secret::Secret;
pub use settings::{ServeSettings, Settings};
