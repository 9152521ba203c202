//! Each source of the AWS chain against a service that plays its part.

use super::*;
use crate::http::token_service::{Home, TokenService, context};
use reqsign_core::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ROLE: &str = "arn:aws:iam::123456789012:role/";

/// The end of a life of `seconds`, as the services write it.
fn end(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn json_key(id: &str) -> String {
    format!(
        "{{\"Code\":\"Success\",\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"hunter2\",\
         \"Token\":\"token-of-{id}\",\"Expiration\":\"{}\"}}",
        end(3600)
    )
}

fn sts_key(action: &str, id: &str) -> String {
    format!(
        "<{action}Response><{action}Result><Credentials><AccessKeyId>{id}</AccessKeyId>\
         <SecretAccessKey>hunter2</SecretAccessKey><SessionToken>token-of-{id}</SessionToken>\
         <Expiration>{}</Expiration></Credentials></{action}Result></{action}Response>",
        end(3600)
    )
}

fn named(sources: &[ChainSource], profile: Option<&str>) -> ChainSpec {
    let profile = profile.map(str::to_string);
    ChainSpec { sources: sources.to_vec(), profile, ..ChainSpec::default() }
}

async fn ask(spec: &ChainSpec, context: &Context) -> Result<Credential> {
    let found = aws_chain(spec, None, "us-east-1").provide_credential(context).await?;
    Ok(found.expect("a chain that finds nothing says why"))
}

#[tokio::test]
async fn instance_metadata_is_asked_with_a_session_token() {
    let service = TokenService::start(|request| {
        let line = request.lines().next().unwrap();
        let has_token =
            request.to_ascii_lowercase().contains("x-aws-ec2-metadata-token: imds-token");
        match line.split(' ').nth(1).unwrap() {
            "/latest/api/token" if line.starts_with("PUT ") => (200, "imds-token".into()),
            _ if !has_token => (401, String::new()),
            "/latest/meta-data/iam/security-credentials/" => (200, "lake-role".into()),
            "/latest/meta-data/iam/security-credentials/lake-role" => (200, json_key("INSTANCE")),
            other => (404, other.to_string()),
        }
    })
    .await;
    // Often a file names a region and no credentials.
    let home = Home::new();
    home.write(".aws/config", "[default]\nregion = eu-west-1\n");
    for home in [None, Some(home.0.as_path())] {
        let context = context(Some(&service), home, &[]);
        for sources in [&[][..], &[ChainSource::Metadata]] {
            let found = ask(&named(sources, None), &context).await.unwrap();
            assert_eq!(found.access_key_id, "INSTANCE");
            assert!(found.expires_in.is_some());
        }
    }
    assert!(service.seen().iter().all(|request| request.contains("169.254.169.254")));
}

#[tokio::test]
async fn container_credentials_come_from_either_address() {
    let service =
        TokenService::start(|request| match request.contains("authorization: pod-token") {
            true => (200, json_key("FULL")),
            false => (200, json_key("RELATIVE")),
        })
        .await;
    let spec = named(&[ChainSource::Metadata], None);
    let relative = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/x")];
    let found = ask(&spec, &context(Some(&service), None, &relative)).await.unwrap();
    assert_eq!(found.access_key_id, "RELATIVE");
    assert!(service.seen()[0].contains("169.254.170.2"), "{:?}", service.seen());
    let home = Home::new();
    let token = home.write("token", "pod-token\n");
    let full = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.as_str()),
    ];
    let found = ask(&spec, &context(None, None, &full)).await.unwrap();
    assert_eq!(found.access_key_id, "FULL");
}

#[tokio::test]
async fn web_identity_is_changed_for_a_key() {
    let service =
        TokenService::start(|_| (200, sts_key("AssumeRoleWithWebIdentity", "ASIAWEBIDENTITY00")))
            .await;
    let home = Home::new();
    let token = home.write("token", "jwt-of-the-pod\n");
    let role = format!("{ROLE}pod");
    let variables =
        [("AWS_ROLE_ARN", role.as_str()), ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str())];
    let by_variables = context(Some(&service), None, &variables);
    for sources in [&[][..], &[ChainSource::WebIdentity]] {
        let found = ask(&named(sources, None), &by_variables).await.unwrap();
        assert_eq!(found.access_key_id, "ASIAWEBIDENTITY00");
    }
    home.write(
        ".aws/config",
        &format!("[profile pod]\nrole_arn = {role}\nweb_identity_token_file = {token}\n"),
    );
    let by_profile = context(Some(&service), Some(&home.0), &[("AWS_PROFILE", "pod")]);
    ask(&named(&[], None), &by_profile).await.unwrap();
    for request in service.seen() {
        assert!(request.contains("x-meant-for: sts.amazonaws.com"), "{request}");
        assert!(request.contains("WebIdentityToken=jwt-of-the-pod"), "{request}");
        assert!(request.contains("Action=AssumeRoleWithWebIdentity"), "{request}");
    }
    assert_eq!(service.seen().len(), 3);
}

/// The cache file of `aws sso login`: its name is the SHA-1 of the session or start URL.
fn cached_login(home: &Home, name: &str, life_s: i64) {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, name.as_bytes());
    let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{{\"accessToken\":\"sso-login\",\"expiresAt\":\"{}\"}}", end(life_s));
    home.write(&format!(".aws/sso/cache/{hash}.json"), &text);
}

#[tokio::test]
async fn sso_logins_are_changed_for_keys() {
    let service = TokenService::start(|_| {
        let millis = jiff::Timestamp::now().as_millisecond() + 3_600_000;
        let body = format!(
            "{{\"roleCredentials\":{{\"accessKeyId\":\"SSO\",\"secretAccessKey\":\"hunter2\",\
             \"sessionToken\":\"t\",\"expiration\":{millis}}}}}"
        );
        (200, body)
    })
    .await;
    let home = Home::new();
    let rest = "sso_account_id = 123456789012\nsso_role_name = reader\n";
    home.write(
        ".aws/config",
        &format!(
            "[profile new]\nsso_session = corp\n{rest}[sso-session corp]\nsso_region = eu-west-1\n\
             sso_start_url = https://corp/start\n[profile old]\n{rest}sso_region = eu-west-1\n\
             sso_start_url = https://old/start\n[profile keys]\naws_access_key_id = K\n"
        ),
    );
    cached_login(&home, "corp", 600);
    cached_login(&home, "https://old/start", 600);
    let variables = [("AWS_SSO_ENDPOINT", service.url.as_str())];
    let context = context(None, Some(&home.0), &variables);
    for (sources, profile) in
        [(&[][..], "new"), (&[ChainSource::Sso], "new"), (&[ChainSource::Profile], "old")]
    {
        let found = ask(&named(sources, Some(profile)), &context).await.unwrap();
        assert_eq!(found.access_key_id, "SSO", "{profile}");
    }
    for request in service.seen() {
        assert!(request.contains("x-amz-sso_bearer_token: sso-login"), "{request}");
        assert!(request.contains("role_name=reader&account_id=123456789012"), "{request}");
    }
    // A login that has ended, and a profile that is none of SSO.
    cached_login(&home, "corp", -600);
    let error = ask(&named(&[ChainSource::Sso], Some("new")), &context).await.unwrap_err();
    assert!(error.to_string().contains("aws sso login"), "{error}");
    assert!(!format!("{error} {error:?}").contains("sso-login"), "{error:?}");
    let error = ask(&named(&[ChainSource::Sso], Some("keys")), &context).await.unwrap_err();
    assert!(error.to_string().contains("SSO: not configured"), "{error}");
}

#[tokio::test]
async fn credential_processes_run() {
    let home = Home::new();
    let script = home.write(
        "helper",
        "#!/bin/sh\necho '{\"Version\":1,\"AccessKeyId\":\"'$1'\",\"SecretAccessKey\":\"s\"}'\n",
    );
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.write(".aws/config", &format!("[default]\ncredential_process = {script} PROCESS\n"));
    let context = context(None, Some(&home.0), &[("AWS_EC2_METADATA_DISABLED", "true")]);
    for sources in [&[][..], &[ChainSource::Process]] {
        let found = ask(&named(sources, None), &context).await.unwrap();
        assert_eq!(found.access_key_id, "PROCESS");
    }
}

fn query_of(request: &str, name: &str) -> String {
    let query = request.split([' ', '\n']).find(|word| word.contains("Action=")).unwrap();
    let value = query.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")));
    percent_encoding::percent_decode_str(value.unwrap_or_default()).decode_utf8_lossy().to_string()
}

/// A token service that grants every role: the key is named after the role.
async fn granting() -> TokenService {
    TokenService::start(|request| {
        let role = query_of(request, "RoleArn");
        let name = role.rsplit('/').next().unwrap().to_uppercase();
        (200, sts_key("AssumeRole", &format!("ASIA0000000000{name}")))
    })
    .await
}

fn role_profiles() -> Home {
    let home = Home::new();
    home.write(
        ".aws/config",
        &format!(
            "[profile two]\nrole_arn = {ROLE}two\nsource_profile = one\nexternal_id = ext-1\n\
             role_session_name = nightly\nregion = eu-west-1\n\
             [profile one]\nrole_arn = {ROLE}one\nsource_profile = base\n\
             [profile env]\nrole_arn = {ROLE}env\ncredential_source = Environment\n"
        ),
    );
    let keys = "[base]\naws_access_key_id = BASE\naws_secret_access_key = hunter2\n";
    home.write(".aws/credentials", keys);
    home
}

#[tokio::test]
async fn roles_of_profiles_are_assumed_one_after_the_other() {
    let service = granting().await;
    let home = role_profiles();
    let context = context(Some(&service), Some(&home.0), &[("AWS_PROFILE", "two")]);
    let found = ask(&named(&[], None), &context).await.unwrap();
    assert_eq!(found.access_key_id, "ASIA0000000000TWO");
    assert_eq!(found.session_token.as_deref(), Some("token-of-ASIA0000000000TWO"));
    let seen = service.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].contains("x-meant-for: sts.us-east-1.amazonaws.com"), "{}", seen[0]);
    assert!(seen[0].contains("Credential=BASE/"), "{}", seen[0]);
    assert_eq!(query_of(&seen[0], "RoleSessionName"), SESSION_NAME);
    assert!(seen[1].contains("x-meant-for: sts.eu-west-1.amazonaws.com"), "{}", seen[1]);
    assert!(seen[1].contains("Credential=ASIA0000000000ONE/"), "{}", seen[1]);
    assert_eq!(query_of(&seen[1], "ExternalId"), "ext-1");
    assert_eq!(query_of(&seen[1], "RoleSessionName"), "nightly");
}

#[tokio::test]
async fn a_role_is_assumed_with_what_the_machine_has() {
    let service = granting().await;
    let home = role_profiles();
    let keys = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let with_key = context(Some(&service), Some(&home.0), &keys);
    let found = ask(&named(&[], Some("env")), &with_key).await.unwrap();
    assert_eq!(found.access_key_id, "ASIA0000000000ENV");
    assert!(service.seen()[0].contains("Credential=ENV/"));
    let without = context(Some(&service), Some(&home.0), &[]);
    let error = ask(&named(&[], Some("env")), &without).await.unwrap_err();
    assert!(error.to_string().contains("cannot assume arn:"), "{error}");
}

#[tokio::test]
async fn half_a_key_in_the_environment_is_told_and_nothing_else_is_tried() {
    let service = granting().await;
    let home = role_profiles();
    let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let profile = ("AWS_PROFILE", "one");
    for (variables, said) in [
        (vec![(id, "x"), profile], "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"),
        (
            vec![(secret, "x"), (id, ""), profile],
            "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY",
        ),
    ] {
        let context = context(Some(&service), Some(&home.0), &variables);
        let error = ask(&named(&[], None), &context).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn the_role_of_a_secret_is_assumed_with_its_key() {
    let service = granting().await;
    let spec = ChainSpec {
        assume_role_arn: Some(format!("{ROLE}lake")),
        external_id: Some("ext-2".into()),
        ..ChainSpec::default()
    };
    let key = StaticCredentialProvider::new("MINE", "hunter2");
    let chain = aws_chain(&spec, Some(key), "us-east-1");
    let found = chain.provide_credential(&context(Some(&service), None, &[])).await.unwrap();
    assert_eq!(found.unwrap().access_key_id, "ASIA0000000000LAKE");
    assert!(service.seen()[0].contains("Credential=MINE/"));
    assert_eq!(query_of(&service.seen()[0], "ExternalId"), "ext-2");
}

#[tokio::test]
async fn a_refused_role_is_named_and_nothing_else_is_tried() {
    let service = TokenService::start(|_| {
        let why = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not allowed to assume\
                   </Message></Error></ErrorResponse>";
        (403, why.to_string())
    })
    .await;
    let home = role_profiles();
    let context = context(Some(&service), Some(&home.0), &[("AWS_PROFILE", "one")]);
    let error = ask(&named(&[], None), &context).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("profile: cannot assume") && text.contains("role/one"), "{text}");
    assert!(text.contains("AccessDenied"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!error.is_retryable());
    assert_eq!(service.seen().len(), 1, "instance metadata is not asked after a refusal");
}

#[tokio::test]
async fn a_page_in_place_of_an_answer_is_not_told_whole() {
    let page = format!("<html>{}</html>", "login ".repeat(2000));
    let service = TokenService::start(move |_| (403, page.clone())).await;
    let home = role_profiles();
    let context = context(Some(&service), Some(&home.0), &[("AWS_PROFILE", "one")]);
    let text = ask(&named(&[], None), &context).await.unwrap_err().to_string();
    assert!(text.contains("role/one") && text.contains("403") && text.len() < 700, "{text}");
}

#[tokio::test]
async fn services_in_trouble_are_worth_another_try() {
    let spec = named(&[ChainSource::Metadata], None);
    for (status, kind) in [(500, ErrorKind::CredentialInvalid), (503, ErrorKind::CredentialInvalid)]
    {
        let service = TokenService::start(move |_| (status, "busy".to_string())).await;
        let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url.as_str())];
        let error = ask(&spec, &context(None, None, &variables)).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, true), "{error}");
    }
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/")];
    let error = ask(&spec, &context(None, None, &variables)).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("container: "), "{error}");
}

#[tokio::test]
async fn a_failing_process_is_named_and_nothing_else_is_tried() {
    let service = TokenService::start(|_| (200, String::new())).await;
    let home = Home::new();
    home.write(".aws/config", "[default]\ncredential_process = /nowhere/helper\n");
    let context = context(Some(&service), Some(&home.0), &[]);
    let error = ask(&named(&[], None), &context).await.unwrap_err();
    assert!(error.to_string().starts_with("environment: not configured; profile: "), "{error}");
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn a_malformed_file_or_a_missing_profile_is_named() {
    let home = Home::new();
    home.write(".aws/config", "[default\nregion = x\n");
    let broken = context(None, Some(&home.0), &[]);
    let error = ask(&named(&[ChainSource::Profile], None), &broken).await.unwrap_err();
    assert!(error.to_string().contains(".aws/config is malformed"), "{error}");
    let empty = context(None, Some(Path::new("/nowhere")), &[]);
    let error = ask(&named(&[], Some("worl")), &empty).await.unwrap_err();
    assert!(error.to_string().contains("`worl` is in neither"), "{error}");
}
