//! Slips of the hand at the command line: what they do, and what is said of them.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use penstock_testkit::scratch::Scratch;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};

/// The binary with an environment of its own: what the machine's has must not matter.
fn penstock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear();
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A service, and a command on it.
struct Lake(FakeHandle);

impl Lake {
    fn start() -> Self {
        let open = FakeOptions { anonymous: true, ..FakeOptions::s3() };
        Lake(FakeS3::start(open).unwrap())
    }

    fn run(&self, verb: &[&str]) -> Output {
        let mut command = penstock();
        let endpoint = format!("endpoint={}", self.0.address());
        command.args(verb).args(["-o", &endpoint, "-o", "url_style=path", "-o", "use_ssl=false"]);
        command.args(["-o", "key_id=test", "-o", "secret=test"]).output().unwrap()
    }

    /// What a command prints that must succeed.
    fn done(&self, verb: &[&str]) -> String {
        let output = self.run(verb);
        assert!(output.status.success(), "{verb:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What is said of a command that must fail with this code.
    fn refused(&self, verb: &[&str], code: i32) -> String {
        let output = self.run(verb);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{verb:?}: {said}");
        said
    }

    /// An object whose name no verb makes by itself.
    fn place(&self, path: &str) {
        self.place_with(path, "");
    }

    /// The same with more headers, each with the end of its line.
    fn place_with(&self, path: &str, more: &str) {
        let mut stream = TcpStream::connect(self.0.address()).unwrap();
        let request = format!(
            "PUT {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 1\r\n\
             {more}\r\nx"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn objects_are_removed_where_a_service_takes_no_batches() {
    for refusal in ["status=501,code=NotImplemented", "status=400,code=MalformedXML", "status=405"]
    {
        let lake = Lake::start();
        let urls: Vec<String> = (0..30).map(|number| format!("s3://lake/d/k{number}")).collect();
        urls.iter().for_each(|url| lake.place(&url.replace("s3:/", "")));
        lake.0.fault(&format!("{refusal},op=DeleteObjects"));
        let verb: Vec<&str> =
            std::iter::once("rm").chain(urls.iter().map(String::as_str)).collect();
        lake.done(&verb);
        assert!(lake.refused(&["ls", "s3://lake/d/"], 11).contains("nothing is there"));
        assert_eq!(lake.0.stats().operation("DeleteObjects"), 1, "{refusal}");
    }
}

#[test]
fn a_directory_takes_the_name_of_what_is_put_there() {
    let (lake, own) = (Lake::start(), Scratch::new("put-directory"));
    let file = own.path().join("flights.csv");
    std::fs::write(&file, "a,b").unwrap();
    let file = file.to_str().unwrap();
    lake.done(&["put", file, "s3://lake/dir/"]);
    lake.done(&["put", file, "s3://lake/asked/?s3_region=us-east-1"]);
    assert_eq!(lake.done(&["cat", "s3://lake/dir/flights.csv"]), "a,b");
    assert_eq!(lake.done(&["cat", "s3://lake/asked/flights.csv"]), "a,b");
    let said = lake.refused(&["put", "-", "s3://lake/dir/"], 16);
    assert!(said.contains("the source has no name"), "{said}");
    assert_eq!(lake.done(&["ls", "s3://lake/dir/"]).lines().count(), 1);
}

#[test]
fn a_directory_takes_the_name_of_what_is_got_into_it() {
    let (lake, own) = (Lake::start(), Scratch::new("get-directory"));
    lake.place("/lake/dir/flights.csv");
    let into = own.path().display().to_string();
    for directory in [into.clone(), format!("{into}/"), format!("{into}/.")] {
        lake.done(&["get", "s3://lake/dir/flights.csv?s3_region=us-east-1", &directory]);
        let got = own.path().join("flights.csv");
        assert_eq!(std::fs::read(&got).unwrap(), b"x", "{directory}");
        std::fs::remove_file(got).unwrap();
    }
    let absent = format!("{into}/absent/");
    let said = lake.refused(&["get", "s3://lake/dir/flights.csv", &absent], 11);
    assert!(said.contains("absent/flights.csv: cannot write"), "{said}");
    let said = lake.refused(&["get", "s3://lake/dir/", &into], 16);
    assert!(said.contains("the source has no name"), "{said}");
}

#[test]
fn an_objects_url_lists_the_object() {
    let lake = Lake::start();
    lake.place("/lake/dir/flights.csv");
    lake.place("/lake/dir/odd%5B1%5D");
    for name in ["flights.csv", "odd[1]"] {
        let url = format!("s3://lake/dir/{name}");
        let listed = lake.done(&["ls", &url]);
        let words: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!((words[0], *words.last().unwrap(), words.len()), ("1", url.as_str(), 3));
    }
    // A store without lists has objects all the same.
    let web = format!("http://{}/lake/dir/flights.csv", lake.0.address());
    assert!(lake.done(&["ls", &web]).trim_end().ends_with(&web));
    for absent in ["s3://lake/dir/fli", "s3://lake/dir/flights.csv/", "s3://lake/x*"] {
        assert!(lake.refused(&["ls", absent], 11).contains("nothing is there"), "{absent}");
    }
    let own = Scratch::new("ls-itself");
    let file = own.path().join("here.txt");
    std::fs::write(&file, "abc").unwrap();
    let listed = lake.done(&["ls", file.to_str().unwrap()]);
    assert!(listed.contains(" 3 ") && listed.contains("here.txt"), "{listed}");
}

/// The hint stands in a line of its own.
#[test]
fn advice_on_a_cut_signature_is_given_once() {
    let string = "connection_string=SharedAccessSignature=sv=1";
    let output = penstock().args(["cat", "az://c/x", "-o", string]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(said.matches("The form is").count(), 1, "{said}");
    assert!(said.contains("was it cut?\nhint: The form is"), "{said}");
}

#[test]
fn a_setting_of_the_environment_is_called_by_its_variable() {
    for (variables, said_so) in [
        (&[("PENSTOCK_PART_SIZE_BYTES", "99TiB")][..], "setting `PENSTOCK_PART_SIZE_BYTES` is"),
        (
            &[("PENSTOCK_RETRY_BASE_MS", "9000"), ("PENSTOCK_RETRY_MAX_MS", "10")],
            "Set PENSTOCK_RETRY_BASE_MS to 10 ms or less, or PENSTOCK_RETRY_MAX_MS",
        ),
        (&[("PENSTOCK_HTTP_PROXY", "http://a b")], "Check PENSTOCK_HTTP_PROXY"),
    ] {
        let mut command = penstock();
        let output = command.args(["cat", "http://127.0.0.1:1/x"]).envs(variables.iter().copied());
        let said = text(&output.output().unwrap().stderr);
        assert!(said.contains(said_so), "{said}");
    }
    let mut command = penstock();
    command.args(["cat", "http://127.0.0.1:1/x", "--retry-base-ms", "9000"]);
    let output = command.env("PENSTOCK_RETRY_MAX_MS", "10").output().unwrap();
    let said = text(&output.stderr);
    assert!(
        said.contains("Set --retry-base-ms to 10 ms or less, or PENSTOCK_RETRY_MAX_MS"),
        "{said}"
    );
}

/// Other programs make them to mark a directory.
#[test]
fn an_object_that_is_named_as_a_directory_is_listed_copied_and_removed() {
    let lake = Lake::start();
    lake.place("/lake/dir/");
    lake.place("/lake/dir/k");
    let listed = lake.done(&["ls", "s3://lake/dir/"]);
    let names: Vec<&str> = listed.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(names, ["s3://lake/dir/", "s3://lake/dir/k"]);
    lake.done(&["cp", "s3://lake/dir/", "s3://lake/copied"]);
    assert_eq!(lake.done(&["cat", "s3://lake/copied"]), "x");
    lake.done(&["rm", "s3://lake/dir/"]);
    assert!(!lake.done(&["ls", "s3://lake/dir/"]).contains("dir/\n"));
    for verb in [&["rm", "s3://lake/dir/"][..], &["cp", "s3://lake/dir/", "s3://lake/again"]] {
        let said = lake.refused(verb, 16);
        assert!(said.contains("a directory"), "{said}");
    }
    assert_eq!(lake.done(&["cat", "s3://lake/dir/k"]), "x");
}

#[test]
fn a_removal_that_removed_nothing_says_so() {
    let lake = Lake::start();
    lake.place("/lake/gl/a");
    lake.place("/lake/odd/*");
    // What is not there counts as removed: a removal may be run again.
    lake.done(&["rm", "s3://lake/gl/never-was"]);
    let said = lake.refused(&["rm", "s3://lake/gl/a", "s3://lake/gl/*"], 16);
    assert!(said.contains("are characters of a name"), "{said}");
    assert_eq!(lake.done(&["cat", "s3://lake/gl/a"]), "x", "nothing is removed then");
    lake.done(&["rm", "s3://lake/odd/*"]);
    assert_eq!(lake.done(&["ls", "s3://lake/"]).lines().count(), 1);
    for verb in [&["rm", "s3://missing/a"][..], &["rm", "s3://missing/a", "s3://missing/b"]] {
        let said = lake.refused(verb, 11);
        assert!(said.contains("the bucket does not exist (404 NoSuchBucket)"), "{said}");
    }
    lake.0.fault("html=404");
    for verb in [&["rm", "s3://lake/gl/a"][..], &["rm", "s3://lake/gl/a", "s3://lake/b"]] {
        let said = lake.refused(verb, 11);
        assert!(said.contains("a web page instead"), "{said}");
    }
}

#[test]
fn a_removal_from_a_container_that_is_not_there_says_so() {
    let azure = FakeAzure::start(FakeOptions::azure()).unwrap();
    let account = format!("connection_string={}", azure.connection_string());
    let run = |urls: &[&str]| penstock().arg("rm").args(urls).args(["-o", &account]).output();
    let good = run(&["az://lake/never-was"]).unwrap();
    assert!(good.status.success(), "{}", text(&good.stderr));
    for urls in [&["az://missing/a"][..], &["az://missing/a", "az://missing/b"]] {
        let output = run(urls).unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(11), "{said}");
        assert!(said.contains("the container does not exist (404 ContainerNotFound)"), "{said}");
    }
}

#[test]
fn a_file_with_the_secret_wins_over_the_variable() {
    let own = Scratch::new("secret-file");
    let path = |name: &str| own.path().join(name).display().to_string();
    std::fs::write(path("secret"), "a-secret-of-good-length\n").unwrap();
    std::fs::create_dir(path("served")).unwrap();
    let doctor = |more: &[&str]| {
        let mut command = penstock();
        command.args(["doctor", "--listen", "127.0.0.1:0", "--dir", &path("served")]);
        command.args(["--access-key", "k"]).args(more).env("PENSTOCK_SECRET_KEY", "short");
        let output = command.output().unwrap();
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    };
    assert!(doctor(&[]).contains("has a short secret"));
    let said = doctor(&["--secret-key-file", &path("secret")]);
    assert!(said.contains("ok       key `k`: is well formed"), "{said}");
    let said = doctor(&["--secret-key", "another-secret-of-length"]);
    assert!(said.contains("is well formed"), "{said}");
    let both = ["--secret-key", "s", "--secret-key-file", "f"];
    assert!(doctor(&both).contains("cannot be used with"));
}

/// Of whatever length: what is short waits in a buffer.
#[test]
fn a_full_stdout_is_told_as_a_full_disk() {
    let lake = Lake::start();
    lake.place("/lake/x");
    let own = Scratch::new("full");
    let long = own.path().join("long");
    std::fs::write(&long, vec![7; 3 << 20]).unwrap();
    lake.done(&["put", long.to_str().unwrap(), "s3://lake/long"]);
    let endpoint = format!("endpoint={}", lake.0.address());
    for verb in [["cat", "s3://lake/x"], ["cat", "s3://lake/long"], ["ls", "s3://lake/"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = penstock();
        command.args(verb).args(["-o", &endpoint, "-o", "url_style=path", "-o", "use_ssl=false"]);
        let output = command.arg("--anonymous").stdout(full).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(20), "{verb:?}: {said}");
        assert!(said.contains("hint: Free space on the disk"), "{verb:?}: {said}");
    }
}

/// There are no secrets at a command line.
#[test]
fn advice_on_credentials_and_endpoints_is_for_a_command_line() {
    let fake = FakeS3::start(FakeOptions::s3()).unwrap();
    let endpoint = format!("endpoint={}", fake.address());
    let store = ["-o", &endpoint, "-o", "url_style=path", "-o", "region=us-east-1"];
    let key = ("AWS_ACCESS_KEY_ID", "test");
    let plain = ["-o", "use_ssl=false"];
    let wrong = ("AWS_SECRET_ACCESS_KEY", "wrong");
    for (variables, more, said) in [
        (
            vec![key, wrong],
            &plain[..],
            "Check secret, region and endpoint (-o NAME=VALUE, or the environment)",
        ),
        (vec![("AWS_ACCESS_KEY_ID", "other"), wrong], &plain, "check key_id (-o NAME=VALUE, or"),
        (vec![key, wrong], &[], "hint: For a plain HTTP endpoint give -o use_ssl=false"),
        (vec![key], &plain, "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"),
    ] {
        let mut command = penstock();
        command.args(["ls", "s3://lake/"]).args(store).args(more).envs(variables);
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(said), "{said}: {told}");
        assert!(!told.contains("of the secret") && !told.contains("in the secret"), "{told}");
    }
}

#[test]
fn what_is_told_of_an_object_is_what_somebody_gave_it() {
    let lake = Lake::start();
    let given = "cache-control: max-age=5\r\nx-amz-meta-owner: me\r\n\
                 x-amz-checksum-crc32: jNwWgw==\r\n";
    lake.place_with("/lake/k", given);
    let told = lake.done(&["stat", "s3://lake/k"]);
    assert!(told.contains("cache_control: max-age=5\nmetadata.owner: me\n"), "{told}");
    assert!(!told.contains('@') && !told.contains("checksum"), "{told}");
    let own = Scratch::new("notes");
    let file = own.path().join("f");
    std::fs::write(&file, "bytes").unwrap();
    lake.done(&["put", file.to_str().unwrap(), "s3://lake/put"]);
    assert!(!lake.done(&["stat", "s3://lake/put"]).contains("metadata."));
}

#[test]
fn an_empty_bucket_lists_nothing_and_an_absent_one_is_an_error() {
    let s3 = FakeS3::start(FakeOptions::s3()).unwrap();
    let google = FakeS3::start(FakeOptions::google()).unwrap();
    let azure = FakeAzure::start(FakeOptions::azure()).unwrap();
    let keys = |fake: &FakeHandle| {
        let endpoint = format!("endpoint={}", fake.endpoint());
        let more = ["key_id=test", "secret=test", "region=us-east-1", "url_style=path"];
        [vec![endpoint], more.map(str::to_string).to_vec()].concat()
    };
    let account = vec![format!("connection_string={}", azure.connection_string())];
    for (scheme, options) in [("s3", keys(&s3)), ("gs", keys(&google)), ("az", account)] {
        let ls = |place: &str| {
            let options = options.iter().flat_map(|option| ["-o", option]);
            let url = format!("{scheme}://{place}");
            let output = penstock().args(["ls", &url]).args(options).output().unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        for empty in ["lake", "lake/"] {
            assert_eq!(ls(empty), (Some(0), String::new(), String::new()), "{scheme}://{empty}");
        }
        for absent in ["missing", "missing/", "lake/no/", "lake/*.parquet"] {
            let (code, printed, said) = ls(absent);
            assert_eq!((code, printed.as_str()), (Some(11), ""), "{scheme}://{absent}: {said}");
        }
    }
    let own = Scratch::new("empty-lists");
    std::fs::create_dir(own.path().join("empty")).unwrap();
    let ls = |scheme: &str, name: &str| {
        let url = format!("{scheme}{}/{name}", own.path().display());
        let output = penstock().args(["ls", &url]).output().unwrap();
        (output.status.code(), output.stdout.len())
    };
    for (name, code) in [("empty", 0), ("empty/", 0), ("missing/", 11), ("empty/*", 11)] {
        for scheme in ["file://", ""] {
            assert_eq!(ls(scheme, name), (Some(code), 0), "{scheme} {name}");
        }
    }
}
