//! Says how a command ended: one line for the error, one for what to do, and an exit code.

use crate::output::harmless;
use penstock_base::{Error, Kind, redact};
use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Exit code of an error: 10 and the kind's number, so that no kind meets the codes of the shell
/// or of clap (2 is a usage error).
pub fn exit_code(kind: Kind) -> u8 {
    10 + kind as u8
}

/// The line on what failed and the line on what to do.
pub fn lines(error: &Error) -> (String, String) {
    let advice = || format!("{}.", error.kind().next_move());
    (one_line(&error.without_hint()), error.hint().map_or_else(advice, one_line))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Prints the error to stderr and gives the exit code.
pub fn failure(error: &Error) -> ExitCode {
    let (what, hint) = lines(error);
    // Names stand in errors, too.
    let shown = |text: String| match std::io::stderr().is_terminal() {
        true => harmless(&text),
        false => text,
    };
    let (what, hint) = (shown(what), shown(hint));
    eprintln!("penstock: {what}");
    eprintln!("hint: {hint}");
    ExitCode::from(exit_code(error.kind()))
}

/// Tells of a wrong command line, or prints the help that was asked for, and ends the process.
/// What clap quotes may be a URL with a signature.
pub fn usage(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    match redact::text(&text) {
        Cow::Borrowed(_) => error.exit(),
        Cow::Owned(_) if !error.use_stderr() => error.exit(),
        Cow::Owned(shown) => {
            eprint!("{shown}");
            std::process::exit(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_and_hint_take_a_line_each() {
        let error = Error::new(Kind::NotFound, "no such\nobject").with_object("s3://b/k");
        let (what, hint) = lines(&error);
        assert_eq!(what, "s3://b/k: no such object");
        assert_eq!(hint, "Check the name; list the parent to see what is there.");
        let (what, hint) = lines(&error.with_hint("Look elsewhere"));
        assert_eq!((what.as_str(), hint.as_str()), ("s3://b/k: no such object", "Look elsewhere"));
        let asked = Error::new(Kind::Invalid, "was it cut?").with_hint("Paste it again");
        assert_eq!(lines(&asked), ("was it cut?".to_string(), "Paste it again".to_string()));
    }

    #[test]
    fn exit_codes_are_apart_from_those_of_the_shell() {
        for (kind, name, _) in Kind::ALL {
            assert!((11..=125).contains(&exit_code(*kind)), "{name}");
        }
    }
}
