//! The binary as a person meets it: verbs, exit codes, error lines, and a server that is stopped.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::fake::{FakeOptions, FakeS3};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("penstock-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}/{name}", self.0.display())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The binary with an environment of its own: what the machine's has must not matter.
fn penstock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear();
    command
}

fn run(args: &[&str]) -> Output {
    penstock().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn objects_go_in_and_come_out() {
    let dir = Dir::new();
    let source = dir.0.join("source.bin");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    let url = dir.url("deep/copy.bin");
    let put = run(&["put", source.to_str().unwrap(), &url]);
    assert!(put.status.success(), "{}", text(&put.stderr));
    assert_eq!(text(&put.stderr), "", "progress belongs on a terminal");
    assert_eq!(run(&["cat", &url]).stdout, bytes);
    assert_eq!(run(&["cat", "--range", "10-12", &url]).stdout, bytes[10..13]);
    assert_eq!(run(&["cat", "--range", "-5", &url]).stdout, bytes[bytes.len() - 5..]);
    let back = dir.0.join("back.bin");
    assert!(run(&["get", &url, back.to_str().unwrap()]).status.success());
    assert_eq!(std::fs::read(&back).unwrap(), bytes);
    let listed = text(&run(&["ls", &dir.url("deep/")]).stdout);
    assert!(listed.contains("3000000") && listed.contains(&url), "{listed}");
    let matched = text(&run(&["ls", &dir.url("**/*.bin")]).stdout);
    assert_eq!(matched.lines().count(), 3, "{matched}");
    let told = text(&run(&["stat", &url]).stdout);
    assert!(told.contains("size_bytes: 3000000") && told.contains("etag: "), "{told}");
    assert!(run(&["rm", &url, &dir.url("never-was")]).status.success());
    assert!(!dir.0.join("deep/copy.bin").exists());
}

#[test]
fn stdin_is_a_source() {
    let dir = Dir::new();
    let url = dir.url("from-stdin");
    let mut put = penstock().args(["put", "-", &url]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"piped").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(run(&["cat", &url]).stdout, b"piped");
}

#[test]
fn errors_have_a_line_a_hint_and_a_code() {
    let dir = Dir::new();
    for (args, code, said) in [
        (vec!["stat".to_string(), dir.url("nothing")], 11, "nothing"),
        (vec!["ls".into(), dir.url("empty/")], 11, "nothing is there"),
        (vec!["ls".into(), "foo://x/".into()], 17, "foo"),
        (vec!["rm".into(), dir.url("dir/")], 16, "directory"),
        (vec!["put".into(), "/no/such/file".into(), dir.url("x")], 11, "/no/such/file"),
        (vec!["cat".into(), dir.url("x"), "-o".into(), "endpont=1".into()], 16, "endpont"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run(&args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{args:?}: {stderr}");
        assert!(lines[0].starts_with("penstock: ") && lines[0].contains(said), "{stderr}");
        assert!(lines[1].starts_with("hint: "), "{stderr}");
    }
    assert_eq!(run(&["lss"]).status.code(), Some(2));
    let variable = penstock().args(["reference"]).env("PENSTOCK_IO_THREAD", "2").output().unwrap();
    assert_eq!(variable.status.code(), Some(16));
    assert!(text(&variable.stderr).contains("PENSTOCK_IO_THREADS"));
}

/// Before anything is done, and wherever the two come from.
#[test]
fn settings_that_contradict_each_other_are_told() {
    // The limit's default depends on the machine.
    const SIZES: &str = "listen = \"127.0.0.1:0\"\ncache_memory_bytes = \"2GiB\"\n\
                         memory_limit_bytes = \"1GiB\"\n";
    let dir = Dir::new();
    let config = dir.0.join("gateway.toml");
    std::fs::write(&config, SIZES).unwrap();
    let config = config.to_str().unwrap();
    let (there, told) =
        (dir.url("x"), "`--retry-base-ms` and `--retry-max-ms` contradict each other");
    let flags = ["--retry-base-ms", "700", "--retry-max-ms", "200"];
    let cached = "2GiB is more than 1GiB";
    for (args, said) in [
        (vec!["cat", &there, flags[0], flags[1], flags[2], flags[3]], told),
        (vec!["cat", &there, flags[2], "50"], "100 ms is more than 50 ms"),
        (vec!["serve", "--config", config], cached),
        (
            vec!["serve", "--config", config, "--memory-limit-bytes", "1536MiB"],
            "is more than 1536MiB",
        ),
        (
            vec!["cat", &there, "--part-size-bytes", "2GiB", "--memory-limit-bytes", "1GiB"],
            "2GiB is more than 1GiB",
        ),
    ] {
        let output = run(&args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(16), "{args:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.contains("hint: Set "), "{stderr}");
    }
    let mut variable = penstock();
    variable.args(["cat", &there]).env("PENSTOCK_RETRY_MAX_MS", "50");
    assert!(text(&variable.output().unwrap().stderr).contains("contradict"));
}

/// What is missing is told as it is given: flags to a command, lines to a config file.
#[test]
fn advice_is_in_the_words_of_the_reader() {
    let listed = run(&["ls", "s3://lake/", "-o", "key_id=x"]);
    let stderr = text(&listed.stderr);
    assert!(stderr.contains("hint: Give -o key_id='...' -o secret='...'"), "{stderr}");
    let dir = Dir::new();
    let config = dir.0.join("gateway.toml");
    let lines = "listen = \"127.0.0.1:0\"\n[[backend]]\nname = \"back\"\nurl = \"az://\"\n\
                 dynamic = true\n[[key]]\naccess_key = \"k\"\nsecret_key = \"0123456789\"\n";
    std::fs::write(&config, lines).unwrap();
    let looked = run(&["doctor", "--config", config.to_str().unwrap()]);
    let said = format!("{}{}", text(&looked.stdout), text(&looked.stderr));
    assert!(said.contains("account_name = \"ACCOUNT\""), "{said}");
    assert!(!said.contains("CREATE SECRET") && !said.contains("which_secret"), "{said}");
}

#[test]
fn a_download_that_fails_leaves_no_file() {
    let dir = Dir::new();
    let target = dir.0.join("target");
    let output = run(&["get", &dir.url("nothing"), target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(11));
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
}

/// A server that is stopped at the end, whatever the test met.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(dir: &Dir, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = penstock();
        command.args(["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(&dir.0);
        configure(&mut command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let expected = format!("penstock: serving {} as S3 on http://", dir.0.display());
        let address = line.trim().strip_prefix(&expected);
        let address = address.unwrap_or_else(|| panic!("said {line:?}")).to_string();
        Served { child, address }
    }

    fn ask(&self, path: &str) -> String {
        Self::ask_at(&self.address, path)
    }

    fn ask_at(address: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (code, stderr)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn serve_says_when_it_is_ready_and_drains_on_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let dir = Dir::new();
        let served = Served::start(&dir, |command| {
            command.env("PENSTOCK_ACCESS_KEY", "k").env("PENSTOCK_SECRET_KEY", "hidden-secret");
        });
        assert!(served.ask("/healthz").ends_with("ok\n"));
        assert!(served.ask("/").contains("AccessDenied"));
        let cmdline = std::fs::read(format!("/proc/{}/cmdline", served.child.id())).unwrap();
        assert!(!text(&cmdline).contains("hidden-secret"));
        let (code, said) = served.stop(signal);
        assert_eq!(code, Some(0), "{signal}: {said}");
        assert!(!said.contains("hidden-secret"), "{said}");
        // The form of every line: a name, a time, a subject and words.
        for line in said.lines() {
            let time = line.strip_prefix("penstock: ").and_then(|rest| rest.split(' ').next());
            assert!(time.is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{line}");
        }
        for words in [
            &format!("start: penstock {} serves S3 on http://", env!("CARGO_PKG_VERSION"))[..],
            "start: keys: `k`",
            "drain: begins with 0 requests at work",
            "0 requests were cut",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

/// Whoever moved the log away takes it for closed.
#[test]
fn a_log_that_cannot_be_opened_again_is_told() {
    let dir = Dir::new();
    let (logs, moved) = (dir.0.join("logs"), dir.0.join("moved"));
    std::fs::create_dir(&logs).unwrap();
    let mut served = Served::start(&dir, |command| {
        command.args(["--anonymous", "--access-log"]).arg(logs.join("access"));
    });
    std::fs::rename(&logs, &moved).unwrap();
    let pid = served.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let stderr = BufReader::new(served.child.stderr.take().unwrap());
    let (teller, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = stderr.lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains(" access_log: "));
        teller.send(line.unwrap_or_default()).ok();
    });
    // A line would come at once; a gateway that says nothing is not waited for without end.
    let line = told.recv_timeout(std::time::Duration::from_secs(20)).unwrap_or_default();
    assert!(served.ask("/lake").contains("NoSuchBucket"));
    assert_eq!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().code(), Some(0));
    served.child.wait().unwrap();
    let path = logs.join("access").display().to_string();
    assert!(line.contains(&path) && line.contains("access_log names a file"), "{line:?}");
    assert!(line.contains("the file that was open"), "{line:?}");
    assert!(std::fs::read_to_string(moved.join("access")).unwrap().contains("NoSuchBucket"));
}

#[test]
fn serve_tells_once_that_it_can_accept_no_more_and_counts_on() {
    let dir = Dir::new();
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_penstock")).args(["serve", "--anonymous", "--dir"]);
    command.arg(&dir.0).args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let urls: Vec<String> = said.take(2).collect();
    let after = |line: &str| line.split_once("http://").unwrap().1.to_string();
    let (address, admin) = (after(&urls[0]), after(&urls[1]).replace("/metrics", ""));
    let mut served = Served { child, address };
    // The kernel takes them all; the process cannot.
    let held: Vec<_> = (0..60).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    let mut stderr = BufReader::new(served.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" connections: ") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    assert!(line.contains("could not be accepted: ") && line.contains("ulimit -Hn"), "{line}");
    drop(held);
    let of_admin = Served::ask_at(&admin, "/metrics");
    let count =
        of_admin.lines().find_map(|line| line.strip_prefix("penstock_accept_failures_total "));
    assert!(count.unwrap().parse::<u64>().unwrap() > 0, "{of_admin}");
    assert!(Served::ask_at(&served.address, "/healthz").ends_with("ok\n"));
    served.child.kill().unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "once a minute");
}

#[test]
fn serve_takes_the_secret_from_a_file_and_refuses_half_a_pair() {
    let dir = Dir::new();
    let file = dir.0.join("key");
    std::fs::write(&file, "from-file\n").unwrap();
    let served = Served::start(&dir, |command| {
        command.args(["--access-key", "k", "--secret-key-file"]).arg(&file);
    });
    assert!(served.ask("/healthz").ends_with("ok\n"));
    let path = dir.0.to_str().unwrap();
    for args in [&["serve", "--dir", path][..], &["serve", "--dir", path, "--access-key", "k"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(16), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("PENSTOCK_SECRET_KEY"));
    }
    let taken = run(&["serve", "--dir", path, "--anonymous", "--listen", &served.address]);
    assert_eq!(taken.status.code(), Some(13), "{}", text(&taken.stderr));
}

#[test]
fn serve_names_both_ways_to_say_what_it_serves() {
    for (args, wanted) in [
        (&["serve", "--anonymous"][..], "<--dir <DIR>|--config <FILE>>"),
        (&["doctor", "--dir", "/x", "--config", "/y"], "cannot be used with '--config <FILE>'"),
    ] {
        let output = run(args);
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(wanted), "{args:?}: {told}");
    }
}

#[test]
fn what_was_read_once_lies_in_the_cache_directory() {
    let (lake, own) = (Dir::new(), Dir::new());
    let served = Served::start(&lake, |command| {
        command.env("PENSTOCK_ACCESS_KEY", "k").env("PENSTOCK_SECRET_KEY", "s");
    });
    std::fs::create_dir(lake.0.join("lake")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(lake.0.join("lake/x"), &bytes).unwrap();
    let cache = own.0.join("cache");
    let read = |verb: &[&str]| {
        let mut command = penstock();
        let endpoint = format!("endpoint={}", served.address.trim_start_matches("http://"));
        command.args(verb).args(["-o", &endpoint, "-o", "url_style=path", "-o", "use_ssl=false"]);
        command.args(["-o", "key_id=k", "-o", "secret=s", "--cache-dir"]).arg(&cache);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    // Requests for bytes, and what was sent in answer to all of them.
    let sent = || {
        let stats = served.ask("/_penstock/stats");
        let number = |name: &str| {
            let after = stats.split_once(&format!("\"{name}\":")).unwrap().1;
            after.split(['}', ',']).next().unwrap().parse::<u64>().unwrap()
        };
        (number("GetObject"), number("bytes_out"))
    };
    assert!(read(&["cat", "s3://lake/x"]) == bytes);
    let before = sent();
    assert!(before.1 > 3_000_000);
    let (got, copied) = (own.0.join("got"), own.0.join("copied"));
    let (got, copied) = (got.to_str().unwrap(), copied.to_str().unwrap());
    assert!(read(&["cat", "s3://lake/x"]) == bytes);
    assert!(read(&["cat", "s3://lake/x", "--range", "7-2999990"]) == bytes[7..2_999_991]);
    assert!(read(&["cp", "s3://lake/x", "-"]) == bytes);
    read(&["get", "s3://lake/x", got]);
    read(&["cp", "s3://lake/x", copied]);
    read(&["cp", "s3://lake/x", &own.url("there")]);
    let there = own.0.join("there");
    for file in [Path::new(got), Path::new(copied), &there] {
        assert!(std::fs::read(file).unwrap() == bytes);
    }
    let after = sent();
    assert_eq!(after.0, before.0, "not one request for bytes");
    assert!(after.1 - before.1 < 10_000, "only what is asked of the version");
    // What `cp` read first lies there as well.
    std::fs::write(lake.0.join("lake/y"), &bytes).unwrap();
    read(&["cp", "s3://lake/y", copied]);
    let before = sent();
    read(&["cp", "s3://lake/y", copied]);
    assert!(read(&["cat", "s3://lake/y"]) == bytes);
    assert_eq!(sent().0, before.0);
    std::fs::write(lake.0.join("lake/x"), "new").unwrap();
    let unasked = read(&["cat", "s3://lake/x", "--cache-validation", "never"]);
    assert!(unasked == bytes, "the store is not asked for what never changes");
    assert_eq!(read(&["cat", "s3://lake/x"]), b"new");
}

#[test]
fn one_object_is_copied_and_nothing_is_lost() {
    let dir = Dir::new();
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|index| (index % 251) as u8).collect();
    let (source, back) = (dir.0.join("source.bin"), dir.0.join("back.bin"));
    std::fs::write(&source, &bytes).unwrap();
    let (source, back) = (source.to_str().unwrap(), back.to_str().unwrap());
    let (sub, copy) = (dir.url("sub/"), dir.url("sub/source.bin"));
    let other = dir.url("other.bin");
    for (from, to) in [(source, &*sub), (&*copy, &*other), (&*other, back)] {
        let output = run(&["cp", from, to]);
        assert!(output.status.success(), "{from} {to}: {}", text(&output.stderr));
    }
    assert!(std::fs::read(back).unwrap() == bytes);
    assert!(run(&["cp", &copy, "-"]).stdout == bytes);
    assert!(run(&["cat", "--range", "7-8999990", &copy]).stdout == bytes[7..8_999_991]);
    for (args, code, said) in [
        (["-n", &*copy, back], 13, "no-clobber"),
        (["-n", source, &*other], 13, "no-clobber"),
        (["--", &*sub, back], 16, "one object"),
        (["--", dir.0.to_str().unwrap(), &*other], 16, "one object"),
        (["--", source, back], 16, "URL"),
        (["--", &*dir.url("nothing"), back], 11, "nothing"),
    ] {
        let output = run(&["cp", args[0], args[1], args[2]]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
    assert!(std::fs::read(back).unwrap() == bytes, "what was there is there");
    let left = std::fs::read_dir(&dir.0).unwrap().count();
    assert_eq!(left, 4, "two files, an object and a directory: nothing half done");
}

/// Each call is a process of its own, which cannot know what the one before has learnt.
#[test]
fn a_service_that_knows_no_checksums_takes_what_is_copied_there() {
    let dir = Dir::new();
    let fake = FakeOptions { without_checksums: true, ..FakeOptions::s3() };
    let fake = FakeS3::start(fake).unwrap();
    let source = dir.0.join("f");
    std::fs::write(&source, b"old but well").unwrap();
    let endpoint = format!("endpoint={}", fake.address());
    let run = |verb: &[&str], more: &[&str]| {
        let mut command = penstock();
        command.args(verb).args(["-o", &endpoint, "-o", "url_style=path", "-o", "use_ssl=false"]);
        command.args(["-o", "key_id=test", "-o", "secret=test"]).args(more).output().unwrap()
    };
    for more in [&[][..], &["-o", "checksum=none"], &["-o", "checksum=md5"]] {
        let copied = run(&["cp", source.to_str().unwrap(), "s3://old/k"], more);
        assert!(copied.status.success(), "{more:?}: {}", text(&copied.stderr));
        assert_eq!(text(&copied.stderr), "", "nothing is worth a word");
        assert_eq!(run(&["cat", "s3://old/k"], more).stdout, b"old but well", "{more:?}");
    }
}

#[test]
fn a_large_object_comes_in_several_requests_at_once_and_once_only() {
    let (lake, own) = (Dir::new(), Dir::new());
    let served = Served::start(&lake, |command| {
        command.env("PENSTOCK_ACCESS_KEY", "k").env("PENSTOCK_SECRET_KEY", "s");
    });
    std::fs::create_dir(lake.0.join("lake")).unwrap();
    let bytes: Vec<u8> = (0..10_u32 << 20).map(|index| (index % 251) as u8).collect();
    std::fs::write(lake.0.join("lake/x"), &bytes).unwrap();
    let endpoint = format!("endpoint={}", served.address.trim_start_matches("http://"));
    let run = |verb: &[&str], more: &[&str]| {
        let mut command = penstock();
        command.args(verb).args(["-o", &endpoint, "-o", "url_style=path"]);
        command.args(["-o", "use_ssl=false", "-o", "key_id=k", "-o", "secret=s"]).args(more);
        command.args(["--parallel-read-chunk-size-bytes", "1MiB"]);
        command.args(["--parallel-read-auto-fanout-enabled=false"]).output().unwrap()
    };
    let requests = || {
        let stats = served.ask("/_penstock/stats");
        let count = stats.split_once("\"GetObject\":").unwrap().1;
        count.split(['}', ',']).next().unwrap().parse::<u64>().unwrap()
    };
    let cat = |more: &[&str]| {
        let output = run(&["cat", "s3://lake/x"], more);
        assert!(output.stdout == bytes, "{}", text(&output.stderr));
        requests()
    };
    // The head, and two steps of four.
    assert_eq!(cat(&[]), 9);
    assert_eq!(cat(&["--parallel-read-enabled=false"]), 10);
    let dir = own.0.join("cache").display().to_string();
    assert_eq!(cat(&["--cache-dir", &dir]), 19);
    assert_eq!(cat(&["--cache-dir", &dir]), 19, "it lies in the cache directory");
    let copy = run(&["cp", "s3://lake/x", &own.url("copied")], &[]);
    assert!(std::fs::read(own.0.join("copied")).unwrap() == bytes, "{}", text(&copy.stderr));
    assert_eq!(requests(), 28, "a copy to another store is read in the same way");
}
