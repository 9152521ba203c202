//! Signs requests, and fetches and renews the tokens for it.
//!
//! The signing itself and the token exchanges are the signing crate's; this file chooses sources,
//! renews early, and says in errors which sources were asked and why each had nothing.

use super::config::{Auth, Identity, Source};
use crate::HttpClient;
use crate::http::{credential_context, credential_error};
use http::request::Parts;
use penstock_base::{Error, Result, Secret};
use reqsign_azure_storage::{
    AzureCliCredentialProvider, ClientCertificateCredentialProvider,
    ClientSecretCredentialProvider, Credential, ImdsCredentialProvider, RequestSigner,
    StaticCredentialProvider, WorkloadIdentityCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, Env, OsEnv, ProvideCredential, ProvideCredentialDyn, Signer};
use std::collections::HashMap;
use std::path::PathBuf;
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
    signer: Option<Signer<Credential>>,
    /// Signs links to blobs, where the credential is the account's key.
    link_signer: Option<Signer<Credential>>,
    what: &'static str,
}

impl Credentials {
    pub fn new(auth: &Auth, client: &HttpClient) -> Self {
        let context = credential_context(client);
        let fixed = |credential: Credential| {
            Some(Signer::new(context.clone(), Fixed(credential), RequestSigner::new()))
        };
        match auth {
            Auth::Anonymous => {
                Credentials { signer: None, link_signer: None, what: "Azure credentials" }
            }
            Auth::Key { account, key } => {
                let provider = StaticCredentialProvider::new_shared_key(account, key.reveal());
                let links = RequestSigner::new().with_service_sas_permissions("r");
                Credentials {
                    signer: fixed(Credential::with_shared_key(account, key.reveal())),
                    link_signer: Some(Signer::new(context.clone(), provider, links)),
                    what: "Azure account key",
                }
            }
            Auth::Sas(sas) => Credentials {
                signer: fixed(Credential::with_sas_token(sas.reveal())),
                link_signer: None,
                what: "Azure shared access signature",
            },
            Auth::Token(token) => Credentials {
                signer: fixed(Credential::with_bearer_token(token.reveal(), None)),
                link_signer: None,
                what: "Azure access token",
            },
            Auth::Sources(sources) => {
                let sources = sources.iter().map(|source| Link::new(source, &context)).collect();
                let signer = Signer::new(context.clone(), Chain(sources), RequestSigner::new());
                Credentials { signer: Some(signer), link_signer: None, what: "Azure credentials" }
            }
        }
    }

    /// Adds date and signature, fetching a token where none is fresh.
    ///
    /// # Errors
    /// `Denied` with every source that was asked and its answer.
    pub async fn sign(&self, parts: &mut Parts) -> Result<()> {
        match &self.signer {
            Some(signer) => signer.sign(parts, None).await.map_err(|error| self.told(&error)),
            None => Ok(()),
        }
    }

    /// Makes the GET request `parts` one that the service itself can send for a copy: the URL, and
    /// the token that must come with it, if any.
    pub async fn link(&self, mut parts: Parts) -> Result<(String, Option<Secret>)> {
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
        Ok((parts.uri.to_string(), token))
    }

    fn told(&self, error: &reqsign_core::Error) -> Error {
        credential_error(self.what, error)
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

/// One source with the world as it shall see it.
#[derive(Debug)]
struct Link {
    name: &'static str,
    provider: Box<dyn ProvideCredentialDyn<Credential = Credential>>,
    context: Context,
}

impl Link {
    fn new(source: &Source, context: &Context) -> Self {
        let mut environment = Environment::default();
        let provider: Box<dyn ProvideCredentialDyn<Credential = Credential>> = match source {
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
                Box::new(provider)
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
                Box::new(provider)
            }
            Source::Workload => Box::new(WorkloadIdentityCredentialProvider::new()),
            Source::ManagedIdentity(identity) => {
                environment = Environment::for_identity(identity.as_ref());
                Box::new(ImdsCredentialProvider::new())
            }
            Source::Cli => Box::new(AzureCliCredentialProvider::new()),
        };
        Link { name: source.name(), provider, context: context.clone().with_env(environment) }
    }
}

#[derive(Debug)]
struct Chain(Vec<Link>);

impl ProvideCredential for Chain {
    type Credential = Credential;

    async fn provide_credential(
        &self,
        _context: &Context,
    ) -> reqsign_core::Result<Option<Credential>> {
        let mut reasons: Vec<String> = Vec::new();
        let mut retryable = false;
        for Link { name, provider, context } in &self.0 {
            let reason = match provider.provide_credential_dyn(context).await {
                Ok(Some(credential)) => return Ok(Some(renewed_early(credential))),
                Ok(None) => format!("{name}: not configured"),
                Err(error) => {
                    retryable |= error.is_retryable();
                    let context = error.context().join(", ");
                    let context =
                        if context.is_empty() { context } else { format!(" ({context})") };
                    format!("{name}: {error}{context}")
                }
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let error = reqsign_core::Error::credential_invalid(reasons.join("; "));
        Err(error.set_retryable(retryable))
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

/// The process's environment, with the identity that the secret names in place of the
/// environment's.
#[derive(Debug, Default)]
struct Environment {
    hidden: &'static [&'static str],
    added: Vec<(&'static str, String)>,
}

impl Environment {
    fn for_identity(identity: Option<&Identity>) -> Self {
        /// The signing crate would take this name of a storage endpoint for the token service's.
        const ENDPOINT: &str = "AZBLOB_ENDPOINT";
        const IDS: &[&str] = &[
            ENDPOINT,
            "AZURE_OBJECT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_MSI_RESOURCE_ID",
            "AZURE_MSI_RES_ID",
        ];
        let (name, id) = match identity {
            None => return Environment { hidden: &IDS[..1], added: Vec::new() },
            Some(Identity::Client(id)) => ("AZURE_CLIENT_ID", id),
            Some(Identity::Object(id)) => ("AZURE_OBJECT_ID", id),
            Some(Identity::Resource(id)) => ("AZURE_MSI_RES_ID", id),
        };
        Environment { hidden: IDS, added: vec![(name, id.clone())] }
    }
}

impl Env for Environment {
    fn var(&self, name: &str) -> Option<String> {
        if let Some((_, value)) = self.added.iter().find(|(added, _)| *added == name) {
            return Some(value.clone());
        }
        if self.hidden.contains(&name) { None } else { OsEnv.var(name) }
    }

    fn vars(&self) -> HashMap<String, String> {
        let mut vars = OsEnv.vars();
        vars.retain(|name, _| !self.hidden.contains(&name.as_str()));
        vars.extend(self.added.iter().map(|(name, value)| (name.to_string(), value.clone())));
        vars
    }

    fn home_dir(&self) -> Option<PathBuf> {
        OsEnv.home_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_before_they_end() {
        let now = Timestamp::now();
        for (life, early) in [(3600, 300), (100, 40), (30, 0)] {
            let end = now + Duration::from_secs(life);
            let made = renewed_early(Credential::with_bearer_token("t", Some(end)));
            let Credential::BearerToken { expires_in: Some(told), .. } = made else {
                panic!("a token stays a token");
            };
            let ahead = end.as_second() - told.as_second();
            assert!((early - 2..=early + 2).contains(&ahead), "{ahead}");
        }
    }

    #[test]
    fn named_identity_hides_the_environments() {
        let environment = Environment::for_identity(Some(&Identity::Object("o".into())));
        assert_eq!(environment.var("AZURE_OBJECT_ID").as_deref(), Some("o"));
        let vars = environment.vars();
        assert_eq!(vars.get("AZURE_OBJECT_ID").map(String::as_str), Some("o"));
        assert!(!vars.contains_key("AZURE_CLIENT_ID"));
        assert_eq!(vars.contains_key("PATH"), std::env::var("PATH").is_ok());
    }
}
