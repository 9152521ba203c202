//! `penstock serve`: reads the keys, runs the gateway until a signal, drains.

use crate::args::Serve;
use penstock_base::{Error, Kind, Result, Secret};
use penstock_gateway::{Gateway, KeyPair, Options};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until SIGTERM or SIGINT; a second signal cuts the drain short.
///
/// # Errors
/// As [`Gateway::bind`]; `Invalid` for half a key pair.
pub async fn run(serve: Serve) -> Result<()> {
    let keys = key_pair(&serve)?;
    let options = Options {
        dir: serve.dir.clone(),
        listen: serve.listen,
        keys,
        anonymous: serve.anonymous,
        drain: Duration::from_secs(serve.drain_seconds),
    };
    let no_signals = |cause: std::io::Error| {
        Error::new(Kind::Internal, "signals cannot be received").with_source(cause)
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let gateway = Gateway::bind(options).await?;
    let (dir, address) = (serve.dir.display(), gateway.address());
    writeln!(std::io::stdout(), "penstock: serving {dir} as S3 on http://{address}").map_err(
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
        (None, Some(file)) => Some(first_line(file)?),
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

fn first_line(file: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(file).map_err(|cause: std::io::Error| {
        Error::new(Kind::NotFound, format!("cannot read the secret key from {}", file.display()))
            .with_source(cause)
            .with_hint("Check the path and the file's mode")
    })?;
    Ok(Secret::new(text.lines().next().unwrap_or_default().trim()))
}
