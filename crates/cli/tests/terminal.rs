//! What reaches a terminal: no name makes it do anything.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Colours what follows, and turns it round.
const ODD: &str = "a\u{1b}[31m\u{202e}b";
/// As it is shown.
const SHOWN: &str = r"a\u{1b}[31m\u{202e}b";

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What a command writes to a terminal that is its stdout, up to its end.
fn on_a_terminal(args: &[&str]) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear().args(args).stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It holds the other end as long as it lives.
    drop(command);
    let (mut ours, mut bytes, mut piece) = (File::from(ours), Vec::new(), [0; 4096]);
    loop {
        match ours.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // So the kernel says that nobody has the other end any more.
            Err(_) => break,
        }
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
}

fn check_harmless(text: &str) {
    assert!(text.contains(SHOWN), "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn names_of_devices_and_databases_are_written_out() {
    let dir = Dir::new("terminal-nvme");
    let (device, database) = (dir.0.join("disk"), dir.0.join("db"));
    let (device, database) = (text(&device), text(&database));
    std::fs::write(database, b"12345678DUCK").unwrap();
    on_a_terminal(&["nvme", "format", device, "--size", "64MiB"]);
    // No database has a control character in its name.
    let odd = "a\u{202e}b";
    on_a_terminal(&["nvme", "import", device, database, "--db", odd]);
    for verb in ["ls", "check"] {
        let told = on_a_terminal(&["nvme", verb, device]);
        assert!(told.contains(r"a\u{202e}b") && !told.contains(odd), "{told:?}");
    }
    let cache = dir.0.join(ODD);
    check_harmless(&on_a_terminal(&["nvme", "format", text(&cache), "--cache", "--size", "1GiB"]));
    check_harmless(&on_a_terminal(&["nvme", "ls", text(&cache)]));
}

#[test]
fn what_doctor_finds_is_written_out() {
    let dir = Dir::new("terminal-doctor");
    // It is not there: problem and cure have its name.
    let data = dir.0.join(ODD);
    let keys = ["--access-key", "a", "--secret-key", "secret"];
    let told = on_a_terminal(&[&["doctor", "--dir", text(&data)], &keys[..]].concat());
    assert!(told.contains("mkdir -p"), "{told:?}");
    check_harmless(&told);
}
