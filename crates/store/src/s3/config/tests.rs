use super::*;

fn read_with(
    scheme: &str,
    pairs: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Result<S3Config> {
    let options = StoreOptions::new(pairs.iter().copied())?;
    let environment = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_string())
    };
    read(scheme, "bucket", &options, &environment)
}

fn config(scheme: &str, pairs: &[(&str, &str)]) -> S3Config {
    read_with(scheme, pairs, &[]).unwrap()
}

fn key_of_config(config: &S3Config) -> (String, bool) {
    match &config.access {
        Access::Key { key_id, token, .. } => (key_id.reveal().to_string(), token.is_some()),
        other => panic!("no key but {other:?}"),
    }
}

#[test]
fn nothing_given_is_amazon_without_signature() {
    let found = config("s3", &[("s3_url_style", "vhost"), ("s3_use_ssl", "true")]);
    assert_eq!((found.service, found.access), (Service::Aws, Access::Anonymous));
    assert_eq!((found.host, found.region, found.path_style), (None, None, false));
    assert!(found.https);
}

#[test]
fn endpoints_take_all_spellings() {
    for (endpoint, ssl, https, host, base) in [
        ("127.0.0.1:9000", "false", false, "127.0.0.1:9000", ""),
        ("http://Minio.local:9000/", "true", false, "minio.local:9000", ""),
        ("https://gw.example/s3/base/", "false", true, "gw.example", "/s3/base"),
        ("[::1]:9000", "false", false, "[::1]:9000", ""),
    ] {
        let found = config("s3", &[("endpoint", endpoint), ("use_ssl", ssl)]);
        assert_eq!((found.https, found.host.as_deref()), (https, Some(host)), "{endpoint}");
        assert_eq!((found.base_path.as_str(), found.service), (base, Service::Other));
    }
    for endpoint in ["ftp://x", "http://u:hunter2@host", "a b", "http://"] {
        let error = read_with("s3", &[("endpoint", endpoint)], &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{endpoint}");
        assert!(!error.to_string().contains("hunter2"));
    }
    for endpoint in ["127.0.0.1:99999", "host:abc", "http://host:0/base"] {
        let error = read_with("s3", &[("endpoint", endpoint)], &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{endpoint}");
        let place = endpoint.trim_start_matches("http://").trim_end_matches("/base");
        assert!(error.message().contains(place), "{error}");
    }
}

#[test]
fn default_endpoint_of_httpfs_counts_as_none() {
    let aws = ("endpoint", "s3.amazonaws.com");
    assert_eq!(config("s3", &[aws]).host, None);
    assert_eq!(config("gs", &[aws]).host.as_deref(), Some("storage.googleapis.com"));
    let account = ("account_id", "abc");
    let host = config("r2", &[aws, account]).host;
    assert_eq!(host.as_deref(), Some("abc.r2.cloudflarestorage.com"));
    assert_eq!(read_with("r2", &[], &[]).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn region_comes_from_secret_host_or_environment() {
    let host = ("endpoint", "s3.eu-west-1.amazonaws.com");
    assert_eq!(config("s3", &[host]).region.as_deref(), Some("eu-west-1"));
    assert_eq!(config("s3", &[host, ("region", "x-1")]).region.as_deref(), Some("x-1"));
    let environment = [("AWS_DEFAULT_REGION", "us-west-2")];
    let found = read_with("s3", &[], &environment).unwrap();
    assert_eq!(found.region.as_deref(), Some("us-west-2"));
    let found = read_with("s3", &[("endpoint", "minio:9000")], &environment).unwrap();
    assert_eq!(found.region, None, "the environment's region is Amazon's");
    assert_eq!(config("gs", &[("region", "x")]).region, None);
}

#[test]
fn path_style_where_a_host_name_cannot_carry_the_bucket() {
    let vhost = ("s3_url_style", "vhost");
    assert!(config("s3", &[vhost, ("endpoint", "127.0.0.1:9000")]).path_style);
    assert!(config("s3", &[vhost, ("endpoint", "localhost:9000")]).path_style);
    assert!(!config("s3", &[vhost, ("endpoint", "minio:9000")]).path_style);
    assert!(config("s3", &[("url_style", "path"), vhost]).path_style);
    assert!(config("gs", &[vhost]).path_style);
    assert_eq!(read_with("s3", &[("url_style", "x")], &[]).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn token_never_joins_a_key_of_another_place() {
    let pairs = [
        ("key_id", "own"),
        ("secret", "s"),
        ("s3_access_key_id", "setting"),
        ("s3_secret_access_key", "s"),
        ("s3_session_token", "t"),
    ];
    assert_eq!(key_of_config(&config("s3", &pairs)), ("own".to_string(), false));
    assert_eq!(key_of_config(&config("s3", &pairs[2..])), ("setting".to_string(), true));
    let error = read_with("s3", &[("key_id", "own")], &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn chain_is_asked_only_where_something_says_so() {
    let is_chain = |pairs: &[(&str, &str)], environment: &[(&str, &str)]| {
        let found = read_with("s3", pairs, environment).unwrap();
        matches!(found.access, Access::AwsChain { .. })
    };
    let wanted = ("provider", "credential_chain");
    let key = [("key_id", "k"), ("secret", "s")];
    assert!(!is_chain(&[], &[]));
    assert!(is_chain(&[wanted], &[]));
    assert!(is_chain(&[], &[("AWS_ACCESS_KEY_ID", "x")]));
    assert!(!is_chain(&[wanted, key[0], key[1]], &[]), "a key that cannot be renewed is used");
    assert!(is_chain(&[wanted, key[0], key[1], ("refresh_info.profile", "p")], &[]));
    assert!(is_chain(&[key[0], key[1], ("assume_role_arn", "arn:x")], &[]));
}

#[test]
fn chain_keeps_order_and_profile() {
    let pairs =
        [("provider", "credential_chain"), ("chain", "sso;env"), ("refresh_info.profile", "work")];
    let Access::AwsChain { chain, fallback } = config("s3", &pairs).access else {
        panic!("a chain");
    };
    assert_eq!(chain.sources, [ChainSource::Sso, ChainSource::Environment]);
    assert_eq!((chain.profile.as_deref(), fallback), (Some("work"), None));
    let error = read_with("s3", &[pairs[0], ("chain", "magic")], &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn google_takes_token_file_or_keys_but_not_amazons_environment() {
    let amazon = [("AWS_ACCESS_KEY_ID", "x")];
    assert_eq!(read_with("gs", &[], &amazon).unwrap().access, Access::Anonymous);
    assert!(matches!(config("gs", &[("bearer_token", "t")]).access, Access::Bearer(_)));
    let google = [("GOOGLE_APPLICATION_CREDENTIALS", "/x.json")];
    let found = read_with("gs", &[], &google).unwrap().access;
    assert!(matches!(found, Access::Google { .. }));
    let pairs = [("key_id", "GOOG"), ("secret", "s")];
    assert_eq!(key_of_config(&config("gs", &pairs)).0, "GOOG");
}

#[test]
fn debug_shows_no_credential() {
    let pairs = [("key_id", "hunter1"), ("secret", "hunter2"), ("session_token", "hunter3")];
    assert!(!format!("{:?}", config("s3", &pairs)).contains("hunter"));
}
