//! TLS settings: whom to trust.

use crate::http::pool::CaFile;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// The TLS settings for these options. Reads the system's certificates, so it is made once.
///
/// # Errors
/// `Invalid` when `ca_file` cannot be read or holds no certificate; `Unavailable` when no
/// certificate authority is known at all.
pub(crate) fn client_config(ca_file: Option<&CaFile>, verify: bool) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Kind::Internal, "TLS cannot be set up").with_source(error))?;
    let mut config = if verify {
        builder.with_root_certificates(roots(ca_file)?).with_no_client_auth()
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots(ca_file: Option<&CaFile>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(file) = ca_file {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| wrong_file(file, &error.to_string()))?;
        }
    }
    if roots.is_empty() {
        let why = native.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Error::new(
            Kind::Unavailable,
            format!("no certificate authority is known on this machine{why}"),
        )
        .with_hint(format!(
            "Install the ca-certificates package, or set {} to a PEM file",
            setting("ca_file")
        )));
    }
    Ok(roots)
}

/// The certificates of a file.
///
/// # Errors
/// `Invalid` when it cannot be read or holds none.
pub(crate) fn certificates(file: &CaFile) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(&*file.path).and_then(Iterator::collect);
    match read {
        Ok::<Vec<_>, _>(certificates) if certificates.is_empty() => {
            Err(wrong_file(file, "it holds no certificate"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong_file(file, &error.to_string())),
    }
}

fn wrong_file(file: &CaFile, why: &str) -> Error {
    let name = if file.is_option { "ca_cert_file".to_string() } else { setting("ca_file") };
    Error::new(Kind::Invalid, format!("{name} {}: {why}", file.path.display()))
        .with_hint(format!("{name} names a readable PEM file of certificates"))
}

/// Accepts every certificate, for `verify_ssl = false`. Signatures are still checked, so that the
/// peer at least owns the key of the certificate it shows.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
