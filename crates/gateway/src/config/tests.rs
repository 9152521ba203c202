//! What a config file may say, and how slips in it are told.

use super::*;

struct Told;

impl Secrets for Told {
    fn file(&self, path: &Path) -> Result<Secret> {
        Ok(Secret::new(format!("file {}", path.display())))
    }

    fn variable(&self, name: &str) -> Result<Secret> {
        Ok(Secret::new(format!("variable {name}")))
    }
}

const WHOLE: &str = r#"
listen = "127.0.0.1:9000"
drain_seconds = 5
anonymous = false
stall_timeout_ms = 5000
memory_limit_bytes = "256MiB"

[[backend]]
name = "blob"
url = "az://"
account_name = "acc"
account_key_env = "BLOB_KEY"

[[backend]]
name = "disk"
url = "file:///srv/lake"
dynamic = true
read_only = true

[[bucket]]
name = "lake"
backend = "blob"
container = "raw"
prefix = "team/"
aliases = ["old"]

[[key]]
access_key = "A"
secret_key_file = "/run/secret"
"#;

#[test]
fn everything_is_read() {
    let config = Config::parse(WHOLE, &Told).unwrap();
    assert_eq!(config.anonymous, Some(false));
    let settings: Vec<_> =
        config.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("listen", "127.0.0.1:9000"),
        ("drain_seconds", "5"),
        ("stall_timeout_ms", "5000"),
        ("memory_limit_bytes", "256MiB"),
    ];
    assert_eq!(settings, expected);
    let blob = &config.backends[0];
    assert_eq!((blob.name.as_str(), blob.url.as_str()), ("blob", "az://"));
    assert_eq!(blob.options[1].0, "account_key");
    assert_eq!(blob.options[1].1.reveal(), "variable BLOB_KEY");
    assert!(config.backends[1].is_dynamic && config.backends[1].is_read_only);
    let lake = &config.buckets[0];
    assert_eq!((lake.container.as_deref(), lake.prefix.as_str()), (Some("raw"), "team/"));
    assert_eq!(lake.aliases, ["old"]);
    assert_eq!(config.keys[0].secret_key.reveal(), "file /run/secret");
}

#[test]
fn slips_are_told_with_line_and_nearest_name() {
    for (text, words) in [
        ("listn = \"x\"", vec!["`listn` in line 1", "`listen`"]),
        ("\nstall_timeout = 1", vec!["in line 2", "`stall_timeout_ms`"]),
        ("[[bucket]]\nname = \"a\"\nprefx = \"b\"", vec!["`prefx` in line 3", "`prefix`"]),
        ("[[backend]]\nacount_name = \"a\"", vec!["in line 2", "`account_name`"]),
        ("[[key]]\nacces_key = \"a\"", vec!["in line 2", "`access_key`"]),
        ("[[key]]\naccess_key = \"a\"", vec!["key `a` has no secret", "`secret_key_file` or"]),
        ("[[backend]]\nname = \"a\"", vec!["back end `a` has no `url`"]),
        ("[backend]\nname = \"a\"", vec!["[[backend]]"]),
        ("[[key]]\nrequests_per_second = \"a\"", vec!["takes a whole number"]),
        (
            "[[key]]\nrights = [\"delet\"]\naccess_key = \"a\"\nsecret_key = \"b\"",
            vec!["`delet`", "`delete`"],
        ),
        ("[[key]]\n[[key.grant]]\nright = [\"read\"]", vec!["in line 3", "`rights`"]),
        ("[[public]]\nbuckets = [\"a\"]", vec!["[[public]] has no `rights`"]),
        (
            "[[public]]\nbuckets = [\"a\"]\nrights = [\"read\"]\nrequests_per_second = 9",
            vec!["line 4", "`public_requests_per_second`"],
        ),
        ("requests_mx = 3", vec!["`requests_max`"]),
        ("[[backend]]\nname = \"a\"\nlisten = \":9\"", vec!["`listen` in line 3", "at the top"]),
        ("[[key]]\nanonymous = true", vec!["`anonymous` in line 2", "at the top"]),
        (
            "[[key]]\nsecret_key_env = \"A\"\nsecret_key_file = \"/b\"",
            vec!["`secret_key` is given twice", "in line 3", "`secret_key_env`"],
        ),
        (
            "[[backend]]\nname = \"a\"\naccount_key_env = \"A\"\naccount_key = \"b\"",
            vec!["`account_key` is given twice", "in line 4"],
        ),
        ("anonymous = 1", vec!["takes true or false"]),
        ("\ndrain_seconds = -4", vec!["takes a whole number", "in line 2"]),
        ("\nread_ahead_max_bytes = \"1TiB\"", vec!["outside", "in line 2"]),
        ("listen = ", vec!["no TOML"]),
        ("backnd = 1", vec!["`backend`"]),
    ] {
        let error = Config::parse(text, &Told).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}

#[test]
fn no_secret_is_shown() {
    let text = "[[key]]\naccess_key = \"a\"\nsecret_key = \"hunter2\"\n\
                [[backend]]\nname = \"b\"\nurl = \"az://\"\naccount_key = \"hunter2\"";
    let config = Config::parse(text, &Told).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_text_that_is_no_toml_is_told_by_its_place_and_without_the_line() {
    for (line, place) in [
        ("secret_key = \"hunter2", "line 3, column"),
        ("secret_key = \"hunter2\" x", "line 3, column 24"),
        ("\u{e4} = \"hunter2\"", "line 3, column 1"),
    ] {
        let text = format!("[[key]]\naccess_key = \"a\"\n{line}\n");
        let error = Config::parse(&text, &Told).unwrap_err();
        assert!(error.message().contains(place), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn keys_have_grants() {
    let text = r#"
[[key]]
access_key = "everything"
secret_key = "s"

[[key]]
access_key = "reader"
secret_key = "s"
buckets = ["logs-*", "lake"]
rights = ["read", "list"]
requests_per_second = 50

[[key]]
access_key = "mixed"
secret_key = "s"
[[key.grant]]
buckets = ["lake"]
rights = ["read"]
[[key.grant]]
buckets = ["scratch"]

[[public]]
buckets = ["www"]
rights = ["read"]
"#;
    let config = Config::parse(text, &Told).unwrap();
    let grant = |buckets: &[&str], rights: &[&str]| Grant {
        buckets: buckets.iter().map(|name| Pattern::new(*name)).collect(),
        rights: Rights::parse(rights.iter().copied()).unwrap(),
    };
    assert_eq!(config.keys[0].grants, [Grant::everything()]);
    assert_eq!(config.keys[1].grants, [grant(&["logs-*", "lake"], &["read", "list"])]);
    assert_eq!(config.keys[1].requests_per_second, Some(50));
    let mixed = [grant(&["lake"], &["read"]), grant(&["scratch"], &["all"])];
    assert_eq!(config.keys[2].grants, mixed);
    assert_eq!(config.public, [grant(&["www"], &["read"])]);
}
