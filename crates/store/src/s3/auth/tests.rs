use super::*;
use crate::s3::config::{ChainSource, ChainSpec};
use crate::{HttpOptions, Observer, RequestEvent};
use ::http::Request;
use reqsign_core::StaticEnv;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

fn context(home: Option<PathBuf>, variables: &[(&str, &str)]) -> Context {
    let http = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
    let envs: HashMap<String, String> =
        variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    credential_context(&http).with_env(StaticEnv { home_dir: home, envs })
}

fn chain(sources: &[ChainSource], profile: Option<&str>) -> ChainSpec {
    let profile = profile.map(str::to_string);
    ChainSpec { sources: sources.to_vec(), profile, ..ChainSpec::default() }
}

fn access(chain: ChainSpec) -> Access {
    Access::AwsChain { chain, fallback: None }
}

async fn signed(auth: &Auth) -> Result<Parts> {
    let request = Request::get("http://bucket.example/key").body(()).unwrap();
    let mut parts = request.into_parts().0;
    auth.sign(&mut parts).await?;
    Ok(parts)
}

fn key_id(parts: &Parts) -> &str {
    let text = parts.headers[AUTHORIZATION].to_str().unwrap();
    text.split("Credential=").nth(1).unwrap().split('/').next().unwrap()
}

/// A container metadata service whose n-th credentials live as long as the n-th entry says.
async fn metadata(lives_s: &'static [i64]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/creds", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let _ = stream.read(&mut request).await;
            let turn = count.fetch_add(1, Ordering::SeqCst);
            let life = jiff::SignedDuration::from_secs(lives_s[turn.min(lives_s.len() - 1)]);
            let expiration = jiff::Timestamp::now() + life;
            let body = format!(
                "{{\"AccessKeyId\":\"KEY{turn}\",\"SecretAccessKey\":\"hunter2\",\
                 \"Token\":\"token{turn}\",\"Expiration\":\"{expiration}\"}}"
            );
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    (url, asked)
}

#[tokio::test]
async fn credentials_are_renewed_before_they_expire_and_kept_while_fresh() {
    // The first ones are usable, but expire within the two minutes in which renewal begins.
    let (url, asked) = metadata(&[60, 3600]).await;
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())];
    let access = access(chain(&[ChainSource::Environment, ChainSource::Metadata], None));
    let auth = Auth::in_context(&access, "us-east-1", context(None, &variables));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let parts = signed(&auth).await.unwrap();
        let token = parts.headers["x-amz-security-token"].to_str().unwrap();
        seen.push(format!("{} {token}", key_id(&parts)));
    }
    assert_eq!(seen, ["KEY0 token0", "KEY1 token1", "KEY1 token1", "KEY1 token1"]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // Another region of the same bucket shares what was found.
    let parts = signed(&auth.for_region("eu-west-1")).await.unwrap();
    assert_eq!(key_id(&parts), "KEY1");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn expired_credentials_are_denied_not_sent() {
    let (url, _) = metadata(&[-60]).await;
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())];
    let access = access(chain(&[ChainSource::Metadata], None));
    let auth = Auth::in_context(&access, "us-east-1", context(None, &variables));
    let error = signed(&auth).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn nothing_found_is_denied_with_the_cure() {
    let sources = [ChainSource::Environment, ChainSource::Profile, ChainSource::Sso];
    let access = access(chain(&sources, None));
    let auth = Auth::in_context(&access, "us-east-1", context(None, &[]));
    let error = signed(&auth).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.hint().unwrap().contains("CREATE SECRET"), "{error}");
}

#[tokio::test]
async fn named_profile_wins_over_the_environment() {
    let home = std::env::temp_dir().join(format!("penstock-aws-home-{}", std::process::id()));
    std::fs::create_dir_all(home.join(".aws")).unwrap();
    let file = "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = s\n\
                [work]\naws_access_key_id = WORK\naws_secret_access_key = s\n";
    std::fs::write(home.join(".aws/credentials"), file).unwrap();
    let variables = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s")];
    for (profile, expected) in [(Some("work"), "WORK"), (None, "ENV")] {
        let access = access(chain(&[], profile));
        let auth = Auth::in_context(&access, "us-east-1", context(Some(home.clone()), &variables));
        assert_eq!(key_id(&signed(&auth).await.unwrap()), expected, "{profile:?}");
    }
    std::fs::remove_dir_all(home).unwrap();
}

#[tokio::test]
async fn key_of_the_secret_stands_in_when_the_chain_finds_nothing() {
    let key = Access::Key {
        key_id: Secret::new("OLD"),
        secret: Secret::new("s"),
        token: Some(Secret::new("t")),
    };
    let chain = chain(&[ChainSource::Environment], None);
    let access = Access::AwsChain { chain, fallback: Some(Box::new(key)) };
    let empty = Auth::in_context(&access, "us-east-1", context(None, &[]));
    assert_eq!(key_id(&signed(&empty).await.unwrap()), "OLD");
    let variables = [("AWS_ACCESS_KEY_ID", "NEW"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let found = Auth::in_context(&access, "us-east-1", context(None, &variables));
    assert_eq!(key_id(&signed(&found).await.unwrap()), "NEW");
}
