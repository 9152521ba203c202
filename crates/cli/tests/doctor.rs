//! `penstock doctor` says of every finding in which line of the config file its cause stands.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::scratch::Scratch;
use std::path::Path;
use std::process::Command;

/// What doctor prints of a config, and the path of its file.
fn doctor(own: &Scratch, text: &str) -> (String, String) {
    let path = own.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    let output = command.env_clear().args(["doctor", "--config"]).arg(&path).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8(said).unwrap(), path.display().to_string())
}

/// The line of a text in a config, counted from 1.
fn line_of(text: &str, part: &str) -> usize {
    let at = text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    text[..at].matches('\n').count() + 1
}

/// Holds every finding to its file, and these to their lines: words of the finding, and a text of
/// the line.
fn check(own: &Scratch, text: &str, expected: &[(&str, &str)]) {
    let (said, path) = doctor(own, text);
    let findings: Vec<&str> = said
        .lines()
        .filter(|line| ["ok ", "warning ", "problem "].iter().any(|it| line.starts_with(it)))
        .collect();
    assert!(!findings.is_empty(), "{said}");
    for finding in &findings {
        let place = finding[8..].trim_start();
        assert!(place.starts_with(&format!("{path}:")), "{finding}");
    }
    for (words, part) in expected {
        let start = format!("{path}:{}: {words}", line_of(text, part));
        let mut places = findings.iter().map(|finding| finding[8..].trim_start());
        assert!(places.any(|place| place.starts_with(&start)), "{start}\nin\n{said}");
    }
}

/// A config in which much is odd.
fn odd_config(served: &Path) -> String {
    format!(
        r#"
listen = "0.0.0.0:0"
admin_listen = "127.0.0.1:0"
acl = "public"
notes_bucket = ""
domains = "http://x"
trusted_proxies = "nobody"
access_log = "/nowhere/access.log"
cache_dir = "{served}/cache"

[[backend]]
name = "dir"
url = "file://{served}"
dynamic = true
account_name = "x"

[[bucket]]
name = "absent"
backend = "dir"

[[bucket]]
name = "shut"
backend = "dir"
container = "lake"
read_only = true

[[key]]
access_key = "WEAK"
secret_key = "short"

[[key]]
access_key = "IDLE"
secret_key = "a secret of a good length"
buckets = ["No Bucket"]

[[key]]
access_key = "ODD/NAME"
secret_key = "a secret of a good length"

[[key]]
access_key = "GOOD"
secret_key = "a secret of a good length"

[[public]]
buckets = ["*"]
rights = ["read", "write"]
"#,
        served = served.display()
    )
}

#[test]
fn every_finding_of_settings_keys_and_buckets_names_its_line() {
    let own = Scratch::new("doctor-lines");
    let served = own.path().join("served");
    std::fs::create_dir_all(served.join("Sales")).unwrap();
    std::fs::create_dir(served.join("lake")).unwrap();
    let text = odd_config(&served);
    check(
        &own,
        &text,
        &[
            ("--listen: ", "listen = \"0.0.0.0:0\""),
            ("--admin-listen: ", "admin_listen"),
            ("acl: `public` needs notes_bucket", "acl = "),
            ("domains: ", "domains = "),
            ("trusted_proxies: ", "trusted_proxies"),
            ("access_log: ", "access_log"),
            ("cache_dir: ", "cache_dir"),
            ("back end `dir`: answers", "[[backend]]"),
            ("back end `dir`: takes no `account_name`", "account_name"),
            ("back end `dir`: no bucket may have the name of `Sales`", "[[backend]]"),
            ("bucket `absent`: ", "[[bucket]]\nname = \"absent\""),
            ("bucket `shut`: is read-only", "[[bucket]]\nname = \"shut\""),
            ("key `WEAK`: has a short secret", "[[key]]\naccess_key = \"WEAK\""),
            ("key `IDLE`: `No Bucket` in `buckets`", "buckets = [\"No Bucket\"]"),
            ("key `ODD/NAME`: cannot sign", "[[key]]\naccess_key = \"ODD/NAME\""),
            ("key `GOOD`: is well formed", "[[key]]\naccess_key = \"GOOD\""),
            ("public: everyone", "[[public]]"),
        ],
    );
}

#[test]
fn what_hinders_the_start_names_its_line_too() {
    let own = Scratch::new("doctor-start");
    let served = own.path().display();
    let base = format!("[[backend]]\nname = \"dir\"\nurl = \"file://{served}\"\ndynamic = true\n");
    let key = "[[key]]\naccess_key = \"K\"\nsecret_key = \"a secret of a good length\"\n";
    let settings = "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";
    let tls = format!(
        "{settings}tls_cert_file = \"/nowhere/cert.pem\"\ntls_key_file = \"/nowhere/key.pem\"\n\
         {base}{key}"
    );
    check(&own, &tls, &[("TLS: ", "tls_cert_file")]);
    let half = format!("{settings}tls_key_file = \"/nowhere/key.pem\"\n{base}{key}");
    check(&own, &half, &[("TLS: ", "tls_key_file")]);
    let twice = format!("{settings}{base}{key}{}", key.replace("secret of", "secret for"));
    check(&own, &twice, &[("keys: two keys have the access key `K`", "[[key]]")]);
    let nowhere =
        format!("{settings}{base}{key}[[bucket]]\nname = \"lake\"\nbackend = \"other\"\n");
    check(&own, &nowhere, &[("buckets: ", "[[bucket]]")]);
    let gone = base.replace("url = \"file://", "url = \"file:///nowhere");
    check(&own, &format!("{settings}{gone}{key}"), &[("back end `dir`: ", "[[backend]]")]);
    // Findings that no line is the cause of name the file.
    let (said, path) = doctor(&own, &format!("{base}{key}"));
    assert!(said.contains(&format!("{path}: --listen: ")), "{said}");
}

/// What is wrong with the file itself ends it, with the line.
#[test]
fn an_error_in_the_file_names_its_line() {
    let own = Scratch::new("doctor-file");
    for (text, words) in [
        ("listen = 5x\n", "line 1"),
        ("acl = \"off\"\nlisten_on = \"x\"\n", "unknown key `listen_on` in line 2"),
        ("[[backend]]\nname = \"a\"\n", "back end `a` has no `url` ([[backend]] in line 1)"),
        ("\n[[bucket]]\nbackend = \"a\"\n", "has no `name` ([[bucket]] in line 2)"),
        ("\n\n[[key]]\naccess_key = \"K\"\n", "key `K` has no secret ([[key]] in line 3)"),
        (
            "[[key]]\naccess_key = \"K\"\nsecret_key_env = \"NOT_SET\"\n",
            "the variable NOT_SET is not set ([[key]] in line 1)",
        ),
        ("[[public]]\nbuckets = [\"*\"]\n", "has no `rights` ([[public]] in line 1)"),
        ("[[public]]\nbuckets = [\"*\"]\nrights = [\"reed\"]\n", "[[public]] in line 1"),
    ] {
        let (said, path) = doctor(&own, text);
        assert!(said.contains(words) && said.contains(&path), "{words}: {said}");
    }
}

#[test]
fn no_finding_shows_a_secret() {
    let own = Scratch::new("doctor-secrets");
    let url = "http://user:U0VDUkVU@host:1/?sig=U0VDUkVU";
    let served = own.path().join("served");
    std::fs::create_dir(&served).unwrap();
    for name in ["listen", "admin_listen", "domains", "trusted_proxies", "access_log", "cache_dir"]
    {
        let text = format!(
            "{name} = \"{url}\"\n[[backend]]\nname = \"dir\"\nurl = \"file://{}\"\n\
             [[bucket]]\nname = \"lake\"\nbackend = \"dir\"\n\
             [[key]]\naccess_key = \"K\"\nsecret_key = \"U0VDUkVU-and-more-of-it\"\n",
            served.display()
        );
        let (said, _) = doctor(&own, &text);
        assert!(!said.contains("U0VDUkVU"), "{name}: {said}");
        assert!(said.contains("***"), "{name}: {said}");
    }
}
