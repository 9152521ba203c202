//! The exam that every [`penstock_store::Store`] passes.
//!
//! A case asks for what the contract in `penstock_store::store` promises and nothing more. What a
//! store claims in its [`penstock_store::Capabilities`] must work; what it does not claim must
//! answer `Unsupported`. Each case works below a prefix of its own, so that one bucket serves all.
//!
//! [`crate::store_conformance!`] makes one test of each case; [`run_all`] runs them in one go.

use futures_util::future::BoxFuture;
use penstock_store::Store;
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub mod errors;
pub mod keys;
pub mod list;
pub mod read;
pub mod support;
pub mod upload;
pub mod write;

/// Longest time of one case; a store that hangs fails by name instead of hanging the run.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(120);

/// The store under examination and what a case needs besides.
pub struct Subject {
    /// The store under examination.
    pub store: Arc<dyn Store>,
    /// Places the objects that cases read. The same as `store` unless that cannot write.
    pub seeder: Arc<dyn Store>,
    /// Texts that must appear in no error and no `Debug` output.
    pub secrets: Vec<String>,
    /// Every key of this case starts with it.
    pub prefix: String,
    refuses: fn(&str) -> bool,
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// Examines a store that can write what its cases read.
    pub fn new(store: Arc<dyn Store>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let run = NEXT.fetch_add(1, Ordering::Relaxed);
        // A file system has no names such as `a//b`; its store must refuse them, never alter them.
        let refuses: fn(&str) -> bool =
            if store.root().starts_with("file:") { not_a_file_name } else { |_| false };
        Subject {
            seeder: store.clone(),
            store,
            secrets: Vec::new(),
            prefix: format!("conform-{}-{run}/", std::process::id()),
            refuses,
            guards: Vec::new(),
        }
    }

    /// Lets another store over the same objects place what the cases read.
    #[must_use]
    pub fn seeded_by(mut self, seeder: Arc<dyn Store>) -> Self {
        self.seeder = seeder;
        self
    }

    /// Adds a text that no error and no `Debug` output may contain.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Keeps something alive as long as the case runs: a server, a directory.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    /// Names the keys that the service behind this store cannot hold. The store must refuse them
    /// with `Invalid` or `Unsupported`.
    #[must_use]
    pub fn refusing(mut self, refuses: fn(&str) -> bool) -> Self {
        self.refuses = refuses;
        self
    }

    /// Whether this store may refuse the key (given without the case's prefix).
    pub fn may_refuse(&self, key: &str) -> bool {
        (self.refuses)(key)
    }

    /// A key of this case.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl From<Arc<dyn Store>> for Subject {
    fn from(store: Arc<dyn Store>) -> Self {
        Subject::new(store)
    }
}

/// What Azure cannot name: servers resolve `.` and `..` between slashes, and the service turns `\\`
/// into `/`.
pub fn is_no_blob_name(key: &str) -> bool {
    key.contains('\\') || key.split('/').any(|part| part == "." || part == "..")
}

fn not_a_file_name(key: &str) -> bool {
    key.split('/').any(|segment| matches!(segment, "" | "." | "..") || segment.len() > 255)
        || key.contains('\\')
        || key.contains('\0')
}

/// One case: takes the subject, panics with the reason when the store fails it.
pub type Case = fn(Subject) -> BoxFuture<'static, ()>;

/// Calls a macro with the list of all cases: `callback! { (args) group::case ... }`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_store_case {
    ($($callback:ident)::+, $($args:tt)*) => {
        $($callback)::+! { ($($args)*)
            read::get_whole_object
            read::get_empty_object
            read::get_bounded_ranges
            read::get_from_an_offset
            read::get_suffix_ranges
            read::get_ranges_of_an_empty_object
            read::get_in_short_reads
            read::get_large_object
            read::get_many_at_once
            read::get_if_match
            read::get_if_match_after_overwrite
            read::get_if_none_match
            read::get_if_modified_since
            read::get_conditions_of_empty_ranges
            read::stat_tells_size_and_tag
            read::half_read_body_dropped
            read::requests_dropped_midway
            write::put_round_trip
            write::put_payload_in_pieces
            write::put_overwrites_whole
            write::put_content_type_and_metadata
            write::put_if_absent
            write::put_if_match
            write::delete_one
            write::delete_if_match
            write::delete_batch
            write::copy_object
            write::copy_conditional
            write::etags_agree
            keys::raw_keys
            keys::similar_keys_stay_apart
            keys::longest_key
            list::list_order
            list::list_prefix
            list::list_delimiter
            list::list_start_after
            list::list_start_after_inside_a_prefix
            list::list_pages
            list::list_pages_with_delimiter
            list::list_metadata
            list::list_nothing
            upload::upload_one_part
            upload::upload_many_parts
            upload::upload_out_of_order
            upload::upload_part_sent_again
            upload::upload_invisible_until_complete
            upload::upload_abort_leaves_nothing
            upload::upload_completed_twice
            upload::upload_conditional_complete
            upload::upload_missing_part
            upload::two_uploads_of_one_key
            errors::missing_object
            errors::unclaimed_is_unsupported
            errors::profile_is_sound
            errors::debug_shows_no_secret
        }
    };
}

/// Makes one `#[tokio::test]` of each case, in a module named `$module`.
///
/// `$factory` is an async function or closure that makes a [`Subject`], or an `Arc<dyn Store>`.
/// It is called once for each case.
#[macro_export]
macro_rules! store_conformance {
    ($module:ident, $factory:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::for_each_store_case! { $crate::store_conformance_tests, $factory }
        }
    };
}

/// The body of [`store_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! store_conformance_tests {
    (($factory:expr) $($group:ident :: $case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let subject: $crate::conform::store::Subject = ($factory)().await.into();
                let case = $crate::conform::store::$group::$case(subject);
                $crate::conform::store::within_time(stringify!($case), case).await;
            }
        )*
    };
}

macro_rules! case_table {
    (() $($group:ident :: $case:ident)*) => {
        /// Every case with its name.
        pub const CASES: &[(&str, Case)] = &[
            $((stringify!($case), |subject| Box::pin($group::$case(subject))),)*
        ];
    };
}

crate::for_each_store_case! { case_table, }

/// Runs one case, and fails it when it takes longer than [`CASE_TIME_MAX`].
pub async fn within_time(name: &str, case: impl Future<Output = ()>) {
    if tokio::time::timeout(CASE_TIME_MAX, case).await.is_err() {
        panic!("case {name} did not end within {CASE_TIME_MAX:?}");
    }
}

/// Runs every case, each on a subject of its own, and returns the names of those that failed.
/// What a failed case complains of is printed by its panic.
pub async fn failures<F>(make: impl Fn() -> F) -> Vec<&'static str>
where
    F: Future<Output: Into<Subject>>,
{
    failures_among(|_| true, make).await
}

/// The same for those cases that `chosen` picks by name.
pub async fn failures_among<F>(
    chosen: impl Fn(&str) -> bool,
    make: impl Fn() -> F,
) -> Vec<&'static str>
where
    F: Future<Output: Into<Subject>>,
{
    let mut failed = Vec::new();
    for (name, case) in CASES.iter().filter(|(name, _)| chosen(name)) {
        let subject = make().await.into();
        if tokio::spawn(within_time(name, case(subject))).await.is_err() {
            failed.push(*name);
        }
    }
    failed
}

/// Runs every case and panics with the names of those that failed.
pub async fn run_all<F>(make: impl Fn() -> F)
where
    F: Future<Output: Into<Subject>>,
{
    let failed = failures(make).await;
    assert!(failed.is_empty(), "failed cases: {}", failed.join(", "));
}
