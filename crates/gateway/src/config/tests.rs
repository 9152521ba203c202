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
    assert_eq!(config.listen.as_deref(), Some("127.0.0.1:9000"));
    assert_eq!((config.drain_seconds, config.anonymous), (Some(5), Some(false)));
    let settings: Vec<_> =
        config.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(settings, [("stall_timeout_ms", "5000"), ("memory_limit_bytes", "256MiB")]);
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
        ("[[key]]\naccess_key = \"a\"", vec!["key `a` has no secret"]),
        ("[[backend]]\nname = \"a\"", vec!["back end `a` has no `url`"]),
        ("[backend]\nname = \"a\"", vec!["[[backend]]"]),
        ("drain_seconds = \"a\"", vec!["takes a whole number"]),
        ("anonymous = 1", vec!["takes true or false"]),
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
