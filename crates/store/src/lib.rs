//! Named objects, one request at a time: S3 and its kin, Azure Blob, GCS, HTTP, the Hugging Face
//! Hub, files, memory.
//!
//! A store fetches and places objects and says how it likes to be asked ([`Profile`]). It never
//! retries, caches, splits or merges: that is the engine's trade. (A *device* has addresses where a
//! store has names.)

mod account;
pub mod advice;
pub(crate) mod answer;
pub mod azure;
pub mod body;
mod conditions;
pub mod drive;
mod encoded_word;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod http;
pub mod hub;
mod listing;
pub mod local;
pub mod memory;
pub mod near;
pub mod notes;
pub mod observe;
pub mod open;
pub mod options;
pub mod profile;
pub mod progress;
mod random;
pub mod s3;
pub mod scope;
mod stat;
pub mod store;
pub mod streaming;
mod suffixes;
pub mod sums;
pub mod tags;
pub mod types;
mod unpack;
mod unsigned;
pub mod uploads;
mod version_pages;
pub mod versions;
pub mod web;
pub(crate) mod xml;

pub use account::{Account, ContainerEntry};
pub use azure::{AzureAccount, AzureStore};
pub use body::{Body, BodySource};
pub use http::{Connections, HttpClient, HttpOptions, HttpResponse, WarmUp};
pub use local::{FilePiece, LocalStore};
pub use memory::{MemoryAccount, MemoryStore};
pub use observe::{Again, Observer, Reason, RequestEvent, RequestFault, Span};
pub use open::{open, root_of};
pub use options::StoreOptions;
pub use profile::{Capabilities, Profile};
pub use progress::Progress;
pub use s3::{S3Account, S3Store};
pub use store::{Store, UploadId};
pub use streaming::{
    CopiedPart, CopySource, Inflow, PartEntry, PartPlace, Permit, Removed, Revision,
    StreamingStore, UploadEntry, VersionEntry, Versioning, VersionsPage, VersionsRequest,
};
pub use types::*;
pub use web::HttpStore;
