//! Tokens of the machine's own identity.
//!
//! Virtual machines have a metadata service at a fixed address; App Service, Functions and
//! Container Apps name theirs in the environment (IDENTITY_ENDPOINT and IDENTITY_HEADER) and speak
//! another version. The signing crate knows only the first, so the exchange is here.

use super::config::Identity;
use bytes::Bytes;
use http::{Method, Request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqsign_azure_storage::Credential;
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, Error, ProvideCredential, Result};
use serde::Deserialize;
use std::time::Duration;

const METADATA_SERVICE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
const RESOURCE: &str = "https://storage.azure.com/";

/// A source of tokens for the identity of the machine, or one of its identities.
#[derive(Clone, Debug)]
pub(super) struct MachineIdentity(pub Option<Identity>);

/// Services write the end of a token's life as a number or as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_on: Option<Seconds>,
    expires_in: Option<Seconds>,
}

impl MachineIdentity {
    fn request(&self, context: &Context) -> Result<Request<Bytes>> {
        let given = |name: &str| context.env_var(name).filter(|value| !value.is_empty());
        let (url, version, header, secret, resource_name) =
            match (given("IDENTITY_ENDPOINT"), given("IDENTITY_HEADER")) {
                (Some(url), Some(secret)) => {
                    (url, "2019-08-01", "X-IDENTITY-HEADER", secret, "mi_res_id")
                }
                _ => {
                    let url = given("AZURE_POD_IDENTITY_AUTHORITY_HOST").map(|host| {
                        format!("{}/metadata/identity/oauth2/token", host.trim_end_matches('/'))
                    });
                    let url = url.unwrap_or_else(|| METADATA_SERVICE.to_string());
                    (url, "2018-02-01", "Metadata", "true".to_string(), "msi_res_id")
                }
            };
        let mut url = format!("{url}?api-version={version}&resource={}", encoded(RESOURCE));
        let identity = match &self.0 {
            None => None,
            Some(Identity::Client(id)) => Some(("client_id", id)),
            Some(Identity::Object(id)) => Some(("object_id", id)),
            Some(Identity::Resource(id)) => Some((resource_name, id)),
        };
        if let Some((name, id)) = identity {
            url.push_str(&format!("&{name}={}", encoded(id)));
        }
        Request::builder()
            .method(Method::GET)
            .uri(url)
            .header(header, secret)
            .body(Bytes::new())
            .map_err(|error| {
                Error::config_invalid("the identity endpoint is no URL").with_source(error)
            })
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl ProvideCredential for MachineIdentity {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let answer = context.http_send(self.request(context)?).await?;
        let status = answer.status();
        if !status.is_success() {
            // 410 too: the service is being updated (its documentation, "Retry guidance").
            let is_busy = matches!(status.as_u16(), 410 | 429) || status.is_server_error();
            let error = if is_busy {
                Error::rate_limited("the machine's identity service is busy")
            } else {
                Error::credential_invalid("the machine's identity service refused a token")
            };
            return Err(error.with_context(format!("http_status: {status}")));
        }
        let answer: Answer = serde_json::from_slice(answer.body())
            .map_err(|_| Error::unexpected("the identity service's answer is no token"))?;
        let end = end_of_life(&answer)?;
        Ok(Some(Credential::with_bearer_token(&answer.access_token, end)))
    }
}

fn end_of_life(answer: &Answer) -> Result<Option<Timestamp>> {
    let number = |seconds: &Seconds| match seconds {
        Seconds::Number(number) => Some(*number),
        Seconds::Text(text) => text.trim().parse().ok(),
    };
    if let Some(end) = answer.expires_on.as_ref().and_then(number) {
        return Timestamp::from_second(end).map(Some);
    }
    let life =
        answer.expires_in.as_ref().and_then(number).and_then(|life| u64::try_from(life).ok());
    Ok(life.map(|life| Timestamp::now() + Duration::from_secs(life)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqsign_core::StaticEnv;
    use std::collections::HashMap;

    fn url(identity: Option<Identity>, env: &[(&str, &str)]) -> (String, String) {
        let envs =
            env.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect::<HashMap<_, _>>();
        let context = Context::new().with_env(StaticEnv { home_dir: None, envs });
        let request = MachineIdentity(identity).request(&context).unwrap();
        let header = request.headers().keys().next().unwrap().to_string();
        (request.uri().to_string(), header)
    }

    #[test]
    fn each_host_is_asked_in_its_own_way() {
        let (machine, header) = url(Some(Identity::Object("o".into())), &[]);
        assert_eq!(
            machine,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01\
             &resource=https%3A%2F%2Fstorage%2Eazure%2Ecom%2F&object_id=o"
        );
        assert_eq!(header, "metadata");
        let env = [("IDENTITY_ENDPOINT", "http://127.0.0.1:1/msi"), ("IDENTITY_HEADER", "s")];
        let (app, header) = url(Some(Identity::Resource("/sub/x".into())), &env);
        assert!(app.starts_with("http://127.0.0.1:1/msi?api-version=2019-08-01"), "{app}");
        assert!(app.ends_with("&mi_res_id=%2Fsub%2Fx"), "{app}");
        assert_eq!(header, "x-identity-header");
    }

    #[test]
    fn life_may_be_number_or_text() {
        for json in [
            r#"{"access_token":"t","expires_on":"1900000000"}"#,
            r#"{"access_token":"t","expires_on":1900000000}"#,
        ] {
            let end = end_of_life(&serde_json::from_str(json).unwrap()).unwrap().unwrap();
            assert_eq!(end.as_second(), 1_900_000_000);
        }
        let none: Answer = serde_json::from_str(r#"{"access_token":"t"}"#).unwrap();
        assert!(end_of_life(&none).unwrap().is_none());
    }
}
