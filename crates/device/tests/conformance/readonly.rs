//! Devices and files that are made read-only while they are open: the kernel then speaks of rights.

use crate::made::Scratch;
use penstock_base::Kind;
use penstock_device::{Discipline, Io, OpenOptions, Port, open};
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: u64 = 1 << 20;

/// Runs a program; its output, or why there is none.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

/// A loop device on a file, detached afterwards.
struct Loop {
    device: PathBuf,
    _image: Scratch,
}

impl Loop {
    fn new() -> Result<Self, String> {
        let image = Scratch::new();
        let file = std::fs::File::create(&image.0).expect("it can be made");
        file.set_len(BYTES).expect("there is room");
        let path = image.0.to_str().expect("a text");
        let device = run("losetup", &["--find", "--show", path])?;
        Ok(Loop { device: device.into(), _image: image })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// Makes it read-only while it is open: every way of writing tells so, and what helps.
fn refuses(path: &Path, set: (&str, &str), unset: (&str, &str), io: Io) -> Result<(), String> {
    let text = path.to_str().expect("a text");
    let options = OpenOptions { create_bytes: Some(BYTES), ..OpenOptions::new(io) };
    let device = open(path, &options).expect("opens");
    let port = Port::new(device, Discipline::Thread).expect("has queues");
    port.write(0, &[1; 4096]).expect("writes");
    run(set.0, &[set.1, text])?;
    let written = port.write(0, &[2; 4096]);
    run(unset.0, &[unset.1, text])?;
    let error = written.expect_err("it is read-only");
    let told = error.to_string();
    assert_eq!(error.kind(), Kind::Denied, "{io}: {told}");
    assert!(told.contains("read-only while it was open"), "{io}: {told}");
    assert!(error.hint().is_some_and(|hint| hint.contains(unset.1)), "{io}: {told}");
    port.write(0, &[3; 4096]).expect("writes again");
    Ok(())
}

#[test]
fn what_is_made_read_only_while_it_is_open_is_told_to_be_that() {
    for io in [Io::File, Io::Direct, Io::Uring] {
        let file = Scratch::new();
        if let Err(why) = refuses(&file.0, ("chattr", "+i"), ("chattr", "-i"), io) {
            eprintln!("readonly: NOT RUN on a file: {why}");
        }
        let (set, unset) = (("blockdev", "--setro"), ("blockdev", "--setrw"));
        let outcome = Loop::new().and_then(|device| refuses(&device.device, set, unset, io));
        if let Err(why) = outcome {
            eprintln!("readonly: NOT RUN on a loop device: {why}");
        }
    }
}
