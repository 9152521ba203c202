//! The one table of settings: name, type with unit, default, range, meaning.
//!
//! The DuckDB settings (`penstock_<name>`), the flags (`--<name>` with dashes), the environment
//! (`PENSTOCK_<NAME>`), the config file and the printed reference are all made from [`TABLE`].
//! Those that only `penstock serve` has are in [`SERVE_TABLE`], which no database sees.
//! An unknown name is an error that suggests the nearest known one.

pub mod moving;
pub mod theirs;
mod together;
mod values;

pub use values::{Validation, flag};

use crate::nearest::nearest;
use crate::{Error, Kind, Result};
use std::fmt;
use values::{in_range, parse_bool, parse_number, parse_size, parse_validation};

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingType {
    /// `true` or `false`.
    Bool,
    /// A whole number inside the range.
    Number,
    /// A whole number of bytes; text with a unit is accepted too.
    Bytes,
    /// A whole number of milliseconds.
    Millis,
    /// Free text.
    Text,
    /// A URL; its user name and password are never shown.
    Url,
    /// The name of a [`Validation`].
    Validation,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct SettingSpec {
    /// Name without prefix, unit last.
    pub name: &'static str,
    /// Type of the value.
    pub setting_type: SettingType,
    /// Default, as text.
    pub default: &'static str,
    /// Smallest and largest value, both inclusive; `None` for text and booleans.
    pub range: Option<(u64, u64)>,
    /// Read at the start only: no later statement can change it.
    pub read_once: bool,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

macro_rules! field_type {
    (Bool) => {
        bool
    };
    (Text) => {
        String
    };
    (Url) => {
        String
    };
    (Validation) => {
        Validation
    };
    ($number:ident) => {
        u64
    };
}

macro_rules! parse_field {
    (Bool, $spec:expr, $value:expr) => {
        parse_bool($spec, $value)?
    };
    (Text, $spec:expr, $value:expr) => {
        $value.to_string()
    };
    (Url, $spec:expr, $value:expr) => {
        $value.to_string()
    };
    (Validation, $spec:expr, $value:expr) => {
        parse_validation($spec, $value)?
    };
    (Bytes, $spec:expr, $value:expr) => {
        in_range($spec, $value, parse_size($spec, $value))?
    };
    ($number:ident, $spec:expr, $value:expr) => {
        in_range($spec, $value, parse_number($spec, $value))?
    };
}

/// Makes a struct of values and the table that it is read from.
macro_rules! settings {
    (
        $(#[$about:meta])* $values:ident $table:ident
        $($name:ident: $kind:ident = $default:literal $([$min:expr, $max:expr])? $($once:ident)?
            $doc:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $values {
            $(#[doc = $doc] pub $name: field_type!($kind),)*
        }

        $(#[$about])*
        pub const $table: &[SettingSpec] = &[
            $(SettingSpec {
                name: stringify!($name),
                setting_type: SettingType::$kind,
                default: $default,
                range: range!($($min, $max)?),
                read_once: read_once!($($once)?),
                doc: $doc,
            },)*
        ];

        impl $values {
            /// Sets one value from text.
            ///
            /// # Errors
            /// `Invalid` for an unknown name, a value of the wrong type, or one out of range.
            pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
                let spec = spec_in($table, name)?;
                match spec.name {
                    $(stringify!($name) => self.$name = parse_field!($kind, spec, value),)*
                    other => unreachable!("`{other}` is in the table, so it is in this match"),
                }
                Ok(())
            }

            /// One value as text, in the form that [`Settings::set`] takes.
            ///
            /// # Errors
            /// `Invalid` for an unknown name.
            pub fn value(&self, name: &str) -> Result<String> {
                match spec_in($table, name)?.name {
                    $(stringify!($name) => Ok(self.$name.to_string()),)*
                    other => unreachable!("`{other}` is in the table, so it is in this match"),
                }
            }

            fn from_defaults() -> Result<Self> {
                Ok($values {
                    $($name: parse_field!($kind, spec_in($table, stringify!($name))?, $default),)*
                })
            }
        }

        impl Default for $values {
            fn default() -> Self {
                $values::from_defaults().expect("a unit test parses every default")
            }
        }

        impl fmt::Debug for $values {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($values))
                    $(.field(
                        stringify!($name),
                        &SettingType::$kind.shown(&self.$name.to_string()),
                    ))*
                    .finish()
            }
        }
    };
}

macro_rules! read_once {
    () => {
        false
    };
    (read_once) => {
        true
    };
}

macro_rules! range {
    () => {
        None
    };
    ($min:expr, $max:expr) => {
        Some(($min, $max))
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

settings! {
    /// The settings of every door: the engine's and the stores'.
    Settings TABLE
    io_threads: Number = "2" [1, 256] read_once
        "Threads of the I/O runtime, apart from the engine's own; read when the first database loads Penstock.";
    memory_limit_bytes: Bytes = "1GiB" [64 * MIB, u64::MAX]
        "Most memory that uploads, read buffers, and what volumes on devices read ahead and write behind hold together, with what of spills nvme_spill_memory_bytes does not cover; reaching it slows, and fails only an object that a server without ranges sends whole. Where the machine, or the container, has less than 2 GiB the default is half of that, 64MiB at least.";
    part_size_bytes: Bytes = "8MiB" [5 * MIB, 4 * GIB]
        "Size of the first parts of an upload, and the largest object sent in a single request, within a quarter of memory_limit_bytes (more than all of it is refused when a store is used); later parts grow where the store's limit on their count asks for it.";
    upload_concurrency: Number = "16" [1, 1024]
        "Parts of all uploads in flight at once.";
    upload_overlap_enabled: Bool = "true"
        "Lets COPY and EXPORT close the next file while earlier ones are still being uploaded; the statement ends only when every upload is durable.";
    connections_per_host: Number = "64" [1, 4096]
        "Most connections to one host; `penstock serve` allows as many as `requests_max` where that is more and this is not set.";
    warm_connections_max: Number = "16" [0, 1024]
        "Most connections to a store that are opened before the requests that will need them, while a file is opened or listed, or a long one read; 0 for none.";
    connect_timeout_ms: Millis = "10000" [1, 600_000]
        "Longest wait for a connection, TLS included.";
    stall_timeout_ms: Millis = "30000" [1, 3_600_000]
        "Longest wait for the next byte of an answer before the request counts as failed.";
    request_deadline_ms: Millis = "120000" [1, 86_400_000]
        "Longest time for which one request is sent again before the error is told; it begins anew when bytes of a body arrive.";
    retry_base_ms: Millis = "100" [1, 60_000]
        "First back-off before a retry; it doubles with full jitter. More than retry_max_ms is refused when a store is used.";
    retry_max_ms: Millis = "10000" [1, 600_000]
        "Longest back-off between two retries.";
    cache_validation: Validation = "auto"
        "When what is known of an object counts without asking the store: `always` asks at each open, `query` once in each query, `time` after metadata_validity_ms, `never` not again (objects that never change under their names); `auto` is `time` in DuckDB, `always` for the gateway and the command line. Listings count likewise, but under `time` after listing_validity_ms.";
    metadata_validity_ms: Millis = "5000" [0, 86_400_000]
        "How long size and ETag of an object count as known after the store last confirmed them, where cache_validation is `time`; 0 asks again in every query.";
    listing_validity_ms: Millis = "0" [0, 86_400_000]
        "How long a listing counts after it was asked for, where cache_validation is `time`; 0 asks again in every query: what others remove meanwhile would make a query fail, and what they add would be missing.";
    metadata_cache_entries: Number = "100000" [0, 100_000_000]
        "Most objects whose size and ETag are remembered; beside them listings are, in 256 bytes for each of these at most.";
    open_fetch_bytes: Bytes = "256KiB" [0, 64 * MIB]
        "Most bytes fetched with the request that opens an object: the tail of a Parquet file, the head of any other, and four times as much of one whose name ends with `.gz` or `.zst` where the link brings that in a round trip. Of a Parquet file it is less on a link that is known to bring less in a round trip, but 32 KiB at least, or the footer that a catalog tells of.";
    cache_dir: Text = ""
        "Directory of the disk cache, or a device made for it (`nvme:///dev/ng0n1`, by `penstock nvme format --cache`), for this process alone; what was read of remote objects is kept there by version, also from one process to the next; empty for none.";
    cache_disk_bytes: Bytes = "16GiB" [64 * MIB, u64::MAX]
        "Most bytes of the disk cache, if it is a directory (a device is used whole); the oldest that were not read again give way.";
    cache_memory_bytes: Bytes = "0" [0, u64::MAX]
        "Most bytes of remote objects kept in memory, of what was read, within half of memory_limit_bytes (more than all of it is refused when a store is used); 0 for none, since DuckDB keeps Parquet files in memory itself. For what it does not keep (CSV), where its cache is off, and for the gateway.";
    list_page_size: Number = "5000" [1, 5000]
        "Most names asked for per listing request; a store may have a lower limit.";
    parallel_read_enabled: Bool = "true"
        "Lets one large read become several requests at once; wrapping a file system with penstock_wrap() is what applies it to that system.";
    parallel_read_io_threads: Number = "16" [1, 256]
        "Most helpers of large reads at once: threads, apart from DuckDB's, for wrapped file systems; requests beyond the first of each read for Penstock's own. A reader that finds none free reads alone.";
    parallel_read_chunk_size_bytes: Bytes = "16MiB" [256 * KIB, 4 * GIB]
        "A read is split into as many parts of this size as it holds, the last one rounded up, but not into more than parallel_read_max_fanout.";
    parallel_read_max_fanout: Number = "4" [1, 256]
        "Most requests at once for one read; 1 never splits.";
    parallel_read_min_bytes: Bytes = "2MiB" [0, 1024 * GIB]
        "Reads smaller than this are never split.";
    parallel_read_recommended_preset_enabled: Bool = "false"
        "Takes a fan-out of 2, a chunk size of 16 MiB and a least size of 2 MiB, whatever the three settings say.";
    parallel_read_dedicated_handles: Bool = "false"
        "Gives every request at once its own open file of a wrapped system; without it they share one where that is safe (azure). Penstock's own requests never share a connection.";
    parallel_read_auto_fanout_enabled: Bool = "true"
        "Chooses the fan-out of each read from a cost model: first-byte latency, bytes by bandwidth, and a penalty for each extra request.";
    parallel_read_auto_fanout_overhead_ms: Millis = "50" [0, 600_000]
        "The penalty for each extra request in the cost model; where it is learned, the value to begin with (or the latency, if that is less).";
    parallel_read_auto_fanout_overhead_adaptive_enabled: Bool = "true"
        "Learns the cost model's penalty, latency and bandwidths from the times that reads took; without effect unless parallel_read_auto_fanout_enabled.";
    nvme_io: Text = "auto"
        "How bytes reach a device where neither its nvme:// URL says it with `io`, nor `penstock nvme` with --io: `uring`, `direct`, `file`, `passthrough`, `ioctl` or `xnvme:BACKEND` (libxnvme's); `auto` is passthrough for /dev/ngXnY, else uring, or direct where the kernel forbids io_uring.";
    nvme_queues: Text = "thread"
        "How threads share the queues of a device whose nvme:// URL does not say it with `queues`: `thread`, `pool`, `single` or `sync`.";
    nvme_queue_depth: Number = "32" [1, 1024]
        "Most commands in flight per queue of a device whose nvme:// URL does not say it with `depth`.";
    nvme_wait: Text = "sleep"
        "How threads wait for the commands of a device whose nvme:// URL does not say it with `wait`: `sleep`, or `poll`, which has answers sooner and keeps a processor busy for each thread that waits; by uring and passthrough (libxnvme is always polled).";
    nvme_spill_memory_bytes: Bytes = "8GiB" [0, u64::MAX]
        "Most memory beside memory_limit_bytes that holds what DuckDB spilled to volumes on devices, before it goes to the device: a quarter of what the machine or its container has available at most. With 0, and where this is less than half of memory_limit_bytes, spills have up to that half, within that limit; never so much that less than an eighth of all memory is left, but for 16MiB within the limit. DuckDB's memory_limit and its duckdb_memory() know of neither; memory_of_spills_beside_bytes_now tells how much lies beside both.";
    request_log_entries: Number = "1000" [0, 1_000_000]
        "Most recent requests kept for penstock_requests().";
    ca_file: Text = ""
        "PEM file of extra certificate authorities to trust; empty trusts the system's.";
    http_proxy: Url = ""
        "URL of an HTTP proxy for all requests; empty takes HTTPS_PROXY, HTTP_PROXY and NO_PROXY from the environment.";
}

settings! {
    /// The settings of `penstock serve` only, which no database has.
    ServeSettings SERVE_TABLE
    listen: Text = "127.0.0.1:9000"
        "HOST:PORT that S3 is served on; port 0 takes a free one.";
    admin_listen: Text = ""
        "HOST:PORT of /metrics, /healthz, /readyz and /_penstock/stats, apart from the port of S3; empty for none.";
    domains: Text = ""
        "Host names of the gateway, separated by commas, before which a bucket may stand (virtual-host style): with `s3.example.org`, `lake.s3.example.org/key` is a key of the bucket `lake`. Path style works on every name.";
    trusted_proxies: Text = ""
        "Addresses and networks of the balancers before the gateway, separated by commas (`10.0.3.7, 10.8.0.0/16`). A request from one of them counts, for policies (aws:SourceIp) and the access log, as sent from the last address in X-Forwarded-For that is none of theirs; empty believes nobody.";
    tls_cert_file: Text = ""
        "PEM file of the certificate and its chain; empty serves without TLS; read again on SIGHUP and when it changes.";
    tls_key_file: Text = ""
        "PEM file of the certificate's private key.";
    tls_check_ms: Millis = "10000" [100, 86_400_000]
        "How often the TLS files are looked at for a change.";
    access_log: Text = ""
        "File that gets one line of JSON per request, `-` for stdout; empty for none; opened again on SIGHUP.";
    backend_log: Text = ""
        "File that gets one line of JSON per request to a back end, with its place in the trace, `-` for stdout; empty for none; opened again on SIGHUP.";
    signature_v2_enabled: Bool = "true"
        "Accepts requests signed with version 2 too, as boto3 presigns URLs unless told otherwise.";
    acl: Text = "off"
        "What access control lists and bucket policies are good for: `off` refuses those that let others in, `public` lets them open buckets to unsigned requests, `owners` makes each key the owner of what it makes.";
    notes_bucket: Text = "penstock-notes"
        "Container of each back end in which the gateway keeps what is set up on buckets (tags, CORS, lists, policies), made when first needed; empty keeps nothing, and refuses to.";
    connections_max: Number = "4096" [1, 1_000_000]
        "Most connections of clients at once; further ones wait.";
    requests_max: Number = "1024" [1, 1_000_000]
        "Most requests at work at once; further ones are told to slow down (503 with Retry-After).";
    key_requests_per_second: Number = "0" [0, 1_000_000]
        "Most requests of one key per second, where its section says nothing else; 0 for no limit.";
    public_requests_per_second: Number = "0" [0, 1_000_000]
        "Most unsigned requests per second, all together, and what browsers ask before they send a request of a page; 0 for no limit.";
    key_requests_burst: Number = "100" [1, 1_000_000]
        "Requests that a key with a rate, or all who send unsigned ones together, may send at once after a pause.";
    head_size_max_bytes: Bytes = "64KiB" [8 << 10, MIB]
        "Longest head of a request: its URL and headers together.";
    body_size_max_bytes: Bytes = "5GiB" [MIB, 5 * GIB]
        "Largest body of one request.";
    form_size_max_bytes: Bytes = "16MiB" [64 << 10, 5 << 30]
        "Largest upload of a browser's form, which is held in memory whole; more than body_size_max_bytes is refused at the start.";
    head_timeout_ms: Millis = "60000" [100, 3_600_000]
        "Longest wait for a request's head, and for the next request on a connection that is kept.";
    client_stall_timeout_ms: Millis = "60000" [100, 3_600_000]
        "Longest time in which a client neither sends the next byte of a body nor takes one.";
    backend_deadline_ms: Millis = "25000" [100, 86_400_000]
        "Longest time in which a read or a small upload is tried again at a back end that fails, before the client is told to slow down (503): shorter than clients wait; `request_deadline_ms` holds where that is less.";
    completion_quiet_ms: Millis = "10000" [0, 600_000]
        "How long the completion of an upload, or a copy, is worked at before its answer begins, as S3's does, with 200 and white space, so that clients go on waiting; what goes wrong then stands in its body. With 0 it begins at once.";
    read_ahead_max_bytes: Bytes = "0" [0, GIB]
        "Most bytes fetched ahead of each client that reads an object in ranges one after the other, from its second range on, in requests of 256 KiB to 8 MiB, into the caches; 0 fetches nothing ahead. Without cache_dir or cache_memory_bytes it is refused.";
    ready_timeout_ms: Millis = "2000" [10, 60_000]
        "Longest wait for a back end's answer before /readyz counts it as unreachable.";
    drain_delay_ms: Millis = "0" [0, 600_000]
        "After SIGTERM, how long /readyz says no before the port closes, so that load balancers notice.";
    drain_seconds: Number = "25" [0, 86_400]
        "Seconds that requests in flight get to finish once the port is closed.";
}

impl SettingType {
    /// A value as it may be shown: a URL without its user name and password.
    pub fn shown(self, value: &str) -> String {
        match self {
            SettingType::Url => without_user_info(value),
            _ => value.to_string(),
        }
    }
}

/// The text with `***` for all that stands before the last `@`, but for the scheme.
fn without_user_info(url: &str) -> String {
    let Some((before, place)) = url.rsplit_once('@') else { return url.to_string() };
    let is_scheme =
        |text: &&str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    match before.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme) {
        Some(scheme) => format!("{scheme}://***@{place}"),
        None => format!("***@{place}"),
    }
}

/// The row of a name; the prefix `penstock_` is allowed.
///
/// # Errors
/// `Invalid` for an unknown name, with the nearest known one.
pub fn spec(name: &str) -> Result<&'static SettingSpec> {
    spec_in(TABLE, name)
}

fn spec_in(table: &'static [SettingSpec], name: &str) -> Result<&'static SettingSpec> {
    let bare = name.strip_prefix("penstock_").unwrap_or(name);
    table.iter().find(|row| row.name == bare).ok_or_else(|| {
        let error = Error::new(Kind::Invalid, format!("unknown setting `{name}`"));
        match nearest(bare, table.iter().map(|row| row.name)) {
            Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
            None => error.with_hint("`FROM penstock_settings()` lists them"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_parses_and_prints_back() {
        let mut settings = Settings::default();
        for row in TABLE {
            settings.set(row.name, row.default).unwrap();
            let printed = settings.value(row.name).unwrap();
            settings.set(row.name, &printed).unwrap();
            assert!(row.doc.ends_with('.'), "{} needs a sentence", row.name);
        }
        assert_eq!(settings, Settings::default());
        let mut settings = ServeSettings::default();
        for row in SERVE_TABLE {
            settings.set(row.name, row.default).unwrap();
            let printed = settings.value(row.name).unwrap();
            settings.set(row.name, &printed).unwrap();
            assert!(row.doc.ends_with('.'), "{} needs a sentence", row.name);
            assert!(TABLE.iter().all(|other| other.name != row.name), "{} stands twice", row.name);
        }
        assert_eq!(settings, ServeSettings::default());
    }

    #[test]
    fn unknown_name_suggests_the_nearest() {
        let error = Settings::default().set("penstock_io_thread", "3").unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `io_threads`?"));
    }

    #[test]
    fn policies_are_taken_by_name() {
        let mut settings = Settings::default();
        for (policy, name) in Validation::ALL {
            settings.set("cache_validation", &name.to_uppercase()).unwrap();
            assert_eq!(settings.cache_validation, *policy);
            assert_eq!(settings.value("cache_validation").unwrap(), *name);
        }
        let error = settings.set("cache_validation", "nevr").unwrap_err();
        assert!(error.to_string().contains("one of auto, always, query, time, never"), "{error}");
        assert_eq!(error.hint(), Some("Did you mean `never`?"));
        assert_eq!(Validation::Auto.or(Validation::Always), Validation::Always);
        assert_eq!(Validation::Time.or(Validation::Always), Validation::Time);
    }

    #[test]
    fn out_of_range_names_the_range() {
        let error = Settings::default().set("io_threads", "0").unwrap_err();
        assert!(error.to_string().contains("outside 1 to 256"), "{error}");
    }

    #[test]
    fn a_password_in_a_url_is_never_shown() {
        for (value, shown) in [
            ("http://px:3128", "http://px:3128"),
            ("http://u:hunter2@px:3128/", "http://***@px:3128/"),
            ("u:hunter2@px", "***@px"),
            ("u:hunter2://x@px", "***@px"),
            ("http://u:hunt@er2@px", "http://***@px"),
            ("", ""),
        ] {
            assert_eq!(SettingType::Url.shown(value), shown);
            let mut settings = Settings::default();
            settings.set("http_proxy", value).unwrap();
            assert_eq!(settings.value("http_proxy").unwrap(), value);
            assert!(!format!("{settings:?}").contains("hunt"));
        }
    }

    #[test]
    fn bytes_take_units() {
        let mut settings = Settings::default();
        settings.set("part_size_bytes", "16MiB").unwrap();
        assert_eq!(settings.part_size_bytes, 16 << 20);
    }
}
