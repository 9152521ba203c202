//! An S3 and an Azure Blob server for tests and benchmarks: fast, honest, and breakable on demand.
//!
//! They keep what they are given in memory or in a directory, verify signatures with code of their
//! own, answer as the real services do in the corners that clients depend on (opaque markers,
//! discarded blocks, quoted tags), and break as told by a [`FaultPlan`]. Buckets and containers
//! appear on first use, but for names that begin with `missing`, which never do.
//!
//! They are not a service to rely on: versions are kept in memory only, there is no access control
//! beyond one key, and no expiry.
//!
//! On the same port, unsigned: `GET /_penstock/stats`, `GET /_penstock/requests?n=100`,
//! `POST /_penstock/reset`, `POST /_penstock/faults` (one fault a line; they add up),
//! `PUT /_penstock/faults` (these in place of all others), `DELETE /_penstock/faults`.

pub mod admin;
pub mod azure;
pub mod bend;
pub mod clock;
pub mod codec;
pub mod conditions;
pub mod data;
pub mod digest;
pub mod exchange;
pub mod fault;
pub mod generations;
pub mod history;
pub mod http;
pub mod link;
pub mod listing;
pub mod options;
pub mod range;
pub mod refusal;
pub mod s3;
pub mod server;
pub mod stats;
pub mod vault;
pub mod xml;

pub use fault::{Action, FaultPlan, FaultSpec};
pub use link::LinkOptions;
pub use options::FakeOptions;
pub use server::{FakeAzure, FakeHandle, FakeS3, Protocol};
pub use stats::{RequestRecord, StatsSnapshot};
