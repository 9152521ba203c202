//! TLS of the S3 port: certificate and key from PEM files, exchanged while it runs.
//!
//! New connections get the new certificate, those that are open keep theirs. Files that do not fit
//! together leave the old certificate in place, and the failure is counted and told.

use crate::doctor::holds_until;
use penstock_base::{Error, Kind, Result};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// Where certificate and key lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the certificate and its chain.
    pub cert: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// What came of reading the files again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Whether the certificate is not the one that was in use.
    pub is_other: bool,
    /// Until when it holds.
    pub until: String,
}

/// What tells two states of a file apart: its time and size, those of the file a link leads to.
type Mark = [Option<(SystemTime, u64)>; 2];

/// The certificate in use.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
    seen: Mutex<Mark>,
}

struct Current(RwLock<Arc<CertifiedKey>>);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `NotFound` for files that cannot be read, `Invalid` for what is in them, each naming the
    /// file.
    pub fn open(files: TlsFiles) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let seen = Mutex::new(mark(&files));
        let key = load(&files, &provider)?;
        let current = Arc::new(Current(RwLock::new(Arc::new(key))));
        Ok(Tls { files, provider, current, seen })
    }

    /// Accepts connections with whatever certificate is current.
    ///
    /// # Errors
    /// `Internal`.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                Error::new(Kind::Internal, "TLS cannot be set up").with_source(error)
            })?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Tls::open`]; the old certificate stays.
    pub fn reload(&self) -> Result<Reloaded> {
        // The mark is taken first: a change in between is seen the next time. Files that could not
        // be read are read again, since their mark tells nothing of rights.
        let mark = mark(&self.files);
        let seen = |mark| *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = mark;
        seen(Default::default());
        let key = load(&self.files, &self.provider)?;
        seen(mark);
        let until = holds_until(&key.cert);
        let mut current = self.current.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = current.cert != key.cert;
        *current = Arc::new(key);
        Ok(Reloaded { is_other, until })
    }

    /// Whether the files are other ones than when they were last read.
    pub fn has_changed(&self) -> bool {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != mark(&self.files)
    }
}

/// Checks that the files can serve, and gives the chain, which holds one certificate at least.
///
/// # Errors
/// As [`Tls::open`].
pub fn check(files: &TlsFiles) -> Result<Vec<CertificateDer<'static>>> {
    load(files, &rustls::crypto::ring::default_provider()).map(|key| key.cert)
}

fn mark(files: &TlsFiles) -> Mark {
    [&files.cert, &files.key].map(|path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    })
}

fn load(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| bad_file(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(invalid(&files.cert, "it holds no certificate"));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad_file(&files.key, &error))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| invalid(&files.key, &error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A key that cannot tell its public half is not known to be wrong.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(rustls::Error::InconsistentKeys(_)) => {
            let why = format!("it is not the key of the certificate in {}", files.cert.display());
            Err(invalid(&files.key, &why))
        }
        Err(error) => Err(invalid(&files.cert, &error.to_string())),
    }
}

fn bad_file(path: &Path, error: &rustls::pki_types::pem::Error) -> Error {
    use rustls::pki_types::pem::Error as Pem;
    match error {
        Pem::Io(cause) => Error::new(
            Kind::NotFound,
            format!("the TLS file {} cannot be read ({cause})", path.display()),
        )
        .with_hint("Check the path, and that this user may read it"),
        error => invalid(path, &error.to_string()),
    }
}

fn invalid(path: &Path, why: &str) -> Error {
    Error::new(Kind::Invalid, format!("the TLS file {} cannot serve: {why}", path.display()))
        .with_hint("tls_cert_file holds the chain, leaf first; tls_key_file its key; both PEM")
}

#[cfg(test)]
mod tests;
