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
            ("listen: ", "listen = \"0.0.0.0:0\""),
            ("admin_listen: ", "admin_listen"),
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

/// What doctor prints of a config with these settings and sections more, and no colon too few.
fn said_of(own: &Scratch, settings: &str, sections: &str) -> String {
    let served = own.path().join("served");
    std::fs::create_dir_all(&served).unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{settings}\n[[backend]]\n\
         name = \"dir\"\nurl = \"file://{}\"\ndynamic = true\n[[key]]\naccess_key = \"K\"\n\
         secret_key = \"a secret of a good length\"\n{sections}",
        served.display()
    );
    let (said, path) = doctor(own, &text);
    said.replace(&path, "g")
}

#[test]
fn what_contradicts_or_repeats_something_names_every_line() {
    let own = Scratch::new("doctor-several");
    let key = "[[key]]\naccess_key = \"K\"\nsecret_key = \"another secret of a good length\"\n";
    let bucket = "[[bucket]]\nname = \"lake\"\nbackend = \"dir\"\n";
    for (settings, sections, told) in [
        (
            "retry_max_ms = 10\nretry_base_ms = 100",
            "",
            "problem  g:4: settings: the settings `retry_base_ms` and `retry_max_ms` contradict \
             each other: 100 ms is more than 10 ms (and line 3)",
        ),
        (
            "form_size_max_bytes = \"2GiB\"\nbody_size_max_bytes = \"1GiB\"",
            "",
            "problem  g:3: settings: the settings `form_size_max_bytes` and `body_size_max_bytes` \
             contradict each other: 2GiB is more than 1GiB (and line 4)",
        ),
        ("", key, "problem  g:8: keys: two keys have the access key `K` (and line 11)"),
        ("", key, "ok       g:8: key `K`: is well formed (and line 11)"),
        (
            "",
            &format!("{bucket}{bucket}"),
            "problem  g:11: buckets: two buckets have the name `lake` (and line 14)",
        ),
        (
            "",
            &format!("{bucket}aliases = [\"raw\"]\n{}", bucket.replace("lake", "raw")),
            "problem  g:14: buckets: two buckets have the name `raw` (and line 15)",
        ),
        ("acl = \"public\"", "", "warning  g:3: public: unsigned requests may come"),
    ] {
        let said = said_of(&own, settings, sections);
        assert!(said.lines().any(|line| line.starts_with(told)), "{told}\nin\n{said}");
    }
}

/// Serving would meet them later, each at the first request that needs it.
#[test]
fn files_and_directories_that_settings_name_are_tried() {
    let own = Scratch::new("doctor-files");
    std::os::unix::fs::symlink(own.path().join("nothing"), own.path().join("link")).unwrap();
    let link = own.path().join("link").display().to_string();
    let long = own.path().join("n".repeat(300)).display().to_string();
    for (name, value) in [
        ("cache_dir", "/proc/x"),
        ("cache_dir", "/sys/x"),
        ("cache_dir", link.as_str()),
        ("cache_dir", long.as_str()),
        ("ca_file", "/nonexist"),
        ("http_proxy", "socks5://x"),
    ] {
        let said = said_of(&own, &format!("{name} = \"{value}\""), "");
        assert!(said.contains(&format!("problem  g:3: {name}: ")), "{value}: {said}");
    }
    // And those of back ends, before these are asked.
    for options in [
        "url = \"gs://\"\nservice_account_path = \"/nonexist\"",
        "url = \"az://\"\naccount_name = \"lake\"\nprovider = \"service_principal\"\n\
         tenant_id = \"t\"\nclient_id = \"c\"\nclient_certificate_path = \"/nonexist\"",
        "url = \"s3://\"\nendpoint = \"https://127.0.0.1:1\"\nca_cert_file = \"/nonexist\"\n\
         key_id = \"k\"\nsecret = \"s\"",
    ] {
        let said = said_of(&own, "", &format!("[[backend]]\nname = \"b\"\n{options}\n"));
        let named = options.split(" = \"/nonexist\"").next().unwrap().lines().last().unwrap();
        let told = format!("back end `b`: `{named}`: /nonexist cannot be read");
        let problem = said.lines().find(|line| line.contains(&told)).expect(&said);
        // The section begins in line 11, its name and its options follow.
        let at = 13 + options.lines().position(|line| line.starts_with(named)).unwrap();
        assert!(problem.starts_with(&format!("problem  g:{at}: ")), "{problem}");
    }
}

/// A value that a flag or a variable gives stands in no line of the file.
#[test]
fn a_finding_calls_a_setting_as_it_was_given() {
    let own = Scratch::new("doctor-doors");
    let path = own.path().join("gateway.toml");
    let served = own.path().display();
    let text = format!("listen = \"x\"\n[[backend]]\nname = \"dir\"\nurl = \"file://{served}\"\n");
    std::fs::write(&path, text).unwrap();
    let said = |file: bool, more: &[&str], variable: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.env_clear().arg("doctor").args(more);
        if file {
            command.arg("--config").arg(&path);
        }
        command.envs(variable.map(|value| ("PENSTOCK_LISTEN", value)));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().replace(&path.display().to_string(), "g")
    };
    let dir = served.to_string();
    let dir = ["--dir", dir.as_str()];
    let flag = [&dir[..], &["--listen", "y"]].concat();
    let by_file = said(true, &[], None);
    assert!(by_file.contains("-> Add a [[key]]") && !by_file.contains("--"), "{by_file}");
    assert!(said(false, &flag, None).contains("-> Give --access-key"), "{flag:?}");
    for (said, subject) in [
        (said(true, &[], None), "g:1: listen: "),
        (said(true, &["--listen", "y"], None), "g: --listen: "),
        (said(true, &[], Some("z")), "g: PENSTOCK_LISTEN: "),
        (said(false, &flag, None), "--listen: "),
        (said(false, &dir, Some("z")), "PENSTOCK_LISTEN: "),
    ] {
        assert!(
            said.lines().any(|line| line.starts_with(&format!("problem  {subject}"))),
            "{said}"
        );
    }
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
    assert!(said.contains(&format!("{path}: listen: ")), "{said}");
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
