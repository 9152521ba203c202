//! S3 in, store verbs out: `penstock serve`.
//!
//! The protocol (signatures, aws-chunked, XML, routing) is the s3s crate's; what it leaves open is
//! decided here: checksums before visibility, conditions, errors in S3's words, listing semantics,
//! multipart staging, the gateway's own endpoints and the drain. First form: the buckets are the
//! directories of one local directory. It never retries and holds no body whole in memory.

mod auth;
mod body;
mod buckets;
mod checksum;
mod conditions;
mod error;
mod headers;
mod list;
mod metered;
mod objects;
mod receive;
mod refuse;
mod s3;
mod server;
mod stats;
mod uploads;

pub use auth::KeyPair;

use buckets::Buckets;
use penstock_base::{Error, Kind, Result};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use server::Front;
use stats::Stats;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Largest XML body: a batch delete of 1000 long keys is below 2 MiB.
const XML_BYTES_MAX: usize = 4 << 20;
/// Largest object of a browser's form upload, which s3s holds in memory: none.
const FORM_BYTES_MAX: u64 = 0;

/// What to serve, where, to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory whose subdirectories are the buckets.
    pub dir: PathBuf,
    /// `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    /// The pair that signs requests.
    pub keys: Option<KeyPair>,
    /// Lets unsigned requests in.
    pub anonymous: bool,
    /// Longest wait for requests in flight at the end.
    pub drain: Duration,
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
    /// Checks the options and binds the address.
    ///
    /// # Errors
    /// `Invalid` for missing keys or a bad address, `NotFound` and `Denied` for the directory,
    /// `Conflict` for a port in use; each with what to do.
    pub async fn bind(options: Options) -> Result<Self> {
        check_keys(&options)?;
        let buckets = Arc::new(Buckets::open(&options.dir)?);
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

fn check_keys(options: &Options) -> Result<()> {
    let hint = "Give --access-key and a secret key (PENSTOCK_SECRET_KEY or --secret-key-file keep \
                it out of `ps`), or --anonymous to let everyone in";
    match &options.keys {
        Some(pair) if pair.access_key.is_empty() || pair.secret_key.is_empty() => {
            Err(Error::new(Kind::Invalid, "the access key or the secret key is empty")
                .with_hint(hint))
        }
        None if !options.anonymous => {
            Err(Error::new(Kind::Invalid, "no keys are given").with_hint(hint))
        }
        _ => Ok(()),
    }
}
