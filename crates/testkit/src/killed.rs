//! A test that starts itself as a process which works until it is killed (SIGKILL).
//!
//! Such a test has a main function of its own: it sees from its arguments whether it is the child.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Starts this program with `arguments`, hands each line that it prints to `note`, and kills it
/// after so many. What it printed before the signal came counts too; its last line may be cut.
///
/// # Panics
/// When it cannot be started, or ends by itself.
pub fn kill_after(lines: usize, arguments: &[&OsStr], mut note: impl FnMut(String)) {
    let me = std::env::current_exe().expect("a running program has a path");
    let mut child = Command::new(me)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program that runs can be started");
    let mut told = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    for _ in 0..lines {
        note(told.next().expect("nothing but the kill ends it").expect("a line of text"));
    }
    child.kill().expect("it runs");
    told.map_while(Result::ok).for_each(note);
    child.wait().expect("it was started here");
}
