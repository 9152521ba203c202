//! A thin HTTP/1.1 client for reading with one copy.
//!
//! Bytes of a body go from the socket into the caller's buffer, and a payload goes out from where
//! it lies. The client decides about connections (reuse, proxy, TLS, time limits) and nothing
//! else: what a status means is decided in [`crate::answer`], and retries are the engine's.

mod addresses;
mod body;
mod chain;
mod chunked;
mod client;
mod connect;
mod connection;
mod credentials;
mod flowing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod head;
mod options;
mod pool;
mod proxy;
mod socket;
mod stall;
mod tls;
#[cfg(test)]
#[path = "tests/token_service.rs"]
pub(crate) mod token_service;
mod trace;
mod warming;

pub use body::HttpBody;
pub(crate) use chain::{Chain, OnFailure, told};
pub use client::{HttpClient, HttpResponse};
pub use credentials::{credential_context, credential_error};
pub(crate) use head::content_length;
pub use options::HttpOptions;
pub use proxy::{Proxy, ProxyChoice};
pub(crate) use proxy::{bare_host, explicit_port};
pub use warming::{Connections, WarmUp};
