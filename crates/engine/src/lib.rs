//! The engine: every policy lives here, and every door (DuckDB, gateway, command line) asks it.
//!
//! ```text
//! Engine ── what a process shares: runtime, stores, metadata, memory, counters
//!   └─ Query ── one statement or one client request: settings, cancellation, counters, uploads
//!        ├─ open ─> Reader     pinned to one version of an object
//!        ├─ create ─> Writer   invisible until it is finished
//!        └─ list, glob, stat, remove, copy, rename; get, put, delete for a gateway
//! ```
//!
//! Verbs are async and take a [`Location`], which [`Engine::locate`] makes from a URL and the
//! options of a secret. A blocking caller runs them on its own thread with [`Query::block_on`]; an
//! async caller awaits them on the engine's runtime ([`Engine::handle`]). Either way requests count
//! for the query, and verbs end when it is cancelled.
//!
//! Decisions are pure functions in files of their own (`retry`, `pace`, `read::plan`,
//! `upload::schedule`, `names::pattern`); the files around them act on what was decided.

mod attempt;
mod budget;
mod cache;
mod cancel;
mod cause;
mod defaults;
mod engine;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generations;
mod latency;
mod limits;
mod location;
mod metadata;
mod names;
mod opener;
mod pace;
mod panics;
mod parallel;
mod query;
mod random;
mod read;
mod renewal;
mod request_log;
mod retry;
mod runtime;
mod slots;
mod spellings;
mod statements;
mod traffic;
mod upload;
#[cfg(test)]
mod waiting;
mod waits;
mod warm;

pub use budget::Budget;
pub use cache::look_at_device as look_at_cache_device;
pub use cache::{CacheDevice, CacheEntry, IsKept, format_device as format_cache_device};
pub use cancel::Cancellation;
pub use cause::Cause;
pub use defaults::{default_here, settings_here};
pub use engine::{Engine, Interrupted};
pub use location::{Location, Mount, Opener, StoreOption};
pub use names::{Change, Entry, GlobPages, Listed, fits_pattern};
pub use opener::{cache_directory, check_ca_file, check_cache, check_proxy, check_settings};
pub use panics::{panic_text, print_panics_without_secrets};
pub use parallel::{OwnFile, ParallelReads, SubRead, SubReader, WRAP_SYSTEMS, WrapSystem};
pub use query::Query;
pub use random::{Random, SeededRandom};
pub use read::filters;
pub use read::{Known, Link, Reader, Stream, Trails};
pub use renewal::CurrentOptions;
pub use request_log::{LoggedRequest, RequestLog};
pub use runtime::{IoRuntime, POLL_INTERVAL};
pub use statements::{STATEMENTS_MAX, Statement};
pub use traffic::TrafficSoFar;
pub use upload::Writer;
pub use waits::thread_waited;

// The nouns of the verbs above, for doors that must not depend on the stores.
pub use penstock_store::{
    ETag, GetRange, GetRequest, ListEntry, ListPage, ListRequest, ObjectMeta, Payload, PutOptions,
    PutResult, RequestEvent, WriteCondition,
};
// In whose words errors advise, for whoever starts the process.
pub use penstock_base::door::{Words, speak};
// What may stand in their URLs and options, for help texts and reference pages.
pub use penstock_device::meter as device_meter;
pub use penstock_store::notes;
pub use penstock_store::open::SCHEMES;
pub use penstock_store::options as store_options;
// How the errors of URLs begin that are none of the Hugging Face Hub's.
pub use penstock_store::hub::{NOT_A_FILE, NOT_A_TYPE};
// Which secret is for which URL.
pub use penstock_store::scope::covered_bytes;
