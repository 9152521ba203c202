//! `penstock serve`: reads config file and keys, runs the gateway until a signal, drains.

use crate::args::{Command, Serve};
use crate::output::unwritable;
use crate::settings::Resolved;
use penstock_base::{Error, Kind, Result, Secret, Settings};
use penstock_gateway::{
    BackendOptions, Config, Gateway, Grant, KeyPair, Options, Secrets, Surroundings,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::Write as _;
use tokio::signal::unix::{SignalKind, signal};

/// So many may wait for one another's allocations; those are few and short for each request.
const PROCESSORS_OF_A_HEAP: usize = 4;

/// The config file of a command, empty where it has none.
///
/// # Errors
/// As [`Config::read`].
pub fn config(command: &Command) -> Result<Config> {
    match command {
        Command::Serve(Serve { config: Some(path), .. })
        | Command::Doctor(Serve { config: Some(path), .. }) => Config::read(path),
        _ => Ok(Config::default()),
    }
}

/// Serves until SIGTERM or SIGINT; a second signal cuts the drain short.
///
/// # Errors
/// As [`Gateway::bind`]; `Invalid` for half a key pair.
pub async fn run(serve: Serve, config: Config, settings: Resolved<Settings>) -> Result<()> {
    let options = options(&serve, config, settings)?;
    raise_open_files();
    let what = match &serve.dir {
        Some(dir) => dir.display().to_string(),
        None => "the config file's buckets".to_string(),
    };
    let no_signals = |cause: std::io::Error| {
        Error::new(Kind::Internal, "signals cannot be received").with_source(cause)
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(no_signals)?;
    let gateway = Gateway::bind(options).await?;
    announce(&what, &gateway)?;
    let reloader = gateway.reloader();
    let reloading = async {
        while hangup.recv().await.is_some() {
            // It says itself what came of it.
            reloader.reload().ok();
        }
        std::future::pending().await
    };
    let mut signalled = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let (begin_drain, draining) = tokio::sync::oneshot::channel::<()>();
    let served = gateway.serve(async {
        draining.await.ok();
    });
    let mut served = std::pin::pin!(served);
    tokio::select! {
        ended = &mut served => return ended,
        () = signalled() => {}
        () = reloading => {}
    }
    begin_drain.send(()).ok();
    tokio::select! {
        ended = &mut served => ended,
        () = signalled() => Ok(()),
    }
}

/// Lets the threads of some processors share a heap: what flows through a gateway is allocated by
/// any thread and freed by any other, and each heap keeps the most that it ever held.
pub fn limit_heaps() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    penstock_device::limit_heaps(processors.div_ceil(PROCESSORS_OF_A_HEAP));
}

/// Lets this process open as many files as it may at most: the usual soft limit, 1024, is for
/// programs that use `select`, and a gateway has a descriptor for each connection. What is not
/// allowed stays as it is, and `penstock doctor` tells.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
    }
}

/// Says where it serves, on one line that scripts read.
fn announce(what: &str, gateway: &Gateway) -> Result<()> {
    let scheme = if gateway.is_tls() { "https" } else { "http" };
    let mut lines = format!("penstock: serving {what} as S3 on {scheme}://{}\n", gateway.address());
    if let Some(admin) = gateway.admin_address() {
        lines += &format!("penstock: metrics on http://{admin}/metrics\n");
    }
    std::io::stdout().write_all(lines.as_bytes()).map_err(unwritable)
}

/// What flags, variables and config file come to.
///
/// # Errors
/// `Invalid` for half a key pair or a value that cannot be.
pub fn options(serve: &Serve, config: Config, settings: Resolved<Settings>) -> Result<Options> {
    let serve_settings =
        serve.settings.resolve((&config.path, &config.settings), crate::variables())?.settings;
    let settings = with_connections(settings, serve_settings.requests_max);
    let mut keys = config.keys;
    keys.extend(key_pair(serve, || secret_variable(std::env::var_os(SECRET_VARIABLE)))?);
    let mut backends = config.backends;
    backends.extend(serve.dir.as_deref().map(BackendOptions::directory));
    let mut public = config.public;
    if serve.anonymous || config.anonymous.unwrap_or(false) {
        public.push(Grant::everything());
    }
    let (buckets, cors) = (config.buckets, config.cors);
    Ok(Options { backends, buckets, settings, serve: serve_settings, keys, public, cors })
}

/// With a connection to a back end for each request at work, unless somebody says how many: clients
/// that are slow to take what they asked for hold theirs, and others must not wait for those.
fn with_connections(resolved: Resolved<Settings>, requests_max: u64) -> Settings {
    let is_given = resolved.is_given("connections_per_host");
    let mut settings = resolved.settings;
    if !is_given {
        settings.connections_per_host = settings.connections_per_host.max(requests_max);
    }
    settings
}

/// The variable that the secret key may be in.
const SECRET_VARIABLE: &str = "PENSTOCK_SECRET_KEY";

fn secret_variable(value: Option<OsString>) -> Result<Option<Secret>> {
    let text = value.map(OsString::into_string).transpose().map_err(|_| {
        Error::new(Kind::Invalid, format!("{SECRET_VARIABLE} is no text"))
            .with_hint("Set it in UTF-8, or give --secret-key-file FILE")
    })?;
    Ok(text.map(Secret::new))
}

/// A flag wins over the variable.
fn key_pair(
    serve: &Serve,
    variable: impl FnOnce() -> Result<Option<Secret>>,
) -> Result<Option<KeyPair>> {
    let secret = match (&serve.secret_key, &serve.secret_key_file) {
        (Some(secret), _) => Some(secret.clone()),
        (None, Some(file)) => Some(Surroundings.file(file)?),
        (None, None) => variable()?,
    };
    match (serve.access_key.clone(), secret) {
        (Some(access_key), Some(secret_key)) => Ok(Some(KeyPair::new(access_key, secret_key))),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(Error::new(Kind::Invalid, "--access-key is given without a secret key")
                .with_hint("Set PENSTOCK_SECRET_KEY, or give --secret-key-file FILE"))
        }
        (None, Some(_)) => {
            Err(Error::new(Kind::Invalid, "a secret key is given without --access-key")
                .with_hint("Set PENSTOCK_ACCESS_KEY, or give --access-key KEY"))
        }
    }
}
