//! How connections are made and kept: the settings of every door, as the client takes them.

use crate::http::pool::CaFile;
use crate::http::proxy::ProxyChoice;
use crate::http::tls::certificates;
use penstock_base::door::setting;
use penstock_base::{Result, Settings};
use std::path::PathBuf;
use std::time::Duration;

/// How connections are made and kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpOptions {
    /// Longest wait for a connection: name lookup, TCP, proxy tunnel and TLS together.
    pub connect_timeout: Duration,
    /// Longest time in which no byte moves while a request is under way.
    pub stall_timeout: Duration,
    /// How long an unused connection is kept. Servers hang up after 15 s and more, unless their
    /// `Keep-Alive` header says otherwise.
    pub idle_timeout: Duration,
    /// Most connections to one host.
    pub connections_per_host: usize,
    /// Longest wait for a connection that others hold, where ten `stall_timeout` are too long:
    /// readers that never go on must not make others wait for ever.
    pub slot_timeout: Option<Duration>,
    /// PEM file of certificate authorities to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Which proxy to use.
    pub proxy: ProxyChoice,
    /// Whether certificates are checked.
    pub verify_tls: bool,
    /// Value of the User-Agent header.
    pub user_agent: String,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(12),
            connections_per_host: 64,
            slot_timeout: None,
            ca_file: None,
            proxy: ProxyChoice::Environment,
            verify_tls: true,
            user_agent: penstock_base::door::agent(),
        }
    }
}

impl HttpOptions {
    /// The options that the settings table speaks of.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` for a malformed `http_proxy`.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let proxy = match settings.http_proxy.trim() {
            "" => ProxyChoice::Environment,
            url => {
                let proxy = crate::http::Proxy::parse(url)?;
                ProxyChoice::Fixed(proxy.named_by(setting("http_proxy")))
            }
        };
        let ca_file = settings.ca_file.trim();
        Ok(HttpOptions {
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            stall_timeout: Duration::from_millis(settings.stall_timeout_ms),
            connections_per_host: usize::try_from(settings.connections_per_host)
                .unwrap_or(usize::MAX),
            ca_file: (!ca_file.is_empty()).then(|| PathBuf::from(ca_file)),
            proxy,
            ..HttpOptions::default()
        })
    }

    /// Reads what they name, for a door that is told of a setting before any request is.
    ///
    /// # Errors
    /// `Invalid` when `ca_file` cannot be read or holds no certificate.
    pub fn check(&self) -> Result<()> {
        self.ca_file
            .as_deref()
            .map_or(Ok(()), |path| certificates(&CaFile::of_setting(path)).map(|_| ()))
    }
}
