//! `penstock serve`: reads config file and keys, runs the gateway until a signal, drains.

use crate::args::{Command, Serve};
use penstock_base::{Error, Kind, Result, Secret, Settings};
use penstock_gateway::{BackendOptions, Config, Gateway, KeyPair, Options, Secrets, Surroundings};
use std::io::Write as _;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const LISTEN_DEFAULT: &str = "127.0.0.1:9000";
const DRAIN_SECONDS_DEFAULT: u64 = 25;

/// The config file of a command, empty where it has none.
///
/// # Errors
/// As [`Config::read`].
pub fn config(command: &Command) -> Result<Config> {
    match command {
        Command::Serve(Serve { config: Some(path), .. }) => Config::read(path),
        _ => Ok(Config::default()),
    }
}

/// Serves until SIGTERM or SIGINT; a second signal cuts the drain short.
///
/// # Errors
/// As [`Gateway::bind`]; `Invalid` for half a key pair.
pub async fn run(serve: Serve, config: Config, settings: Settings) -> Result<()> {
    let mut keys = config.keys;
    keys.extend(key_pair(&serve)?);
    let (mut backends, mut what) = (config.backends, "the config file's buckets".to_string());
    if let Some(dir) = &serve.dir {
        backends.push(BackendOptions::directory(dir));
        what = dir.display().to_string();
    }
    let drain_seconds = serve.drain_seconds.or(config.drain_seconds);
    let options = Options {
        backends,
        buckets: config.buckets,
        settings,
        listen: serve.listen.or(config.listen).unwrap_or_else(|| LISTEN_DEFAULT.to_string()),
        keys,
        anonymous: serve.anonymous || config.anonymous.unwrap_or(false),
        drain: Duration::from_secs(drain_seconds.unwrap_or(DRAIN_SECONDS_DEFAULT)),
    };
    let no_signals = |cause: std::io::Error| {
        Error::new(Kind::Internal, "signals cannot be received").with_source(cause)
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let gateway = Gateway::bind(options).await?;
    let address = gateway.address();
    writeln!(std::io::stdout(), "penstock: serving {what} as S3 on http://{address}").map_err(
        |cause| Error::new(Kind::Unavailable, "cannot write to stdout").with_source(cause),
    )?;
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
        () = &mut served => return Ok(()),
        () = signalled() => {}
    }
    begin_drain.send(()).ok();
    tokio::select! {
        () = &mut served => {}
        () = signalled() => {}
    }
    Ok(())
}

fn key_pair(serve: &Serve) -> Result<Option<KeyPair>> {
    let secret = match (&serve.secret_key, &serve.secret_key_file) {
        (Some(secret), _) => Some(Secret::new(secret.clone())),
        (None, Some(file)) => Some(Surroundings.file(file)?),
        (None, None) => None,
    };
    match (serve.access_key.clone(), secret) {
        (Some(access_key), Some(secret_key)) => Ok(Some(KeyPair { access_key, secret_key })),
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
