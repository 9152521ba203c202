//! A test that starts itself as a process which works until it is killed (SIGKILL).
//!
//! Such a test has no harness: its main function is [`run`], which sees from the arguments whether
//! this is the child.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Before the directory that the child works in.
const CHILD: &str = "work-until-killed";

/// The main function: the child's work where this is the child, else the test `name`, which gives
/// what it did.
///
/// # Panics
/// When a runtime cannot be built, and where the test does.
#[allow(clippy::print_stdout)] // as a harness does
pub fn run<C: Future<Output = ()>, T: Future<Output = String>>(
    name: &str,
    child: impl FnOnce(PathBuf) -> C,
    test: impl FnOnce() -> T,
) {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    match &arguments[1..] {
        [mode, directory] if mode == CHILD => runtime.block_on(child(PathBuf::from(directory))),
        [flag] if flag == "--list" => println!("{name}: test"),
        _ => println!("test {name} ... ok ({})", runtime.block_on(test())),
    }
}

/// Tells a line to the test, at once.
///
/// # Panics
/// When nobody hears it.
#[allow(clippy::print_stdout)] // which the test reads
pub fn tell(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("the test reads");
}

/// Starts the child in a directory, hands each line that it tells to `note`, and kills it after so
/// many. What it told before the signal came counts too; its last line may be cut.
///
/// # Panics
/// When it cannot be started, or ends by itself.
pub fn kill_after(lines: usize, directory: &Path, mut note: impl FnMut(String)) {
    let me = std::env::current_exe().expect("a running program has a path");
    let mut child = Command::new(me)
        .arg(CHILD)
        .arg(directory)
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
