//! Digests as hexadecimal digits.

/// In small letters, as signatures are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The bytes of digits in either case; `None` for anything else.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    // That they are digits is seen first: a sign would be read as well.
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes_and_nothing_else_is() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)).as_deref(), Some(&all[..]));
        assert_eq!(unhex("0aFF"), Some(vec![10, 255]));
        assert_eq!(unhex(""), Some(Vec::new()));
        for odd in ["0", "+f", "0x", "\u{e9}", "0g"] {
            assert_eq!(unhex(odd), None, "{odd}");
        }
    }
}
