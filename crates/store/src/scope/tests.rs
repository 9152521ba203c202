use super::*;
use proptest::prelude::*;

fn is_covered(scope: &str, url: &str) -> bool {
    covered_bytes(scope, url).is_some()
}

#[test]
fn names_in_a_scope_end_at_a_boundary() {
    for (scope, url, is_within) in [
        // Scheme.
        ("", "s3://lake/x", true),
        ("http", "http://h/x", true),
        ("http:", "HTTP://h/x", true),
        ("http:/", "http://h/x", true),
        ("http://", "http://h/x", true),
        ("http", "https://h/x", false),
        ("s3", "s3a://lake/x", false),
        ("s3://lake", "s3a://lake/x", false),
        ("S3://lake", "s3://lake/x", true),
        // Host and port.
        ("http://127.0.0.1", "http://127.0.0.1/x", true),
        ("http://127.0.0.1", "http://127.0.0.10/x", false),
        ("http://127.0.0.1", "http://127.0.0.1:8080/x", false),
        ("http://h:4658", "http://h:4658/x", true),
        ("http://h:4658", "http://h:46581/x", false),
        ("http://h", "http://h.evil.example/x", false),
        ("http://h", "http://h-evil/x", false),
        ("http://h", "http://h@evil/x", false),
        ("http://h", "http://h:80@evil/x", false),
        ("http://h", r"http://h\@evil/x", false),
        ("http://h", "http://h%2eevil/x", false),
        ("http://h", "http://h?@evil/x", false),
        ("http://h", "http://h#@evil/x", false),
        ("http://h", "http://h./x", false),
        ("http://127.0.0.1", "http://2130706433/x", false),
        // One host in other spellings.
        ("https://Data.Example", "https://data.example:443/x", true),
        ("https://data.example:443/", "https://DATA.example/x", true),
        ("https://data.example:", "https://data.example/x", true),
        ("http://data.example:443", "http://data.example/x", false),
        ("http://[0:0::1]:80", "http://[::1]/x", true),
        ("http://[::1]", "http://[::1]:9000/x", false),
        ("http://[::1]", "http://[::10]/x", false),
        // A path that its server resolves to another one.
        ("http://h/data/", "http://h/data/..x/y.csv", true),
        ("http://h/data/", "http://h/data/x?y=/../z", true),
        ("http://h/data/", "http://h/data/../x.csv", false),
        ("http://h/data/", "http://h/data/./x.csv", false),
        ("http://h/data/", "http://h/data/%2e%2E/x.csv", false),
        ("http://h/data/", "http://h/data/.%2e", false),
        ("http://h/data/", r"http://h/data/..\x.csv", false),
        ("http://h/", "http://h/data/../x.csv", true),
        ("s3://lake/data/", "s3://lake/data/../x.csv", true),
        // Bucket.
        ("s3://trusted", "s3://trusted/x", true),
        ("s3://trusted", "s3://trusted", true),
        ("s3://trusted/", "s3://trusted", true),
        ("s3://trusted", "s3://trusted-evil/x", false),
        ("s3://trusted", "s3://trusted.evil/x", false),
        ("s3://trusted", "s3://Trusted/x", false),
        ("gs://trusted", "gs://trusted2/x", false),
        ("r2://trusted", "r2://trusted2/x", false),
        // Container and account.
        ("az://data", "az://data/x", true),
        ("az://data", "az://data2/x", false),
        ("abfss://data", "abfss://data@evil.example/x", false),
        ("az://acc", "az://acc.blob.core.windows.net/data/x", false),
        ("az://acc.blob.core.windows.net", "az://ACC.blob.core.windows.net:443/data/x", true),
        ("az://acc.blob.core.windows.net", "az://acc.blob.core.windows.net.evil/data/x", false),
        ("az://acc.blob.core.windows.net/data", "az://acc.blob.core.windows.net/data/x", true),
        ("az://acc.blob.core.windows.net/data", "az://acc.blob.core.windows.net/data2/x", false),
        ("az://acc.blob.core.windows.net/data/a", "az://acc.blob.core.windows.net/data/ab", true),
        ("abfss://data@acc.dfs.x", "abfss://data@acc.dfs.x/a", true),
        ("abfss://data@acc.dfs.x", "abfss://data@acc.dfs.xy/a", false),
        ("abfss://data@acc.dfs.x", "abfss://DATA@acc.dfs.x/a", false),
        // User and repository of the Hub.
        ("hf://", "hf://datasets/me/lake/x", true),
        ("hf://datasets", "hf://datasets/me/lake/x", true),
        ("hf://datasets", "hf://spaces/me/lake/x", false),
        ("hf://datasets/", "hf://datasets/me/lake/x", true),
        ("hf://datasets/me", "hf://datasets/me/lake/x", true),
        ("hf://datasets/me", "hf://datasets/me2/lake/x", false),
        ("hf://datasets/me/", "hf://datasets/me/lake/x", true),
        ("hf://datasets/me/lake", "hf://datasets/me/lake/x", true),
        ("hf://datasets/me/lake", "hf://datasets/me/lake", true),
        ("hf://datasets/me/lake", "hf://datasets/me/lake@dev/x", true),
        ("hf://datasets/me/lake", "hf://datasets/me/lake2/x", false),
        ("hf://datasets/me/lake/", "hf://datasets/me/lake/x", true),
        ("hf://datasets/me/lake/", "hf://datasets/me/lake@dev/x", false),
        ("hf://datasets/me/lake@dev", "hf://datasets/me/lake@dev/x", true),
        ("hf://datasets/me/lake@dev", "hf://datasets/me/lake@dev2/x", false),
        ("hf://datasets/me/lake@dev", "hf://datasets/me/lake/x", false),
        ("hf://datasets/me/lake/a", "hf://datasets/me/lake/ab", true),
        ("hf://datasets/me/lake/a", "hf://datasets/me/lake@dev/a", false),
        ("https://huggingface.co", "hf://datasets/me/lake/x", false),
        // Below them a prefix is a prefix of text.
        ("s3://lake/team", "s3://lake/team-b/x", true),
        ("s3://lake/team/", "s3://lake/team-b/x", false),
        ("s3://lake/a%2Fb", "s3://lake/a/b", false),
        ("http://h/a", "http://h/ab?x", true),
        ("abfss://data@acc.dfs.x/a", "abfss://data@acc.dfs.x/ab", true),
        // No URLs.
        ("lake", "s3://lake/x", false),
        ("s3://lake", "lake/x", false),
    ] {
        assert_eq!(is_covered(scope, url), is_within, "`{scope}` and `{url}`");
    }
}

#[test]
fn the_longer_scope_is_the_closer_one() {
    let bytes = |scope| covered_bytes(scope, "s3://lake/team/x");
    assert_eq!([bytes(""), bytes("s3://"), bytes("s3://lake")], [Some(0), Some(5), Some(9)]);
}

/// Schemes with a bucket, a host, or a container as their authority.
fn scheme() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["s3", "s3a", "gs", "r2", "http", "https", "az", "abfss"][..])
}

proptest! {
    /// What follows a covered name in the URL begins with a slash, or the name is not its end.
    #[test]
    fn no_neighbour_of_a_name_is_covered(
        scheme in scheme(),
        name in "[a-z0-9]{1,8}([.-][a-z0-9]{1,5}){0,2}(:[1-9][0-9]{0,3})?",
        more in "[a-z0-9.@:%-][a-z0-9.@:%-]{0,5}",
        path in "[a-z/]{0,6}",
    ) {
        let scope = format!("{scheme}://{name}");
        let inside = format!("{scope}/{path}");
        prop_assert!(is_covered(&scope, &inside));
        let neighbour = format!("{scope}{more}/{path}");
        // `host:` and `host:80` are the host.
        let implied = [":", ":80", ":443"].iter().any(|port| more.starts_with(port))
            || more.starts_with(":0");
        prop_assert!(implied || !is_covered(&scope, &neighbour), "{scope} {neighbour}");
    }

    /// A scope that DuckDB itself would not take covers nothing, but for spellings of one host.
    #[test]
    fn what_is_covered_begins_with_the_scope(
        scope in "(s3|az|http)://[a-c.@]{1,6}(/[a-c.]{0,5}){0,2}",
        url in "(s3|az|http)://[a-c.@]{1,7}(/[a-c.]{0,6}){0,2}",
    ) {
        if is_covered(&scope, &url) {
            prop_assert!(url.starts_with(scope.trim_end_matches('/')), "{scope} {url}");
        }
    }

    #[test]
    fn any_text_is_judged(scope in ".{0,40}", url in ".{0,40}") {
        let _ = is_covered(&scope, &url);
        prop_assert!(is_covered(&url, &url) || !url.contains("://") );
        prop_assert!(is_covered("", &url));
    }
}
