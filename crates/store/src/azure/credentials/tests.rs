use super::super::config::Identity;
use super::*;
use crate::http::token_service::{Home, TokenService, context};
use penstock_base::{Kind, Retry};
use reqsign_core::{CommandExecute, CommandOutput};
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// A service that numbers its tokens.
async fn numbering(life_s: u64) -> TokenService {
    let count = AtomicUsize::new(0);
    TokenService::start(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        (200, format!("{{\"access_token\":\"t{number}\",\"expires_in\":{life_s}}}"))
    })
    .await
}

/// Credentials that share their tokens with nobody.
fn in_context(auth: &Auth, context: Context) -> Result<Credentials> {
    Credentials::in_context(auth, context, &SharedTokens::default())
}

fn principal() -> Source {
    Source::ClientSecret {
        tenant_id: Some("tenant".into()),
        client_id: Some("client".into()),
        secret: Some(Secret::new("hunter2")),
    }
}

/// Credentials of a service principal whose tokens come from `authority`.
fn principal_at(authority: &str) -> Credentials {
    let context = context(None, None, &[("AZURE_AUTHORITY_HOST", authority)]);
    in_context(&Auth::Sources(vec![principal()]), context).unwrap()
}

async fn signed(credentials: &Credentials) -> Result<String> {
    let request = http::Request::get("https://a.blob.core.windows.net/c/k").body(()).unwrap();
    let mut parts = request.into_parts().0;
    credentials.sign(&mut parts).await?;
    Ok(parts.headers["authorization"].to_str().unwrap().to_string())
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_before_it_ends() {
    let service = numbering(3600).await;
    let credentials = principal_at(&service.url);
    for _ in 0..3 {
        assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
    }
    assert_eq!(service.seen().len(), 1);
    // Tokens that end within the minute are good for one request only.
    let service = numbering(22).await;
    let credentials = principal_at(&service.url);
    assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
    let service = numbering(5).await;
    let error = signed(&principal_at(&service.url)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert_eq!(service.seen().len(), 1);
}

/// Stores of any number of containers, secrets and databases; at the same time too.
#[tokio::test]
async fn stores_of_the_same_sources_share_one_token() {
    let (service, tokens) = (numbering(3600).await, SharedTokens::default());
    let variables = [("AZURE_AUTHORITY_HOST", service.url.as_str())];
    let of = |source: Source, variables: &[(&str, &str)]| {
        let context = context(None, None, variables);
        Credentials::in_context(&Auth::Sources(vec![source]), context, &tokens).unwrap()
    };
    let stores: Vec<_> = (0..8).map(|_| of(principal(), &variables)).collect();
    let signed_all = futures_util::future::join_all(stores.iter().map(signed)).await;
    assert!(signed_all.into_iter().all(|token| token.unwrap() == "Bearer t0"));
    assert_eq!(service.seen().len(), 1);
    // Another identity, or another environment, has a token of its own.
    let Source::ClientSecret { tenant_id, secret, .. } = principal() else { unreachable!() };
    let other = Source::ClientSecret { tenant_id, client_id: Some("other".into()), secret };
    assert_eq!(signed(&of(other, &variables)).await.unwrap(), "Bearer t1");
    let changed = [variables[0], ("AZURE_CLIENT_ID", "new")];
    assert_eq!(signed(&of(principal(), &changed)).await.unwrap(), "Bearer t2");
    // Whoever comes first may go first: the others keep the token, and the last one drops it.
    let mut stores = stores;
    drop(stores.remove(0));
    assert_eq!(signed(&of(principal(), &variables)).await.unwrap(), "Bearer t0");
    drop(stores);
    assert_eq!(signed(&of(principal(), &variables)).await.unwrap(), "Bearer t3");
}

/// It must be good for 20 s behind each request.
#[tokio::test]
async fn a_shared_token_is_renewed_for_all_before_it_ends() {
    let (service, tokens) = (numbering(21).await, SharedTokens::default());
    let context = context(None, None, &[("AZURE_AUTHORITY_HOST", service.url.as_str())]);
    let auth = Auth::Sources(vec![principal()]);
    let store = || Credentials::in_context(&auth, context.clone(), &tokens).unwrap();
    let (first, second) = (store(), store());
    assert_eq!(signed(&first).await.unwrap(), "Bearer t0");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(signed(&second).await.unwrap(), "Bearer t1");
    assert_eq!(signed(&first).await.unwrap(), "Bearer t1");
}

#[tokio::test]
async fn a_service_principal_gets_a_token_with_its_secret() {
    let service = numbering(3600).await;
    signed(&principal_at(&service.url)).await.unwrap();
    // The same from the environment.
    let variables = [
        ("AZURE_AUTHORITY_HOST", service.url.as_str()),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "hunter2"),
    ];
    let source = Source::ClientSecret { tenant_id: None, client_id: None, secret: None };
    let auth = Auth::Sources(vec![source]);
    signed(&in_context(&auth, context(None, None, &variables)).unwrap()).await.unwrap();
    for request in service.seen() {
        assert!(request.starts_with("POST /tenant/oauth2/v2.0/token "), "{request}");
        assert!(request.contains("client_id=client"), "{request}");
        assert!(request.contains("client_secret=hunter2"), "{request}");
        assert!(request.contains("storage.azure.com"), "{request}");
    }
    assert_eq!(service.seen().len(), 2);
}

#[tokio::test]
async fn a_workload_changes_its_federated_token() {
    let service = numbering(3600).await;
    let home = Home::new();
    let token = home.write("token", "jwt-of-the-pod");
    let variables = [
        ("AZURE_AUTHORITY_HOST", service.url.as_str()),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_FEDERATED_TOKEN_FILE", token.as_str()),
    ];
    let context = context(None, None, &variables);
    let credentials = in_context(&Auth::Sources(vec![Source::Workload]), context).unwrap();
    assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
    let request = &service.seen()[0];
    assert!(request.starts_with("POST /tenant/oauth2/v2.0/token "), "{request}");
    assert!(request.contains("client_assertion=jwt-of-the-pod"), "{request}");
}

#[tokio::test]
async fn a_machine_has_an_identity() {
    let service = numbering(3600).await;
    let machine = Auth::Sources(vec![Source::ManagedIdentity(None)]);
    let on_vm = in_context(&machine, context(Some(&service), None, &[])).unwrap();
    assert_eq!(signed(&on_vm).await.unwrap(), "Bearer t0");
    assert!(service.seen()[0].starts_with("GET /metadata/identity/oauth2/token?"));
    assert!(service.seen()[0].contains("x-meant-for: 169.254.169.254"));
    assert!(service.seen()[0].contains("metadata: true"));
    let url = format!("{}/msi", service.url);
    let variables = [("IDENTITY_ENDPOINT", url.as_str()), ("IDENTITY_HEADER", "hunter2")];
    let named = Source::ManagedIdentity(Some(Identity::Client("mine".into())));
    let auth = Auth::Sources(vec![named]);
    let in_app = in_context(&auth, context(None, None, &variables)).unwrap();
    assert_eq!(signed(&in_app).await.unwrap(), "Bearer t1");
    assert!(service.seen()[1].starts_with("GET /msi?"));
    assert!(service.seen()[1].contains("client_id=mine"));
    assert!(service.seen()[1].contains("x-identity-header: hunter2"));
}

/// Plays the command line tool.
#[derive(Debug)]
struct Tool(i32);

impl CommandExecute for Tool {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> reqsign_core::Result<CommandOutput> {
        assert_eq!((program, &args[..2]), ("az", &["account", "get-access-token"][..]));
        assert!(args.contains(&"https://storage.azure.com/"));
        let end = Timestamp::now().as_second() + 3600;
        let told =
            format!("{{\"accessToken\":\"cli\",\"expires_on\":{end},\"tokenType\":\"Bearer\"}}");
        let stderr = b"Please run 'az login' to setup account.".to_vec();
        Ok(CommandOutput { status: self.0, stdout: told.into_bytes(), stderr })
    }
}

#[tokio::test]
async fn the_command_line_tool_gives_its_token() {
    let auth = Auth::Sources(vec![Source::Cli]);
    let with = |status| context(None, None, &[]).with_command_execute(Tool(status));
    assert_eq!(signed(&in_context(&auth, with(0)).unwrap()).await.unwrap(), "Bearer cli");
    let error = signed(&in_context(&auth, with(1)).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.to_string().contains("az login"), "{error}");
}

#[tokio::test]
async fn the_next_source_is_asked_when_one_has_nothing() {
    let service = numbering(3600).await;
    let none = Source::ClientSecret { tenant_id: None, client_id: None, secret: None };
    let chain = Auth::Sources(vec![none, Source::Workload, Source::ManagedIdentity(None)]);
    let credentials = in_context(&chain, context(Some(&service), None, &[])).unwrap();
    assert_eq!(signed(&credentials).await.unwrap(), "Bearer t0");
}

#[tokio::test]
async fn errors_name_every_source_and_no_secret() {
    let error = signed(&principal_at("http://127.0.0.1:1")).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("env: "), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let refused = TokenService::start(|_| (401, "{\"error\":\"invalid_client\"}".into())).await;
    let error = signed(&principal_at(&refused.url)).await.unwrap_err();
    assert!(error.hint().unwrap().contains("CREATE SECRET (TYPE azure"), "{error}");
    let shown = format!("{:?}", principal_at("http://127.0.0.1:1"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_busy_service_is_waited_for_and_a_missing_one_only_briefly() {
    let service = TokenService::start(|_| (503, String::new())).await;
    let machine = Auth::Sources(vec![Source::ManagedIdentity(None)]);
    let busy = in_context(&machine, context(Some(&service), None, &[])).unwrap();
    let error = signed(&busy).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Throttled, Retry::BackOff), "{error}");
    let error = signed(&principal_at("http://127.0.0.1:1")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Briefly), "{error}");
    let service = TokenService::start(|_| (401, "{\"error\":\"invalid_client\"}".into())).await;
    let error = signed(&principal_at(&service.url)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Denied, Retry::Never), "{error}");
}
