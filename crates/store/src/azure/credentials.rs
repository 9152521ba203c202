//! Signs requests, and fetches and renews the tokens for it.
//!
//! The token exchanges are the signing crate's, as are signatures but those of each request by an
//! account's key (`shared_key.rs`); this file chooses sources, renews early, and says in errors
//! which sources were asked and why each had nothing.

use super::config::{Auth, Source};
use super::identity::MachineIdentity;
use super::shared_key::SharedKey;
use super::shared_tokens::{PROCESS, Shared, SharedTokens};
use crate::HttpClient;
use crate::advice;
use crate::http::{Chain, OnFailure, credential_context, credential_error};
use http::request::Parts;
use penstock_base::{Error, Result, Secret};
use reqsign_azure_storage::{
    AzureCliCredentialProvider, ClientCertificateCredentialProvider,
    ClientSecretCredentialProvider, Credential, RequestSigner, StaticCredentialProvider,
    WorkloadIdentityCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, ProvideCredential, Signer};
use std::time::Duration;

/// A token is renewed this long before it ends, so that no request of a long query carries one that
/// ends on the way.
const RENEW_BEFORE_END: Duration = Duration::from_secs(300);
/// What is left of a short-lived token's life all the same.
const LIFE_KEPT: Duration = Duration::from_secs(60);
/// How long a signed link for a server-side copy is good; the service reads it at once.
const LINK_LIFE: Duration = Duration::from_secs(3600);

/// Signs the requests of one store.
#[derive(Debug)]
pub(super) struct Credentials {
    signing: Signing,
    /// Signs links to blobs, where the credential is the account's key.
    link_signer: Option<Signer<Credential>>,
    what: &'static str,
}

#[derive(Debug)]
enum Signing {
    Anonymous,
    Key(SharedKey),
    Signer(Signer<Credential>),
    Tokens(Shared),
}

impl Credentials {
    /// # Errors
    /// `Invalid` for an account's key that is not base64.
    pub fn new(auth: &Auth, client: &HttpClient) -> Result<Self> {
        Credentials::in_context(auth, credential_context(client), &PROCESS)
    }

    fn in_context(auth: &Auth, context: Context, tokens: &SharedTokens) -> Result<Self> {
        let fixed = |credential: Credential| {
            Signing::Signer(Signer::new(context.clone(), Fixed(credential), RequestSigner::new()))
        };
        let (signing, what) = match auth {
            Auth::Anonymous => (Signing::Anonymous, "Azure credentials"),
            Auth::Key { account, key } => {
                (Signing::Key(SharedKey::new(account, key)?), "Azure account key")
            }
            Auth::Sas(sas) => {
                (fixed(Credential::with_sas_token(sas.reveal())), "Azure shared access signature")
            }
            Auth::Token(token) => {
                (fixed(Credential::with_bearer_token(token.reveal(), None)), "Azure access token")
            }
            Auth::Sources(sources) => {
                let make =
                    || Signer::new(context.clone(), Tokens::new(sources), RequestSigner::new());
                (Signing::Tokens(tokens.of(sources, &context, make)), "Azure credentials")
            }
        };
        let link_signer = match auth {
            Auth::Key { account, key } => {
                let provider = StaticCredentialProvider::new_shared_key(account, key.reveal());
                let links = RequestSigner::new().with_service_sas_permissions("r");
                Some(Signer::new(context, provider, links))
            }
            Auth::Anonymous | Auth::Sas(_) | Auth::Token(_) | Auth::Sources(_) => None,
        };
        Ok(Credentials { signing, link_signer, what })
    }

    /// Adds date and signature, fetching a token where none is fresh.
    ///
    /// # Errors
    /// `Denied` with every source that was asked and its answer.
    pub async fn sign(&self, parts: &mut Parts) -> Result<()> {
        match &self.signing {
            Signing::Anonymous => Ok(()),
            Signing::Key(key) => key.sign(parts, Timestamp::now().as_system_time()),
            Signing::Signer(signer) | Signing::Tokens(Shared { signer, .. }) => {
                signer.sign(parts, None).await.map_err(|error| self.told(&error))
            }
        }
    }

    /// Makes the GET request `parts` one that the service itself can send for a copy: the query
    /// with a signature, or the token that must come with it, if any.
    pub async fn link(&self, mut parts: Parts) -> Result<(Option<String>, Option<Secret>)> {
        match &self.link_signer {
            Some(signer) => {
                signer
                    .sign(&mut parts, Some(LINK_LIFE))
                    .await
                    .map_err(|error| self.told(&error))?;
            }
            None => self.sign(&mut parts).await?,
        }
        let token = parts.headers.get(http::header::AUTHORIZATION);
        let token = token.and_then(|value| value.to_str().ok()).map(Secret::new);
        Ok((parts.uri.query().map(str::to_string), token))
    }

    /// The query that lets the service read one version of a blob, given as container and key, by
    /// itself; `None` where the credential is not the account's key, and for no version.
    pub fn version_link(&self, place: (&str, &str), version: Option<&str>) -> Option<String> {
        let Signing::Key(key) = &self.signing else { return None };
        let end = (Timestamp::now() + LINK_LIFE).as_system_time();
        Some(key.version_link(place, version?, end))
    }

    fn told(&self, error: &reqsign_core::Error) -> Error {
        let key = advice::options("azure", &[("connection_string", "...")]);
        credential_error(self.what, error).with_hint(format!(
            "Mend the source that is meant (`az login`, AZURE_CLIENT_ID and its kin, the machine's \
             identity), or give a key instead: {key}"
        ))
    }
}

#[derive(Debug)]
struct Fixed(Credential);

impl ProvideCredential for Fixed {
    type Credential = Credential;

    async fn provide_credential(
        &self,
        _context: &Context,
    ) -> reqsign_core::Result<Option<Credential>> {
        Ok(Some(self.0.clone()))
    }
}

/// The sources of a chain, whose tokens are renewed early.
#[derive(Debug)]
struct Tokens(Chain<Credential>);

impl Tokens {
    fn new(sources: &[Source]) -> Self {
        Tokens(sources.iter().fold(Chain::new(OnFailure::GoOn), then_source))
    }
}

impl ProvideCredential for Tokens {
    type Credential = Credential;

    async fn provide_credential(
        &self,
        context: &Context,
    ) -> reqsign_core::Result<Option<Credential>> {
        Ok(self.0.provide_credential(context).await?.map(renewed_early))
    }
}

fn then_source(chain: Chain<Credential>, source: &Source) -> Chain<Credential> {
    let name = source.name();
    match source {
        Source::ClientSecret { tenant_id, client_id, secret } => {
            let mut provider = ClientSecretCredentialProvider::new();
            if let Some(id) = tenant_id {
                provider = provider.with_tenant_id(id);
            }
            if let Some(id) = client_id {
                provider = provider.with_client_id(id);
            }
            if let Some(secret) = secret {
                provider = provider.with_client_secret(secret.reveal());
            }
            chain.then(name, provider)
        }
        Source::ClientCertificate { tenant_id, client_id, path } => {
            let mut provider = ClientCertificateCredentialProvider::new();
            if let Some(id) = tenant_id {
                provider = provider.with_tenant_id(id);
            }
            if let Some(id) = client_id {
                provider = provider.with_client_id(id);
            }
            if let Some(path) = path {
                provider = provider.with_certificate_path(path);
            }
            chain.then(name, provider)
        }
        Source::Workload => chain.then(name, WorkloadIdentityCredentialProvider::new()),
        Source::ManagedIdentity(identity) => {
            chain.then_guess(name, MachineIdentity(identity.clone()))
        }
        Source::Cli => chain.then(name, AzureCliCredentialProvider::new()),
    }
}

fn renewed_early(credential: Credential) -> Credential {
    match credential {
        Credential::BearerToken { token, expires_in: Some(end) } => {
            let left = end.as_system_time().duration_since(Timestamp::now().as_system_time());
            let left = left.unwrap_or_default();
            let early = RENEW_BEFORE_END.min(left.saturating_sub(LIFE_KEPT));
            Credential::with_bearer_token(&token, Some(end - early))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
