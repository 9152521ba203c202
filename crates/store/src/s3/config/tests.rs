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
    read(scheme, "bucket", (&StoreOptions::default(), &options), &environment)
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

/// Reads options of which some stand in the URL's own query.
fn read_url(
    scheme: &str,
    url: &[(&str, &str)],
    pairs: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Result<S3Config> {
    let options = |pairs: &[(&str, &str)]| StoreOptions::new(pairs.iter().copied()).unwrap();
    let environment = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_string())
    };
    read(scheme, "bucket", (&options(url), &options(pairs)), &environment)
}

const OWN_KEY: [(&str, &str); 3] = [("key_id", "k"), ("secret", "s"), ("secret_name", "mine")];

#[test]
fn a_key_goes_to_no_endpoint_that_only_the_url_names() {
    let evil = ("endpoint", "evil.example");
    let settings = [("s3_access_key_id", "k"), ("s3_secret_access_key", "s")];
    let headers = [("extra_http_headers.X-Api-Key", "1")];
    let chain = [("provider", "credential_chain"), ("secret_name", "mine")];
    for pairs in [&OWN_KEY[..], &settings, &headers, &chain] {
        let error = read_url("s3", &[evil], pairs, &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{pairs:?}");
        let text = error.to_string();
        assert!(text.contains("do not go to `evil.example`"), "{text}");
        assert!(text.contains("ENDPOINT 'https://evil.example'"), "{text}");
    }
    // The URL's own key is for the URL's own endpoint, and so is the endpoint of the secret.
    let url = [evil, ("key_id", "url"), ("secret", "s")];
    assert_eq!(key_of_config(&read_url("s3", &url, &OWN_KEY, &[]).unwrap()).0, "url");
    let same = [OWN_KEY[0], OWN_KEY[1], ("endpoint", "https://Evil.example")];
    assert_eq!(key_of_config(&read_url("s3", &[evil], &same, &[]).unwrap()).0, "k");
    // Nobody's are sent nowhere.
    let aws = [("AWS_ACCESS_KEY_ID", "e"), ("AWS_SECRET_ACCESS_KEY", "s")];
    for environment in [&aws[..], &[]] {
        let found = read_url("s3", &[evil], &[], environment).unwrap();
        assert_eq!(found.access, Access::Anonymous);
        assert_eq!(found.host.as_deref(), Some("evil.example"));
        assert_eq!(found.withheld.is_some(), !environment.is_empty());
    }
}

#[test]
fn a_token_goes_to_googles_hosts_or_the_endpoint_of_its_secret() {
    let token = ("bearer_token", "t");
    let google = [("GOOGLE_APPLICATION_CREDENTIALS", "/x.json")];
    for host in ["storage.googleapis.com", "storage-lake.p.googleapis.com:443"] {
        for name in ["endpoint", "s3_endpoint"] {
            let found = read_url("gs", &[], &[token, (name, host)], &[]).unwrap();
            assert!(matches!(found.access, Access::Bearer(_)), "{host}");
        }
        let found = read_url("gs", &[], &[("s3_endpoint", host)], &google).unwrap();
        assert!(matches!(found.access, Access::Google { .. }), "{host}");
    }
    assert!(read_url("gs", &[], &[token, ("endpoint", "http://127.0.0.1:1")], &[]).is_ok());
    for host in ["minio:9000", "storage.googleapis.com.evil.example", "evilgoogleapis.com"] {
        let setting = ("s3_endpoint", host);
        let denied = [
            read_url("gs", &[], &[token, setting], &[]),
            read_url("gs", &[], &[setting], &google),
            read_url("gs", &[("endpoint", host)], &[token], &[]),
            read_url("s3", &[], &[token, setting], &[]),
        ];
        for found in denied {
            let error = found.unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{host}");
            assert!(error.to_string().contains(host), "{error}");
        }
    }
    // Amazon, and a connection that anybody can read.
    assert!(read_url("s3", &[], &[token], &[]).is_err());
    assert!(read_url("gs", &[("use_ssl", "false")], &[token], &[]).is_err());
}

#[test]
fn a_region_makes_no_other_host() {
    for region in ["x.evil.example/", "evil.example#", "a@evil.example", "a:1", "a b", "eü"] {
        for found in [
            read_url("s3", &[("region", region)], &OWN_KEY, &[]),
            read_url("s3", &[], &[("s3_region", region)], &[]),
            read_url("s3", &[], &[], &[("AWS_REGION", region)]),
        ] {
            assert_eq!(found.unwrap_err().kind(), Kind::Invalid, "{region}");
        }
    }
}

#[test]
fn credentials_that_nobody_named_are_known_as_such() {
    let aws = [("AWS_ACCESS_KEY_ID", "e"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let of = |scheme: &str, pairs: &[(&str, &str)], environment: &[(&str, &str)]| {
        read_url(scheme, &[], pairs, environment).unwrap().environment
    };
    assert_eq!(of("s3", &[], &aws), Some("AWS_ACCESS_KEY_ID"));
    assert_eq!(of("s3", &[("endpoint", "h:1"), ("secret_name", "x")], &aws), Some(aws[0].0));
    assert_eq!(of("s3", &[("provider", "environment")], &[]), Some("AWS_ACCESS_KEY_ID"));
    let file = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/x")];
    assert_eq!(of("s3", &[], &file), Some("AWS_WEB_IDENTITY_TOKEN_FILE"));
    let google = [("GOOGLE_APPLICATION_CREDENTIALS", "/x.json")];
    assert_eq!(of("gs", &[], &google), Some("GOOGLE_APPLICATION_CREDENTIALS"));
    // Whoever sets what the environment has, too, names them.
    for (scheme, pairs) in [
        ("s3", &[("s3_access_key_id", "e"), ("s3_secret_access_key", "s")][..]),
        ("s3", &OWN_KEY),
        ("s3", &[("key_id", "e"), ("secret", "s")]),
        ("s3", &[("provider", "credential_chain")]),
        ("s3", &[("assume_role_arn", "arn:x")]),
        ("gs", &[("provider", "credential_chain")]),
        ("gs", &[("bearer_token", "t")]),
    ] {
        assert_eq!(of(scheme, pairs, &[aws[0], aws[1], google[0]]), None, "{pairs:?}");
    }
}

#[test]
fn a_chain_that_asks_the_environment_first_has_its_key_from_there() {
    let aws = [("AWS_ACCESS_KEY_ID", "e"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let chain = ("provider", "credential_chain");
    let is_its = |pairs: &[(&str, &str)], environment: &[(&str, &str)]| {
        read_url("s3", &[], pairs, environment).unwrap().is_key_of_environment
    };
    assert!(is_its(&[chain], &aws) && is_its(&[chain, ("chain", "env;sso")], &aws));
    assert!(!is_its(&[chain], &[]) && !is_its(&OWN_KEY, &aws));
    for other in [("chain", "sso;env"), ("profile", "p"), ("assume_role_arn", "arn:x")] {
        assert!(!is_its(&[chain, other], &aws), "{other:?}");
    }
}

#[test]
fn every_variable_of_duckdb_counts_unless_its_setting_was_emptied() {
    let environment = [
        ("AWS_ACCESS_KEY_ID", "e"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_REGION", "eu-west-1"),
        ("DUCKDB_S3_ENDPOINT", "h:1"),
        ("DUCKDB_S3_USE_SSL", "False"),
        ("DUCKDB_S3_KMS_KEY_ID", "kms"),
        ("DUCKDB_S3_REQUESTER_PAYS", "true"),
    ];
    let found = read_with("s3", &[], &environment).unwrap();
    assert_eq!((found.host.as_deref(), found.https), (Some("h:1"), false));
    assert_eq!((found.kms_key_id.as_deref(), found.requester_pays), (Some("kms"), true));
    assert!(matches!(found.access, Access::AwsChain { .. }), "{found:?}");
    assert_eq!(found.region, None, "the environment's region is Amazon's");
    let found = read_with("r2", &[], &environment).unwrap();
    assert_eq!(found.host.as_deref(), Some("h:1"));
    let found = read_with("r2", &[("account_id", "acc")], &environment).unwrap();
    assert_eq!(found.host.as_deref(), Some("acc.r2.cloudflarestorage.com"));
    let emptied = [
        ("emptied.s3_access_key_id", "true"),
        ("emptied.s3_endpoint", "true"),
        ("emptied.s3_region", "true"),
        ("emptied.s3_kms_key_id", "true"),
    ];
    let found = read_with("s3", &emptied, &environment).unwrap();
    assert_eq!((found.access, found.host, found.region), (Access::Anonymous, None, None));
    assert_eq!(found.kms_key_id, None);
    let unsigned = ("provider", "anonymous");
    let found = read_with("s3", &[unsigned], &environment).unwrap();
    assert_eq!((found.access, found.host.as_deref()), (Access::Anonymous, Some("h:1")));
    let off = ("enable_global_s3_configuration", "false");
    let found = read_with("s3", &[off], &environment).unwrap();
    assert_eq!((found.access, found.host, found.https), (Access::Anonymous, None, true));
    // What somebody sets counts, also where the environment has the same.
    let set = [("s3_region", "eu-west-1"), ("s3_endpoint", "h:1"), ("s3_use_ssl", "false")];
    let [region, endpoint, use_ssl] = set;
    for pairs in [&[off, region, endpoint, use_ssl][..], &[region, endpoint, use_ssl]] {
        let found = read_with("s3", pairs, &environment).unwrap();
        assert_eq!((found.host.as_deref(), found.https), (Some("h:1"), false));
        assert_eq!(found.region.as_deref(), Some("eu-west-1"));
    }
    // The environment's endpoint is not Google's, but the user's own setting counts.
    for (scheme, secret_type) in [("gs", "gcs"), ("gs", "s3"), ("s3", "gcs")] {
        let pairs = [("secret_type", secret_type), ("key_id", "g"), ("secret", "s")];
        let found = read_with(scheme, &pairs, &environment).unwrap();
        assert_eq!(found.host.as_deref(), Some("storage.googleapis.com"), "{scheme}");
        let [kind, key, secret] = pairs;
        let found = read_with(scheme, &[kind, key, secret, endpoint], &environment).unwrap();
        assert_eq!(found.host.as_deref(), Some("h:1"), "{scheme}");
    }
    let half = read_with("s3", &[("s3_access_key_id", "own")], &environment).unwrap();
    assert_eq!(key_of_config(&half), ("own".to_string(), false));
    assert!(read_with("s3", &[("s3_access_key_id", "own")], &[]).is_err());
    let error = read_with("s3", &[], &[("DUCKDB_S3_USE_SSL", "maybe")]).unwrap_err();
    assert!(error.to_string().contains("DUCKDB_S3_USE_SSL"), "{error}");
}
