//! What tests and benchmarks share: fakes with faults, conformance suites, a reference model.
//!
//! Nothing here ships inside the extension or the binary `penstock`. The fakes judge a request with
//! code of their own (signatures, XML, ranges), so that a mistake in a client is not repeated here.

pub mod conform;
pub mod fake;
pub mod fuzzing;
pub mod killed;
pub mod model;
pub mod parquet;
pub mod ramp;
pub mod scratch;
