//! What goes to stdout, and what became of it.

use penstock_base::{Error, Kind, Result, redact};
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

/// Writes to stdout. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// As [`unwritable`].
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(unwritable(cause)),
        _ => Ok(()),
    }
}

/// A name, or another text of somebody's, for a line of stdout: as it is, unless that is a
/// terminal, which would obey what is no text.
pub fn shown(text: &str) -> Cow<'_, str> {
    match std::io::stdout().is_terminal() {
        true => Cow::Owned(harmless(text)),
        false => Cow::Borrowed(text),
    }
}

/// A URL or an object's name for a line of stdout: as [`shown`], and without its secrets.
pub fn shown_url(url: &str) -> String {
    shown(&redact::url(url)).into_owned()
}

/// The text without characters that a terminal obeys: each is written as Rust's strings have it,
/// such as `\u{1b}`.
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_obeyed(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Control characters, and those that turn the direction of the text around them.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(character, '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// Why stdout took no more: `Exhausted` for a full disk or a file that may not grow.
pub fn unwritable(cause: std::io::Error) -> Error {
    let (kind, hint) = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (Kind::Exhausted, "Free space on the disk that stdout goes to, and run again")
        }
        ErrorKind::FileTooLarge => {
            (Kind::Exhausted, "Raise the limit of file sizes (`ulimit -f`), or take another disk")
        }
        _ => (Kind::Unavailable, "Check the file or program that stdout goes to"),
    };
    Error::new(kind, "cannot write to stdout").with_source(cause).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_is_shown_is_obeyed_and_text_stays(text in any::<String>()) {
            let shown = harmless(&text);
            prop_assert!(shown.chars().all(|it| !is_obeyed(it)), "{shown:?}");
            let is_plain = text.chars().all(|it| !is_obeyed(it));
            prop_assert_eq!(is_plain, shown == text);
        }
    }

    #[test]
    fn an_escape_sequence_is_written_out() {
        assert_eq!(harmless("a\u{1b}[31mb\r\n\u{202e}c"), r"a\u{1b}[31mb\r\n\u{202e}c");
        assert_eq!(harmless("ü 日本 \u{1f600}"), "ü 日本 \u{1f600}");
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        for (cause, kind, word) in [
            (ErrorKind::StorageFull, Kind::Exhausted, "Free space"),
            (ErrorKind::QuotaExceeded, Kind::Exhausted, "Free space"),
            (ErrorKind::FileTooLarge, Kind::Exhausted, "ulimit -f"),
            (ErrorKind::Other, Kind::Unavailable, "stdout goes to"),
        ] {
            let error = unwritable(cause.into());
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.hint().unwrap().contains(word), "{error}");
        }
    }
}
