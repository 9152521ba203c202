use super::*;

fn decide(url: &str, pairs: &[(&str, &str)]) -> Result<Config> {
    let options = StoreOptions::new(pairs.iter().copied()).unwrap();
    Config::decide(&Address::parse(url).unwrap(), &options)
}

const STRING: &str = "AccountName=acc;AccountKey=a2V5";

#[test]
fn endpoint_follows_url_then_secret_then_setting() {
    for (url, pairs, endpoint) in [
        ("az://c/k", &[("account_name", "acc")][..], "https://acc.blob.core.windows.net"),
        (
            "abfss://c/k",
            &[("account_name", "acc"), ("endpoint", "dfs.core.windows.net")],
            "https://acc.blob.core.windows.net",
        ),
        (
            "az://acc.blob.core.windows.net/c/k",
            &[("account_name", "other")],
            "https://acc.blob.core.windows.net",
        ),
        (
            "az://c/k",
            &[("account_name", "dev"), ("endpoint", "http://127.0.0.1:10000")],
            "http://127.0.0.1:10000/dev",
        ),
        ("az://c/k", &[("connection_string", STRING)], "https://acc.blob.core.windows.net"),
        (
            "az://c/k",
            &[
                ("account_name", "mine"),
                ("secret_name", "s"),
                ("azure_storage_connection_string", STRING),
            ],
            "https://mine.blob.core.windows.net",
        ),
        (
            "az://other.blob.core.windows.net/c/k",
            &[("azure_storage_connection_string", STRING)],
            "https://other.blob.core.windows.net",
        ),
        ("az://c/k", &[("azure_account_name", "acc")], "https://acc.blob.core.windows.net"),
    ] {
        assert_eq!(decide(url, pairs).unwrap().endpoint.to_string(), endpoint, "{pairs:?}");
    }
}

#[test]
fn auth_follows_provider() {
    let base = [("account_name", "acc"), ("tenant_id", "t"), ("client_id", "i")];
    let with = |extra: &[(&'static str, &'static str)]| {
        let pairs: Vec<_> = base.iter().chain(extra).copied().collect();
        decide("az://c/k", &pairs).unwrap().auth
    };
    assert_eq!(with(&[]), Auth::Anonymous);
    assert_eq!(with(&[("sas_token", "?sig=x")]), Auth::Sas(Secret::new("sig=x")));
    let token = with(&[("provider", "access_token"), ("access_token", "t")]);
    assert_eq!(token, Auth::Token(Secret::new("t")));
    let principal = with(&[("provider", "service_principal"), ("client_secret", "s")]);
    let Auth::Sources(sources) = &principal else { panic!("{principal:?}") };
    assert!(matches!(sources[..], [Source::ClientSecret { .. }]));
    let machine = with(&[("provider", "managed_identity")]);
    let identity = Some(Identity::Client("i".into()));
    assert_eq!(machine, Auth::Sources(vec![Source::ManagedIdentity(identity)]));
    let Auth::Sources(chain) = with(&[("provider", "credential_chain"), ("chain", "cli;env")])
    else {
        panic!("a chain is a list of sources");
    };
    assert_eq!(chain.iter().map(Source::name).collect::<Vec<_>>(), ["cli", "env", "env"]);
}

#[test]
fn wrong_options_say_what_to_do() {
    for (pairs, text) in [
        (&[][..], "Name it in the URL"),
        (&[("account_name", "a"), ("provider", "credential_chains")], "`credential_chain`"),
        (
            &[("account_name", "a"), ("provider", "credential_chain"), ("chain", "clii")],
            "Did you mean `cli`?",
        ),
        (&[("account_name", "a"), ("provider", "service_principal")], "no TENANT_ID"),
        (
            &[
                ("account_name", "a"),
                ("provider", "managed_identity"),
                ("client_id", "1"),
                ("object_id", "2"),
            ],
            "one of client_id",
        ),
        (&[("connection_string", "AccountName")], "AccountKey=..."),
        (&[("account_name", "a"), ("account_key", "?")], "not base64"),
    ] {
        let error = decide("az://c/k", pairs).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(text), "{pairs:?}: {error}");
    }
    let other = decide("az://x.blob.core.windows.net/c/k", &[("connection_string", STRING)]);
    assert!(other.unwrap_err().to_string().contains("is of `acc`"));
}

/// Every kind of credential that is sent as it is, or that signs without naming the host.
const CREDENTIALS: &[&[(&str, &str)]] = &[
    &[("account_key", "a2V5")],
    &[("sas_token", "sv=1&sig=x")],
    &[("access_token", "t"), ("provider", "access_token")],
    &[("provider", "credential_chain"), ("chain", "workload_identity")],
    &[("provider", "managed_identity")],
    &[
        ("provider", "service_principal"),
        ("tenant_id", "t"),
        ("client_id", "c"),
        ("client_secret", "s"),
    ],
    &[("azure_credential_chain", "default")],
    &[("provider", "environment")],
    &[("provider", "environment"), ("sas_token", "sv=1&sig=x")],
    &[("extra_http_headers.Authorization", "Bearer t")],
];

#[test]
fn no_credential_goes_to_a_host_that_only_the_url_names() {
    for credential in CREDENTIALS {
        for url in ["abfss://data@lake.evil.example/x", "az://lake.evil.example/data/x"] {
            let error = decide(url, credential).unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{url} {credential:?}");
            let text = error.to_string();
            assert!(text.contains("`lake.evil.example` is no host of an Azure"), "{text}");
            assert!(text.contains("ENDPOINT 'https://lake.evil.example'"), "{text}");
            // What the error says lets it.
            for endpoint in ["https://lake.evil.example", "evil.example"] {
                let named: Vec<_> =
                    [("endpoint", endpoint)].iter().chain(*credential).copied().collect();
                let found = decide(url, &named).unwrap();
                assert_eq!(found.endpoint.to_string(), "https://lake.evil.example", "{url}");
            }
        }
        let own = "abfss://data@lake.dfs.core.windows.net/x";
        assert!(decide(own, credential).is_ok(), "{credential:?}");
    }
    let public = decide("az://lake.evil.example/data/x", &[]).unwrap();
    assert_eq!(public.auth, Auth::Anonymous);
}

#[test]
fn credentials_of_one_account_go_to_no_other() {
    for credential in CREDENTIALS {
        let made_for: Vec<_> =
            [("account_name", "lake")].iter().chain(*credential).copied().collect();
        let error = decide("az://other.blob.core.windows.net/c/x", &made_for).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{credential:?}");
        let text = error.to_string();
        assert!(text.contains("of account `other`") && text.contains("of `lake`"), "{text}");
        assert!(decide("az://LAKE.blob.core.windows.net/c/x", &made_for).is_ok());
    }
    let setting = [("azure_account_name", "lake"), ("azure_credential_chain", "default")];
    assert!(decide("az://other.blob.core.windows.net/c/x", &setting).is_ok());
}

#[test]
fn a_connection_string_stays_at_its_own_endpoint() {
    for name in ["connection_string", "azure_storage_connection_string"] {
        let found = decide("abfss://data@acc.evil.example/x", &[(name, STRING)]).unwrap();
        assert_eq!(found.endpoint.to_string(), "https://acc.blob.core.windows.net", "{name}");
    }
    let endpoint = [("endpoint", "http://127.0.0.1:10000"), ("account_key", "a2V5")];
    let found = decide("abfss://data@evil.example/x", &endpoint).unwrap();
    assert_eq!(found.endpoint.to_string(), "http://127.0.0.1:10000/evil");
}
