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
    &[("extra_http_headers.Authorization", "Bearer t")],
    &[("extra_http_headers.Authorization", "Bearer t"), ("provider", "environment")],
];

/// What the environment gives, which nobody named for what is read.
const OF_ENVIRONMENT: &[&[(&str, &str)]] = &[
    &[("provider", "environment")],
    &[("provider", "environment"), ("sas_token", "sv=1&sig=x")],
    &[("provider", "environment"), ("account_key", "a2V5")],
    &[("provider", "environment"), ("connection_string", "AccountName=lake;AccountKey=a2V5")],
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
    assert_eq!((public.auth, public.withheld), (Auth::Anonymous, None));
}

#[test]
fn the_environments_credentials_are_withheld_from_a_foreign_host() {
    for credential in OF_ENVIRONMENT {
        for (url, named) in [
            ("abfss://data@lake.evil.example/x", "`lake.evil.example` is no host"),
            ("az://lake.blob.core.windows.net.evil.example/c/x", "is no host of"),
            ("az://other.blob.core.windows.net/c/x", "the URL is of account `other`"),
        ] {
            let made_for: Vec<_> =
                [("account_name", "lake")].iter().chain(*credential).copied().collect();
            let found = decide(url, &made_for).unwrap();
            let host = Address::parse(url).unwrap().account.unwrap().endpoint();
            assert_eq!((found.auth.clone(), &found.endpoint), (Auth::Anonymous, &host), "{url}");
            assert!(!found.is_of_environment, "a second request would be the first");
            let hint = found.denied_hint(
                &Address::parse(url).unwrap(),
                &StoreOptions::new(made_for.iter().copied()).unwrap(),
            );
            assert!(hint.contains("carried no credentials, since"), "{hint}");
            let error = found.withheld.unwrap().into_error();
            assert!(error.message().contains(named), "{error}");
        }
        let own = [("account_name", "lake")].iter().chain(*credential).copied();
        let own = decide("az://lake.blob.core.windows.net/c/x", &own.collect::<Vec<_>>()).unwrap();
        assert_ne!(own.auth, Auth::Anonymous, "{credential:?}");
        assert!(own.is_of_environment && own.withheld.is_none());
    }
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

/// Strings of one account in every form, and what a host of it is read at.
const STRINGS: &[(&str, &str)] = &[
    (STRING, "acc.blob.core.windows.net"),
    (
        "AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net",
        "acc.blob.core.windows.net",
    ),
    ("https://acc.blob.core.windows.net/c?sv=1&sig=eA==", "acc.blob.core.windows.net"),
    (
        "BlobEndpoint=https://acc.dfs.core.windows.net;SharedAccessSignature=sv=1&sig=x",
        "acc.blob.core.windows.net",
    ),
];

#[test]
fn a_connection_string_is_read_at_hosts_of_its_account_alone() {
    let names = ["connection_string", "azure_storage_connection_string"];
    for (string, own) in STRINGS {
        for name in names {
            for (host, read_at) in [
                ("acc.blob.core.windows.net", *own),
                ("ACC.Dfs.core.windows.net:443", *own),
                ("acc.privatelink.dfs.core.windows.net", "acc.privatelink.blob.core.windows.net"),
                ("acc-secondary.blob.core.windows.net", "acc-secondary.blob.core.windows.net"),
            ] {
                let url = format!("abfss://data@{host}/x");
                let found = decide(&url, &[(name, string)]).unwrap();
                assert_eq!(found.endpoint.to_string(), format!("https://{read_at}"), "{url}");
                assert_ne!(found.auth, Auth::Anonymous, "{url}");
            }
            for host in [
                "acc.blob.core.windows.net.evil.example",
                "acc.evil.example",
                "acc.queue.core.windows.net",
                "acc.blob.core.windows.net:8443",
                "acc.blob.core.chinacloudapi.cn",
                "acc.z27.blob.storage.azure.net",
                "acc.blob.core.windows.net.",
            ] {
                for url in [format!("abfss://data@{host}/x"), format!("az://{host}/data/x")] {
                    let error = decide(&url, &[(name, string)]).unwrap_err();
                    assert_eq!(error.kind(), Kind::Denied, "{url}");
                    let text = error.to_string();
                    let option = match name == names[0] {
                        true => "into CONNECTION_STRING of the secret;",
                        false => "into azure_storage_connection_string;",
                    };
                    for part in
                        [host, *own, option, &format!("put BlobEndpoint=https://{host} into")]
                    {
                        assert!(text.contains(part), "{url}: {part}: {text}");
                    }
                    // A signature of the URL's own goes where the URL says.
                    let signed = format!("{url}?sv=1&sig=YWI=");
                    let found = decide(&signed, &[(name, string)]).unwrap();
                    let there = found.endpoint.to_string();
                    assert!(there.ends_with(&host.replace("dfs", "blob")), "{there}");
                }
                // What the error says lets it.
                let string = format!("BlobEndpoint=https://{host};AccountName=acc;AccountKey=a2V5");
                let url = format!("abfss://data@{host}/x");
                let found = decide(&url, &[(name, &string)]).unwrap();
                assert_eq!(found.endpoint.to_string(), format!("https://{host}"));
            }
        }
    }
    // A setting of another account says nothing about this one.
    for host in ["other.blob.core.windows.net", "public.lake.example"] {
        let url = format!("az://{host}/c/x");
        let found = decide(&url, &[(names[1], STRING)]).unwrap();
        assert_eq!(found.auth, Auth::Anonymous);
        assert_eq!(found.endpoint.to_string(), format!("https://{host}"));
        assert!(decide(&url, &[(names[0], STRING)]).is_err());
    }
}

#[test]
fn a_named_endpoint_stands_for_the_hosts_of_its_account() {
    const EMULATOR: &str =
        "BlobEndpoint=http://127.0.0.1:10000/acc;AccountName=acc;AccountKey=a2V5";
    let string = [("connection_string", EMULATOR)];
    let url = [("endpoint", "http://127.0.0.1:10000"), ("account_key", "a2V5")];
    for host in ["acc.blob.core.windows.net", "acc.dfs.core.chinacloudapi.cn"] {
        for options in [&string[..], &url] {
            let found = decide(&format!("abfss://data@{host}/x"), options).unwrap();
            assert_eq!(found.endpoint.to_string(), "http://127.0.0.1:10000/acc", "{host}");
        }
    }
    for (host, options) in [
        ("acc.evil.example", &string[..]),
        ("acc.evil.example", &url),
        ("evil.example", &url),
        ("acc.blob.core.windows.net:8443", &url),
        ("acc.blob.core.windows.net", &[("endpoint", "https://acc.blob.core.windows.net.evil")]),
        ("acc.blob.core.windows.net", &[("endpoint", "https://acc.blob.core.chinacloudapi.cn")]),
        ("acc.blob.core.windows.net", &[("endpoint", "http://127.0.0.1:10000/other")]),
    ] {
        let is_twin = host == "acc.blob.core.windows.net" && options[0].1.ends_with("evil");
        let found = decide(&format!("abfss://data@{host}/x"), options);
        // An endpoint of no cloud was named for the account; nobody named the others.
        assert_eq!(found.is_ok(), is_twin, "{host} {options:?}");
    }
    // In another cloud the name is another customer's.
    let china = [("endpoint", "blob.core.chinacloudapi.cn"), ("account_key", "a2V5")];
    let error = decide("az://acc.blob.core.windows.net/c/x", &china).unwrap_err();
    assert!(error.to_string().contains("`blob.core.chinacloudapi.cn`"), "{error}");
    // Hosts that the string names beside the first.
    let string = "BlobEndpoint=https://blob.lake.example;DfsEndpoint=https://dfs.lake.example;\
                  BlobSecondaryEndpoint=https://blob2.lake.example;\
                  DfsSecondaryEndpoint=https://dfs2.lake.example;AccountName=acc;AccountKey=a2V5";
    for (host, read_at) in [
        ("blob.lake.example", "https://blob.lake.example"),
        ("dfs.lake.example", "https://blob.lake.example"),
        ("blob2.lake.example", "https://blob2.lake.example"),
        ("dfs2.lake.example", "https://blob2.lake.example"),
    ] {
        let url = format!("abfss://data@{host}/x");
        let found = decide(&url, &[("connection_string", string)]).unwrap();
        assert_eq!(found.endpoint.to_string(), read_at);
        assert!(matches!(&found.auth, Auth::Key { account, .. } if account == "acc"));
    }
}

/// The second region's host has the account's name and key.
#[test]
fn a_second_host_is_signed_for_with_the_accounts_name() {
    for host in ["lake-secondary.blob.core.windows.net", "lake.privatelink.blob.core.windows.net"] {
        let found = decide(&format!("az://{host}/c/x"), &[("account_key", "a2V5")]).unwrap();
        assert!(matches!(&found.auth, Auth::Key { account, .. } if account == "lake"), "{host}");
        assert_eq!(found.endpoint.to_string(), format!("https://{host}"));
    }
}
