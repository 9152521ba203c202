//! Devices and files that are made read-only while they are open: the kernel then speaks of rights.

use crate::loops::Loop;
use crate::made::Scratch;
use penstock_base::Kind;
use penstock_device::{Command, Discipline, Io, OpenOptions, Port, open};
use std::path::Path;
use std::process;

const BYTES: u64 = 1 << 20;

/// Runs a program; its output, or why there is none.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = process::Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
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
    let bytes = [2; 4096];
    let write = |block| Command::Write { block, from: &bytes };
    // A command that is alone may take another way than two.
    let written = [port.run(&mut [write(0)]), port.run(&mut [write(0), write(8)])];
    run(unset.0, &[unset.1, text])?;
    for error in written.map(|outcome| outcome.expect_err("it is read-only")) {
        let told = error.to_string();
        assert_eq!(error.kind(), Kind::Denied, "{io}: {told}");
        assert!(told.contains("read-only while it was open"), "{io}: {told}");
        assert!(error.hint().is_some_and(|hint| hint.contains(unset.1)), "{io}: {told}");
    }
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
        let outcome = Loop::new(BYTES, 512).and_then(|it| refuses(it.path(), set, unset, io));
        if let Err(why) = outcome {
            eprintln!("readonly: NOT RUN on a loop device: {why}");
        }
    }
}
