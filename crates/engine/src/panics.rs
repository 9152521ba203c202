//! What a panic prints. Rust's own hook shows the message as it is, and a message may quote a URL
//! with a signature, or what a server sent.

use penstock_base::redact;
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};
use std::sync::Once;

/// The message of a panic, without secrets.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    redact::text(text).into_owned()
}

/// Has every panic from now on print its thread, its place and its message without secrets to
/// stderr, and the stack where `RUST_BACKTRACE` asks for it. Further calls do nothing.
pub fn print_panics_without_secrets() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_hook(Box::new(print)));
}

fn print(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic.location().map_or_else(String::new, |it| format!(" at {it}"));
    eprintln!("thread '{name}' panicked{place}:\n{}", panic_text(panic.payload()));
    let stack = Backtrace::capture();
    if stack.status() == BacktraceStatus::Captured {
        eprintln!("{stack}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MARK: &str = "U0VDUkVU";
    /// Has the test panic for good, in a process of its own.
    const PANICS: &str = "PENSTOCK_TEST_PANICS";

    #[test]
    fn what_a_panic_prints_holds_no_secret() {
        if std::env::var_os(PANICS).is_some() {
            print_panics_without_secrets();
            print_panics_without_secrets();
            panic!("of https://user:{MARK}@host/x?sig={MARK}&y=1, Authorization: Bearer {MARK}1");
        }
        let program = std::env::current_exe().expect("it runs");
        let name = "panics::tests::what_a_panic_prints_holds_no_secret";
        let mut command = Command::new(program);
        command.args(["--exact", name, "--nocapture"]).env(PANICS, "1");
        let ended = command.output().expect("it runs");
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success());
        for part in ["panicked at crates/engine/src/panics.rs:", "https://***@host/x", "&y=1"] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert!(!printed.contains(MARK), "{printed}");
    }

    #[test]
    fn a_message_of_any_form_is_text() {
        assert_eq!(panic_text(&"plain"), "plain");
        assert_eq!(panic_text(&"?sig=x".to_string()), "?sig=***");
        assert_eq!(panic_text(&7), "no message");
    }
}
