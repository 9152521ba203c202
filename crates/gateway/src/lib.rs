//! S3 in, engine and store verbs out: `penstock serve`.
//!
//! The protocol (signatures, aws-chunked, XML, routing) is the s3s crate's; what it leaves open is
//! decided here: which bucket is where, checksums before visibility, conditions, errors in S3's
//! words, listing semantics, uploads without state, the gateway's own endpoints and the drain.
//! Reads and small writes go through the engine and have its retries; a large body flows to the
//! store once. No body is held whole, and nothing is remembered that another replica would miss.

mod auth;
mod backend;
mod body;
mod buckets;
mod checksum;
mod conditions;
mod config;
mod copy;
mod delete;
mod error;
mod get;
mod headers;
mod list;
mod metered;
mod parts;
mod put;
mod receive;
mod refuse;
mod route;
mod s3;
mod server;
mod stats;
mod tag;
mod tagging;
mod uploads;
mod versions;

pub use auth::KeyPair;
pub use config::{Config, Secrets, Surroundings};
pub use route::{BackendOptions, BucketOptions};

use buckets::Buckets;
use penstock_base::{Error, Kind, Result, Settings};
use penstock_engine::{Engine, SeededRandom};
use penstock_store::{HttpClient, HttpOptions};
use route::Routes;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use server::Front;
use stats::Stats;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// Largest XML body: a batch delete of 1000 long keys is below 2 MiB.
const XML_BYTES_MAX: usize = 4 << 20;
/// Largest object of a browser's form upload, which s3s holds in memory: none.
const FORM_BYTES_MAX: u64 = 0;

/// What to serve, where, to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The back ends.
    pub backends: Vec<BackendOptions>,
    /// The buckets that have a place of their own.
    pub buckets: Vec<BucketOptions>,
    /// The engine's settings: retries, connections, memory.
    pub settings: Settings,
    /// `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    /// The pairs that sign requests.
    pub keys: Vec<KeyPair>,
    /// Lets unsigned requests in.
    pub anonymous: bool,
    /// Longest wait for requests in flight at the end.
    pub drain: Duration,
}

impl BackendOptions {
    /// A directory whose subdirectories are the buckets.
    pub fn directory(dir: &Path) -> Self {
        BackendOptions {
            name: "dir".to_string(),
            url: format!("file://{}", dir.display()),
            is_dynamic: true,
            ..BackendOptions::default()
        }
    }
}

/// A gateway that listens, not yet serving.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    buckets: Arc<Buckets>,
    options: Options,
}

impl Gateway {
    /// Checks the options, opens the back ends and binds the address. No back end is asked
    /// anything yet.
    ///
    /// # Errors
    /// `Invalid` for missing keys, options that cannot be or a bad address, `NotFound` and `Denied`
    /// for a directory, `Conflict` for a port in use; each with what to do.
    pub async fn bind(options: Options) -> Result<Self> {
        check_keys(&options)?;
        let routes = Routes::new(&options.backends, &options.buckets)?;
        let buckets = Arc::new(open(&options, routes)?);
        let listener = server::bind(&options.listen).await?;
        let address = listener.local_addr().map_err(|cause| {
            Error::new(Kind::Internal, "the socket has no address").with_source(cause)
        })?;
        Ok(Gateway { listener, address, buckets, options })
    }

    /// Where it listens, with the port that port 0 became.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` resolves, then lets requests in flight end.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let stats = Arc::new(Stats::default());
        let mut builder = S3ServiceBuilder::new(s3::Gateway { buckets: self.buckets });
        builder.set_auth(auth::Keys(self.options.keys));
        builder
            .set_access(auth::Access { anonymous: self.options.anonymous, stats: stats.clone() });
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_BYTES_MAX;
        config.post_object_max_file_size = FORM_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let front = Front { s3: builder.build(), stats };
        server::run(self.listener, front, shutdown, self.options.drain).await;
    }
}

/// Makes the engine and the accounts that the table leads to.
fn open(options: &Options, routes: Routes) -> Result<Buckets> {
    let settings = options.settings.clone();
    let random = Arc::new(SeededRandom::from_entropy());
    let engine = Engine::on_runtime(settings, Handle::current(), random, |_| Arc::new(NoUrls));
    let http = HttpOptions::from_settings(&options.settings)?;
    let http = HttpClient::new(http, engine.observer())?;
    let accounts = options.backends.iter().map(|backend| backend::open(backend, &http));
    Ok(Buckets::new(engine, routes, accounts.collect::<Result<_>>()?))
}

/// The gateway brings its stores itself, and clients name no URLs.
#[derive(Debug)]
struct NoUrls;

impl penstock_engine::Opener for NoUrls {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        Err(Error::new(Kind::Unsupported, "a gateway opens no URLs").with_object(url))
    }

    fn open(
        &self,
        url: &str,
        _options: &[penstock_engine::StoreOption],
    ) -> Result<(Arc<dyn penstock_store::Store>, String)> {
        Err(Error::new(Kind::Unsupported, "a gateway opens no URLs").with_object(url))
    }
}

fn check_keys(options: &Options) -> Result<()> {
    let hint = "Give --access-key and a secret key (PENSTOCK_SECRET_KEY or --secret-key-file keep \
                it out of `ps`), or --anonymous to let everyone in";
    let is_empty = |pair: &KeyPair| pair.access_key.is_empty() || pair.secret_key.is_empty();
    if options.keys.iter().any(is_empty) {
        let error = Error::new(Kind::Invalid, "the access key or the secret key is empty");
        return Err(error.with_hint(hint));
    }
    if options.keys.is_empty() && !options.anonymous {
        return Err(Error::new(Kind::Invalid, "no keys are given").with_hint(hint));
    }
    for (index, pair) in options.keys.iter().enumerate() {
        if options.keys[..index].iter().any(|other| other.access_key == pair.access_key) {
            let why = format!("two keys have the access key `{}`", pair.access_key);
            return Err(Error::new(Kind::Invalid, why));
        }
    }
    Ok(())
}
