//! Signs requests, and fetches and renews the tokens for it.
//!
//! The signing itself and the token exchanges are the signing crate's; this file chooses sources,
//! renews early, and says in errors which sources were asked and why each had nothing.

use super::config::{Auth, Source};
use super::identity::MachineIdentity;
use crate::HttpClient;
use crate::http::{credential_context, credential_error};
use http::request::Parts;
use penstock_base::{Error, Result, Secret};
use reqsign_azure_storage::{
    AzureCliCredentialProvider, ClientCertificateCredentialProvider,
    ClientSecretCredentialProvider, Credential, RequestSigner, StaticCredentialProvider,
    WorkloadIdentityCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, ProvideCredential, ProvideCredentialDyn, Signer};
use std::fmt;
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
                let sources = sources.iter().map(Link::new).collect();
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

/// One source and its name.
struct Link {
    name: &'static str,
    provider: Box<dyn ProvideCredentialDyn<Credential = Credential>>,
}

impl fmt::Debug for Link {
    /// The signing crate's sources show the secrets they hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Link {
    fn new(source: &Source) -> Self {
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
            Source::ManagedIdentity(identity) => Box::new(MachineIdentity(identity.clone())),
            Source::Cli => Box::new(AzureCliCredentialProvider::new()),
        };
        Link { name: source.name(), provider }
    }
}

#[derive(Debug)]
struct Chain(Vec<Link>);

impl ProvideCredential for Chain {
    type Credential = Credential;

    async fn provide_credential(
        &self,
        context: &Context,
    ) -> reqsign_core::Result<Option<Credential>> {
        let mut reasons: Vec<String> = Vec::new();
        let mut retryable = false;
        for Link { name, provider } in &self.0 {
            let reason = match provider.provide_credential_dyn(context).await {
                Ok(Some(credential)) => return Ok(Some(renewed_early(credential))),
                Ok(None) => format!("{name}: not configured"),
                Err(error) => {
                    // Off Azure nobody answers for the machine, however often one asks.
                    let is_guess = *name == "managed_identity" && self.0.len() > 1;
                    retryable |= error.is_retryable() && !is_guess;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpOptions, Observer, RequestEvent};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[derive(Debug)]
    struct Deaf;

    impl Observer for Deaf {
        fn request_finished(&self, _event: RequestEvent) {}
    }

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

    /// A token service that hands out tokens of the given life and counts them.
    async fn token_service(life_s: u64) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let handed_out = Arc::new(AtomicUsize::new(0));
        let count = handed_out.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let mut length = 0;
                while !String::from_utf8_lossy(&request[..length]).contains("grant_type") {
                    length += socket.read(&mut request[length..]).await.unwrap();
                }
                let number = count.fetch_add(1, Ordering::Relaxed);
                let body = format!("{{\"access_token\":\"t{number}\",\"expires_in\":{life_s}}}");
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
                let answer = format!("{head} {}\r\n\r\n{body}", body.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, handed_out)
    }

    /// Credentials of a service principal whose tokens come from `authority`.
    fn principal(authority: &str) -> Credentials {
        let client = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
        let provider = ClientSecretCredentialProvider::new()
            .with_tenant_id("t")
            .with_client_id("c")
            .with_client_secret("hunter2")
            .with_authority_host(authority);
        let context = credential_context(&client);
        let link = Link { name: "env", provider: Box::new(provider) };
        let signer = Signer::new(context, Chain(vec![link]), RequestSigner::new());
        Credentials { signer: Some(signer), link_signer: None, what: "Azure credentials" }
    }

    async fn signed(credentials: &Credentials) -> Result<String> {
        let request = http::Request::get("https://a.blob.core.windows.net/c/k").body(()).unwrap();
        let mut parts = request.into_parts().0;
        credentials.sign(&mut parts).await?;
        Ok(parts.headers["authorization"].to_str().unwrap().to_string())
    }

    #[tokio::test]
    async fn a_token_is_fetched_once_and_again_before_it_ends() {
        let (authority, handed_out) = token_service(3600).await;
        let credentials = principal(&authority);
        for _ in 0..3 {
            assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
        }
        assert_eq!(handed_out.load(Ordering::Relaxed), 1);
        // Tokens that end within the minute are good for one request only.
        let (authority, _) = token_service(22).await;
        let credentials = principal(&authority);
        assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
        let (authority, handed_out) = token_service(5).await;
        let error = signed(&principal(&authority)).await.unwrap_err();
        assert_eq!(error.kind(), penstock_base::Kind::Denied, "{error}");
        assert_eq!(handed_out.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn errors_name_every_source_and_no_secret() {
        let error = signed(&principal("http://127.0.0.1:1")).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("env: "), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        let shown = format!("{:?}", principal("http://127.0.0.1:1"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
