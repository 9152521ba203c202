//! Transfers that are told to end, by whoever sends the signal: what they leave behind.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::fake::{FakeOptions, FakeS3};
use penstock_testkit::scratch::Scratch;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

/// The binary with an environment of its own: what the machine's has must not matter.
fn penstock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear();
    command
}

fn url(dir: &Scratch, name: &str) -> String {
    format!("file://{}/{name}", dir.path().display())
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        interrupt_an_upload(signal);
    }
}

fn interrupt_an_upload(signal: &str) {
    let dir = Scratch::new("interrupted");
    // Whoever runs the tests may have hang-ups ignored.
    let mut put = Command::new("env")
        .args(["-i", "--default-signal=HUP", env!("CARGO_BIN_EXE_penstock"), "put", "-"])
        .arg(url(&dir, "half"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than a pipe holds, so that the verb has begun to read when this returns.
    // Held open to the end: waiting for a child closes its stdin, which would end the upload.
    let mut stdin = put.stdin.take().unwrap();
    stdin.write_all(&vec![7; 1 << 20]).unwrap();
    let pid = put.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let code = put.wait().unwrap().code();
    drop(stdin);
    let mut stderr = String::new();
    put.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(code, Some(19), "{signal}: {stderr}");
    assert!(stderr.contains("cancelled on request") && !stderr.contains("query"), "{stderr}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{signal}");
}

/// `nohup` has it ignored, for a command that goes on when the terminal is gone.
#[test]
fn a_hangup_that_is_ignored_does_not_end_an_upload() {
    let dir = Scratch::new("interrupted");
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", "trap '' HUP; exec \"$0\" put - \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_penstock")).arg(url(&dir, "whole"));
    let mut put = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = put.stdin.take().unwrap();
    stdin.write_all(&vec![7; 1 << 20]).unwrap();
    let pid = put.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    drop(stdin);
    assert!(put.wait().unwrap().success());
    assert_eq!(std::fs::metadata(dir.path().join("whole")).unwrap().len(), 1 << 20);
}

#[test]
fn a_terminated_download_leaves_no_file() {
    let dir = Scratch::new("interrupted");
    let fake = FakeS3::start(FakeOptions { anonymous: true, ..FakeOptions::s3() }).unwrap();
    let endpoint = format!("endpoint={}", fake.address());
    let store = ["--anonymous", "-o", &endpoint, "-o", "url_style=path", "-o", "use_ssl=false"];
    let source = dir.path().join("source");
    std::fs::write(&source, vec![7; 4 << 20]).unwrap();
    let (source, target) = (source.to_str().unwrap(), dir.path().join("target"));
    let put = penstock().args(["put", source, "s3://lake/k"]).args(store).output().unwrap();
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    // It begins, and never comes to an end.
    fake.fault("slow=1000,method=GET");
    let mut get = penstock();
    get.args(["get", "s3://lake/k"]).arg(&target).args(store).stderr(Stdio::piped());
    let mut get = get.spawn().unwrap();
    let partial = dir.path().join(format!("target.penstock-{}", get.id()));
    while !partial.exists() && get.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let pid = get.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(get.wait().unwrap().code(), Some(19));
    assert!(!partial.exists() && !target.exists());
}
