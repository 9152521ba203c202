//! Credentials and signatures for S3 and Google Cloud Storage.
//!
//! The signing crates find and renew credentials, and apply Google's; this file decides which of
//! their sources are asked, and puts their errors into our words.

use crate::HttpClient;
use crate::advice;
use crate::http::{credential_context, credential_error};
use crate::s3::config::Access;
use crate::s3::signature::Signature;
use crate::s3::sources::aws_chain;
use ::http::HeaderValue;
use ::http::header::AUTHORIZATION;
use ::http::request::Parts;
use penstock_base::{Error, Kind, Result, Secret};
use reqsign_aws_v4::{Credential, StaticCredentialProvider};
use reqsign_core::{Context, Signer};
use std::fmt;

/// What Google tokens are asked for.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// Signs requests for one region; clones share found credentials.
#[derive(Clone)]
pub(crate) enum Auth {
    Anonymous,
    Aws(Signer<Credential>),
    Bearer(Secret),
    Google(Signer<reqsign_google::Credential>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Auth::Anonymous => "Anonymous",
            Auth::Aws(_) => "Aws",
            Auth::Bearer(_) => "Bearer",
            Auth::Google(_) => "Google",
        })
    }
}

impl Auth {
    /// Credentials are looked for at the first request, not here.
    pub(crate) fn new(access: &Access, region: &str, http: &HttpClient) -> Self {
        Auth::in_context(access, region, credential_context(http))
    }

    pub(crate) fn in_context(access: &Access, region: &str, context: Context) -> Self {
        let signer = Signature::new(region);
        match access {
            Access::Anonymous => Auth::Anonymous,
            Access::Bearer(token) => Auth::Bearer(token.clone()),
            Access::Key { .. } => Auth::Aws(Signer::new(context, fixed_key(access), signer)),
            Access::AwsChain { chain, fallback } => {
                let key = fallback.as_deref().map(fixed_key);
                let provider = aws_chain(chain, key, region);
                Auth::Aws(Signer::new(context, provider, signer))
            }
            Access::Google { json, path } => {
                Auth::Google(google(json.as_ref(), path.as_deref(), context))
            }
        }
    }

    /// The same credentials, signing for another region.
    pub(crate) fn for_region(&self, region: &str) -> Self {
        match self {
            Auth::Aws(signer) => {
                Auth::Aws(signer.clone().with_request_signer(Signature::new(region)))
            }
            other => other.clone(),
        }
    }

    /// Prefix of the service's own headers; Google takes Amazon's only with Amazon's signatures.
    pub(crate) fn header_prefix(&self) -> &'static str {
        match self {
            Auth::Anonymous | Auth::Aws(_) => "x-amz-",
            Auth::Bearer(_) | Auth::Google(_) => "x-goog-",
        }
    }

    /// Puts the signature on a request.
    ///
    /// # Errors
    /// `Denied` when no credentials are found or they cannot be renewed.
    pub(crate) async fn sign(&self, request: &mut Parts) -> Result<()> {
        match self {
            Auth::Anonymous => Ok(()),
            Auth::Bearer(token) => {
                let text = format!("Bearer {}", token.reveal());
                let mut value = HeaderValue::from_str(&text).map_err(|_| {
                    Error::new(Kind::Invalid, "the secret's BEARER_TOKEN is no header text")
                })?;
                value.set_sensitive(true);
                request.headers.insert(AUTHORIZATION, value);
                Ok(())
            }
            Auth::Aws(signer) => signer.sign(request, None).await.map_err(|error| {
                let key = [("key_id", "..."), ("secret", "..."), ("region", "...")];
                credential_error("AWS credentials", &error).with_hint(format!(
                    "Mend the source that is meant, or give a key instead: {}",
                    advice::options("s3", &key)
                ))
            }),
            Auth::Google(signer) => signer.sign(request, None).await.map_err(|error| {
                credential_error("Google credentials", &error).with_hint(format!(
                    "Run `gcloud auth application-default login`, set \
                     GOOGLE_APPLICATION_CREDENTIALS, or give a key instead: {}",
                    advice::options("gcs", &[("key_id", "..."), ("secret", "...")])
                ))
            }),
        }
    }
}

fn fixed_key(access: &Access) -> StaticCredentialProvider {
    match access {
        Access::Key { key_id, secret, token } => {
            let provider = StaticCredentialProvider::new(key_id.reveal(), secret.reveal());
            match token {
                Some(token) => provider.with_session_token(token.reveal()),
                None => provider,
            }
        }
        // An empty key loads as no credential.
        _ => StaticCredentialProvider::new("", ""),
    }
}

fn google(
    json: Option<&Secret>,
    path: Option<&str>,
    context: Context,
) -> Signer<reqsign_google::Credential> {
    let signer = reqsign_google::RequestSigner::new("storage").with_scope(GOOGLE_SCOPE);
    match (json, path) {
        (Some(json), _) => {
            let provider = reqsign_google::StaticCredentialProvider::new(json.reveal())
                .with_scope(GOOGLE_SCOPE);
            Signer::new(context, provider, signer)
        }
        (None, Some(path)) => {
            let provider =
                reqsign_google::FileCredentialProvider::new(path).with_scope(GOOGLE_SCOPE);
            Signer::new(context, provider, signer)
        }
        (None, None) => {
            let provider = reqsign_google::DefaultCredentialProvider::builder()
                .env(reqsign_google::EnvCredentialProvider::new().with_scope(GOOGLE_SCOPE))
                .well_known(
                    reqsign_google::WellKnownCredentialProvider::new().with_scope(GOOGLE_SCOPE),
                )
                .vm_metadata(
                    reqsign_google::VmMetadataCredentialProvider::new().with_scope(GOOGLE_SCOPE),
                )
                .build();
            Signer::new(context, provider, signer)
        }
    }
}

#[cfg(test)]
mod tests;
