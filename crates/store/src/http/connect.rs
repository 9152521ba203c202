//! Opens connections: name lookup, several addresses, proxy tunnel, TLS.

use crate::advice;
use crate::drive::timeout_at;
use crate::http::addresses::{first_to_answer, rotated};
use crate::http::connection::{Connection, Stream, TLS_BUFFER_BYTES};
use crate::http::pool::Origin;
use crate::http::proxy::Proxy;
use crate::http::socket::Socket;
use bytes::Bytes;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Retry};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::BufReader;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// Rotates through the addresses of a host: large stores publish many, and each has its own limit.
static NEXT_ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// A new connection to `origin`, ready for a request. `tls` is set for https; `has_answered` tells
/// whether the origin is known to be what it should.
///
/// # Errors
/// `Unavailable`: worth retrying, except for a certificate that is not trusted.
pub(crate) async fn connect(
    origin: &Origin,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
    stall_limit: Duration,
    has_answered: bool,
) -> Result<Connection> {
    let deadline = Instant::now() + limit;
    let peer = match &origin.proxy {
        Some(proxy) => Peer { host: &proxy.host, port: proxy.port, proxy: Some(proxy) },
        None => Peer { host: &origin.host, port: origin.port, proxy: None },
    };
    let tcp = connect_tcp(&peer, deadline, limit).await?;
    let Some(tls) = tls else {
        return Ok(Connection::new(Stream::Plain(tcp), stall_limit));
    };
    let tcp = if origin.proxy.is_some() {
        timeout_at(deadline, tunnel(tcp, origin, stall_limit))
            .await
            .ok_or_else(|| too_slow("the proxy's tunnel", limit))??
    } else {
        tcp
    };
    let name = ServerName::try_from(origin.host.clone()).map_err(|_| {
        Error::new(Kind::Invalid, format!("`{}` is no valid host name for TLS", origin.host))
    })?;
    let handshake =
        TlsConnector::from(tls).connect(name, BufReader::with_capacity(TLS_BUFFER_BYTES, tcp));
    let stream = timeout_at(deadline, handshake)
        .await
        .ok_or_else(|| too_slow("the TLS handshake", limit))?
        .map_err(|error| tls_error(&origin.host, error, has_answered))?;
    Ok(Connection::new(Stream::Tls(Box::new(stream)), stall_limit))
}

/// Whom the socket leads to: the store, or the proxy in between.
#[derive(Debug)]
struct Peer<'a> {
    host: &'a str,
    port: u16,
    proxy: Option<&'a Proxy>,
}

impl Peer<'_> {
    /// `the proxy `, or nothing.
    fn role(&self) -> &'static str {
        if self.proxy.is_some() { "the proxy " } else { "" }
    }

    /// The advice for a store, or where the proxy comes from.
    fn hint(&self, of_store: &str) -> String {
        match self.proxy {
            Some(proxy) => {
                format!("The proxy comes from {}: is it right, and running?", proxy.named_by)
            }
            None => of_store.to_string(),
        }
    }
}

async fn connect_tcp(peer: &Peer<'_>, deadline: Instant, limit: Duration) -> Result<Socket> {
    let (host, role) = (peer.host, peer.role());
    let lookup = timeout_at(deadline, tokio::net::lookup_host((host, peer.port)))
        .await
        .ok_or_else(|| too_slow(&format!("the lookup of {role}`{host}`"), limit))
        .map_err(|error| error.with_retry(Retry::Briefly))?;
    // A resolver without a network says "temporary failure" for ever, as it does of many a slip.
    let addresses = lookup.map_err(|error| {
        let of_proxy = if peer.proxy.is_some() { " of the proxy" } else { "" };
        unavailable(format!("the host name `{host}`{of_proxy} cannot be resolved"))
            .with_retry(Retry::Briefly)
            .with_source(error)
            .with_hint(
                peer.hint("Check the endpoint, region or account that is given, and the network"),
            )
    })?;
    let turn = NEXT_ADDRESS.fetch_add(1, Ordering::Relaxed);
    let addresses = rotated(addresses.collect(), turn);
    let Some(connected) = timeout_at(deadline, first_to_answer(&addresses)).await else {
        let tried: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        return Err(too_slow(
            &format!("the connection to {role}{host} ({})", tried.join(", ")),
            limit,
        ));
    };
    let failed = match connected {
        Ok(socket) => return Ok(socket),
        Err(failed) => failed,
    };
    let all_refused = failed.iter().all(|(_, error)| error.kind() == ErrorKind::ConnectionRefused);
    let error = match failed.into_iter().last() {
        Some((address, error)) => unavailable(format!("no connection to {role}{host} ({address})"))
            .with_source(error)
            .with_hint(peer.hint("Check the endpoint and port; is the server running?")),
        None => unavailable(format!("the host name `{host}` has no address")),
    };
    Err(if all_refused { error.with_retry(Retry::Briefly) } else { error })
}

/// Asks the proxy for a tunnel (RFC 9110 section 9.3.6).
async fn tunnel(tcp: Socket, origin: &Origin, stall_limit: Duration) -> Result<Socket> {
    let target = format!("{}:{}", origin.host_for_header(), origin.port);
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    let proxy = origin.proxy.as_ref();
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
        head.push_str("Proxy-Authorization: ");
        head.push_str(authorization.reveal());
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    let mut connection = Connection::new(Stream::Plain(tcp), stall_limit);
    let none: &[Bytes] = &[];
    let (answer, _) = connection.exchange(head.as_bytes(), none).await.map_err(|failed| {
        let retry = failed.error.retry();
        unavailable("the proxy gave no tunnel").with_retry(retry).with_source(failed.error)
    })?;
    match answer.status {
        200..=299 => connection.into_tunnel(),
        407 => Err(Error::new(Kind::Denied, "the proxy asks for a user name and password (407)")
            .with_http_status(407)
            .with_hint("Put them into the proxy URL, or into the http secret")),
        status => Err(unavailable(format!("the proxy refused a tunnel to {target} ({status})"))
            // Rules stay, an overload passes.
            .with_retry(if matches!(status, 429 | 503) { Retry::BackOff } else { Retry::Briefly })
            .with_http_status(status)
            .with_hint("Check the proxy's rules, or exclude the host with NO_PROXY")),
    }
}

fn tls_error(host: &str, error: std::io::Error, has_answered: bool) -> Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(why)) => {
            Error::new(Kind::Unavailable, format!("the certificate of {host} is not trusted"))
                .with_hint(certificate_hint(why))
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            Error::new(Kind::Unavailable, format!("{host} does not speak TLS on this port"))
                .with_hint(format!("For a plain HTTP endpoint {}", advice::set("use_ssl", "false")))
        }
        // What the peers cannot agree on stays so; a connection that broke may not.
        Some(_) => unavailable(format!("the TLS handshake with {host} failed"))
            .with_retry(Retry::Briefly)
            .with_hint("Does the server allow TLS 1.2 or 1.3, and is the endpoint's name right?"),
        None if has_answered => unavailable(format!("the TLS handshake with {host} broke")),
        None => unavailable(format!("the TLS handshake with {host} broke"))
            .with_retry(Retry::Briefly)
            .with_hint("It has not answered yet: is it the store's port, or another service's?"),
    }
    .with_source(error)
}

/// What to do about a certificate, by what is wrong with it. Pure.
fn certificate_hint(why: &CertificateError) -> Cow<'static, str> {
    Cow::Borrowed(match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "It has expired: renew it, or set this machine's clock if that is wrong"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "It is not valid yet: is this machine's clock right?"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "It was made for another name: use the name that it tells as the endpoint"
        }
        CertificateError::Revoked => "It was revoked: the server needs a new one",
        // webpki's name for it (RFC 5280 section 4.2.1.9); no rustls variant has it.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            return Cow::Owned(format!(
                "The server shows an authority's certificate as its own: give it one that the \
                 authority has signed, and name the authority's PEM file in {}",
                setting("ca_file")
            ));
        }
        _ => return Cow::Owned(format!("Name the authority's PEM file in {}", setting("ca_file"))),
    })
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::new(Kind::Unavailable, message).with_retry(Retry::BackOff)
}

fn too_slow(what: &str, limit: Duration) -> Error {
    unavailable(format!("{what} took longer than {} s", limit.as_secs_f64())).with_hint(format!(
        "Check the endpoint, its port and what stands between (firewall, proxy). {} bounds one \
         attempt, {} all of them",
        setting("connect_timeout_ms"),
        setting("request_deadline_ms")
    ))
}
