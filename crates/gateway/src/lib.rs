//! S3 in, engine and store verbs out: `penstock serve`.
//!
//! The protocol (signatures of heads, XML, routing) is the s3s crate's; what it leaves open is
//! decided here: which bucket is where, checksums before visibility, conditions, errors in S3's
//! words, listing semantics, uploads without state, the gateway's own endpoints and the drain.
//! Reads and small writes go through the engine and have its retries; a large body flows to the
//! store once. No body is held whole, and nothing is remembered that another replica would miss.

mod absent;
mod access;
mod access_log;
mod acl;
mod acls;
mod again;
mod ahead;
mod attributes;
mod auth;
mod backend;
mod begin;
mod body;
mod buckets;
mod cause;
mod checksum;
mod chunks;
mod claims;
mod classes;
mod conditions;
mod config;
mod copy;
mod cors;
mod creation;
mod delete;
mod doctor;
mod documents;
mod draining;
mod error;
mod exchange;
mod forms;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod get;
mod handover;
mod headers;
mod heads;
mod hex;
mod hosts;
mod intake;
mod judged;
mod keys;
mod known;
mod late;
mod lenient;
mod list;
mod lock;
mod locks;
mod metered;
mod network;
mod notes;
mod notices;
mod observed;
mod overrides;
mod pages;
mod parts;
mod pieces;
mod policy;
mod presence;
mod probe;
mod proxies;
mod put;
mod query;
mod rate;
mod ready;
mod receive;
mod refuse;
mod reload;
mod rest;
mod route;
mod s3;
mod server;
mod sharing;
mod sound;
mod stats;
mod subresources;
mod tag;
mod tagging;
mod telemetry;
mod terms;
mod tls;
mod trace;
mod uploads;
mod v2;
mod v4;
mod versions;
mod wildcard;
mod words;
mod xml_text;

pub use absent::{ABSENT, Absent, Place};
pub use access::{Grant, Pattern, Right, Rights};
pub use config::{Config, Lines, Secrets, Surroundings};
pub use cors::Rule as CorsRule;
pub use doctor::{Finding, Level, examine};
pub use keys::KeyPair;
pub use notices::Notices;
pub use pages::PageRule;
pub use reload::Reloader;
pub use route::{BackendOptions, BucketOptions};

use access_log::AccessLog;
use ahead::Followed;
use buckets::{BackEnd, Buckets};
use exchange::Ledger;
use front::{Front, Limits};
use hosts::Hosts;
use keys::{KeyRing, Rates};
use pages::Pages;
use penstock_base::door::{Words, spoken};
use penstock_base::settings::ServeSettings;
use penstock_base::{Error, Kind, Result, Settings};
use penstock_engine::{Engine, SeededRandom};
use penstock_store::{Account, HttpClient, HttpOptions, Observer};
use probe::BackEnds;
use proxies::Proxies;
use ready::Readiness;
use route::Routes;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use server::Server;
use sharing::{Lists, Sharing};
use stats::Stats;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use telemetry::{BackendObserver, Telemetry};
use tls::Tls;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Largest form that s3s takes itself: none, since forms are PutObjects when it sees them.
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
    /// The server's settings: addresses, TLS, limits, log, drain.
    pub serve: ServeSettings,
    /// The pairs that sign requests, and what each may.
    pub keys: Vec<KeyPair>,
    /// What unsigned requests may.
    pub public: Vec<Grant>,
    /// Which pages of other origins may use which buckets, besides what clients set up.
    pub cors: Vec<PageRule>,
}

impl Options {
    /// The TLS files, where there are any.
    ///
    /// # Errors
    /// `Invalid` for one without the other.
    fn tls_files(&self) -> Result<Option<tls::TlsFiles>> {
        let (cert, key) = (&self.serve.tls_cert_file, &self.serve.tls_key_file);
        match (cert.as_str(), key.as_str()) {
            ("", "") => Ok(None),
            ("", _) | (_, "") => {
                let why = "TLS takes a certificate and its key, and only one of them is given";
                let files = ["tls_cert_file", "tls_key_file"].map(doctor::called).join(" and ");
                let hint = format!("Give both {files}");
                Err(Error::new(Kind::Invalid, why).with_hint(hint))
            }
            (cert, key) => Ok(Some(tls::TlsFiles { cert: cert.into(), key: key.into() })),
        }
    }
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

    /// Whether the containers lie on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.url.starts_with("file:") || self.url.starts_with("mem:")
    }
}

/// A gateway that listens, not yet serving.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    buckets: Arc<Buckets>,
    readiness: Arc<Readiness>,
    ledger: Ledger,
    backend_log: Option<AccessLog>,
    tls: Option<Arc<Tls>>,
    options: Options,
    lists: Lists,
    hosts: Hosts,
    proxies: Proxies,
}

impl Gateway {
    /// Checks the options, opens back ends, log and certificate, and binds the addresses. No back
    /// end is asked anything yet.
    ///
    /// # Errors
    /// `Invalid` for missing keys, options that cannot be, a bad address or a cache directory in
    /// use, `NotFound` and `Denied` for a directory or a TLS file, `Conflict` for a port in use;
    /// each with what to do.
    pub async fn bind(options: Options) -> Result<Self> {
        Gateway::bind_saying(options, Notices::default()).await
    }

    /// The same, with its lines for the operator elsewhere.
    ///
    /// # Errors
    /// As [`Gateway::bind`].
    pub async fn bind_saying(options: Options, notices: Notices) -> Result<Self> {
        check_keys(&options)?;
        options.serve.check_together()?;
        let lists = Lists::parse(&options.serve.acl)?;
        let tls = options.tls_files()?.map(Tls::open).transpose()?.map(Arc::new);
        let hosts = Hosts::parse(&options.serve.domains, tls.is_some())?;
        let proxies = Proxies::parse(&options.serve.trusted_proxies)?;
        let started = SystemTime::now();
        let telemetry = Arc::new(Telemetry::saying(started, notices));
        let routes = Routes::of(&options)?;
        let said = begin::names(&options, &routes);
        let log = AccessLog::open("access_log", &options.serve.access_log, &telemetry)?;
        let backend_log = AccessLog::open("backend_log", &options.serve.backend_log, &telemetry)?;
        let opened = open(&options, telemetry.clone(), backend_log.clone())?;
        let Opened { engine, back_ends, probed } = opened;
        engine.open_cache()?;
        let probe = Arc::new(BackEnds::new(&options.backends, &routes, &probed));
        let ready_timeout = Duration::from_millis(options.serve.ready_timeout_ms);
        let readiness = Arc::new(Readiness::new(probe, ready_timeout, telemetry.clone()));
        let notes_bucket = options.serve.notes_bucket.clone();
        let followed = Followed::of(&options, &engine)?;
        let buckets = Buckets::new(engine, routes, back_ends, notes_bucket, followed, started);
        let buckets = Arc::new(buckets);
        let (listener, address) =
            server::bind(&doctor::called("listen"), &options.serve.listen).await?;
        let admin = match options.serve.admin_listen.as_str() {
            "" => None,
            listen => Some(server::bind(&doctor::called("admin_listen"), listen).await?),
        };
        let admin_address = admin.as_ref().map(|admin| admin.1);
        let begins = begin::begins(address, tls.is_some(), admin_address);
        let said = [begins].into_iter().chain(said);
        said.for_each(|words| telemetry.notices.say("start", &words));
        let is_traced = log.is_some() || backend_log.is_some();
        let ledger = Ledger { telemetry, log, is_traced };
        Ok(Gateway {
            listener,
            address,
            admin,
            buckets,
            readiness,
            ledger,
            backend_log,
            tls,
            options,
            lists,
            hosts,
            proxies,
        })
    }

    /// Where it listens, with the port that port 0 became.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/metrics` is, with the port that port 0 became.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.1)
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What a signal asks to be read or opened again.
    pub fn reloader(&self) -> Reloader {
        let telemetry = self.ledger.telemetry.clone();
        let logs = [("access_log", &self.ledger.log), ("backend_log", &self.backend_log)];
        let logs = logs.into_iter().filter_map(|(name, log)| Some((name, log.clone()?))).collect();
        Reloader { tls: self.tls.clone(), logs, telemetry }
    }

    /// Serves until `shutdown` resolves, then says on `/readyz` that it goes, closes the port and
    /// lets requests in flight end.
    ///
    /// # Errors
    /// `Internal` when TLS cannot be set up.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let reloader = self.reloader();
        let stats = Arc::new(Stats::default());
        let serve = self.options.serve.clone();
        let places = usize::try_from(serve.requests_max).unwrap_or(Semaphore::MAX_PERMITS);
        let Options { keys, public, cors, .. } = self.options;
        let ring = Arc::new(KeyRing::new(keys, public, Rates::of(&serve)));
        let ids = ring.access_keys().cloned().collect();
        let sharing = Arc::new(Sharing::new(self.lists, self.buckets.clone(), ids));
        let access = auth::Access {
            ring: ring.clone(),
            stats: stats.clone(),
            telemetry: self.ledger.telemetry.clone(),
            sharing,
        };
        let hosts = Arc::new(self.hosts);
        let gateway = s3::Gateway {
            buckets: self.buckets.clone(),
            lists: self.lists,
            hosts: hosts.clone(),
            quiet: Duration::from_millis(serve.completion_quiet_ms),
        };
        let front = Front {
            s3: s3_service(&gateway, &access),
            hosts,
            ring,
            pages: Arc::new(Pages { buckets: self.buckets, rules: cors }),
            stats,
            ledger: self.ledger,
            readiness: self.readiness,
            proxies: Arc::new(self.proxies),
            has_admin: self.admin.is_some(),
            limits: Arc::new(Limits::new(&serve)),
            places: Arc::new(Semaphore::new(places)),
        };
        let check_every = Duration::from_millis(serve.tls_check_ms);
        let admin = self.admin.map(|admin| admin.0);
        let server = Server { s3: self.listener, admin, front, tls: self.tls, settings: serve };
        tokio::select! {
            ended = server.run(shutdown) => ended,
            () = reloader.watch(check_every) => Ok(()),
        }
    }
}

/// The service, and before it another one for requests that it does not parse as they are.
fn s3_service(gateway: &s3::Gateway, access: &auth::Access) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = documents::DOCUMENT_BYTES_MAX;
    config.post_object_max_file_size = FORM_BYTES_MAX;
    let config = Arc::new(StaticConfigProvider::new(Arc::new(config)));
    let builder = || {
        let mut builder = S3ServiceBuilder::new(gateway.clone());
        builder.set_auth(keys::Keys(access.ring.clone()));
        builder.set_access(access.clone());
        builder.set_host(Hosts::clone(&gateway.hosts));
        builder.set_config(config.clone());
        builder
    };
    let mut first = builder();
    first.set_route(lenient::Lenient { strict: builder().build() });
    first.build()
}

/// Connections to each back end for the question whether it is there.
const PROBE_CONNECTIONS: usize = 2;

/// What requests go through: the back ends in the order of the options.
struct Opened {
    engine: Arc<Engine>,
    back_ends: Vec<BackEnd>,
    /// The same with the same credentials, over connections of their own.
    probed: Vec<Arc<dyn Account>>,
}

/// Makes the engine and the accounts that the table leads to.
fn open(options: &Options, telemetry: Arc<Telemetry>, log: Option<AccessLog>) -> Result<Opened> {
    // Nobody reads the engine's list of requests here; the logs have them.
    // A client that hears nothing gives up, and then knows nothing either.
    let deadline_ms = options.settings.request_deadline_ms.min(options.serve.backend_deadline_ms);
    let own = options.settings.clone();
    let settings = Settings {
        request_log_entries: 0,
        request_deadline_ms: deadline_ms,
        metadata_cache_entries: known::objects_max(&own),
        ..own
    };
    let random = Arc::new(SeededRandom::from_entropy());
    let engine = Engine::on_runtime(settings, Handle::current(), random, |_| Arc::new(NoUrls));
    // Before the deadline, so that the client hears what it was that took so long.
    let slot_timeout = Some(Duration::from_millis(deadline_ms) / 2);
    let http = HttpOptions { slot_timeout, ..HttpOptions::from_settings(&options.settings)? };
    let connections_per_host = http.connections_per_host;
    let http = HttpClient::new(http, engine.observer())?;
    let mut opened = Opened { engine, back_ends: Vec::new(), probed: Vec::new() };
    for backend in &options.backends {
        // All share these connections, and each has counters of its own.
        let observer: Arc<dyn Observer> = Arc::new(BackendObserver {
            counts: telemetry.back_end(&backend.name),
            telemetry: telemetry.clone(),
            engine: opened.engine.observer(),
            log: log.clone(),
        });
        let http = http.with_observer(observer.clone());
        let account = backend::open(backend, &options.buckets, &http)?;
        // Whether a back end answers must not wait for connections that clients hold.
        let probed = account.apart(PROBE_CONNECTIONS);
        opened.probed.push(probed.unwrap_or_else(|| account.clone()));
        let notes = account.apart(connections_per_host).unwrap_or_else(|| account.clone());
        opened.back_ends.push(BackEnd { account, notes, observer });
    }
    Ok(opened)
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
        _http: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn penstock_store::Store>, String)> {
        Err(Error::new(Kind::Unsupported, "a gateway opens no URLs").with_object(url))
    }
}

fn check_keys(options: &Options) -> Result<()> {
    let hint = match spoken() {
        Words::Config => {
            "Add a [[key]] with its access_key and one of secret_key_file and secret_key_env, or \
             `anonymous = true` to let everyone in"
        }
        Words::Sql | Words::Flags => {
            "Give --access-key and a secret key (PENSTOCK_SECRET_KEY or --secret-key-file keep it \
             out of `ps`), or --anonymous to let everyone in"
        }
    };
    let is_empty = |pair: &KeyPair| pair.access_key.is_empty() || pair.secret_key.is_empty();
    if options.keys.iter().any(is_empty) {
        let error = Error::new(Kind::Invalid, "the access key or the secret key is empty");
        return Err(error.with_hint(hint));
    }
    if options.keys.is_empty() && options.public.is_empty() {
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
