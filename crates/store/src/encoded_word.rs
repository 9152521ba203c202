//! Values of user metadata as headers can carry them. Pure.
//!
//! Services take printable ASCII only. Other values are written as one RFC 2047 encoded-word, which
//! is how S3's clients send them and S3 tells them; they come back as they were.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const START: &str = "=?UTF-8?B?";
const END: &str = "?=";

/// The value that the service keeps.
pub(crate) fn encode(value: &str) -> String {
    let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    // Headers lose blanks at their ends.
    if printable && value.trim() == value && !value.starts_with(START) {
        return value.to_string();
    }
    format!("{START}{}{END}", STANDARD.encode(value))
}

/// The value that the user gave. What is no such word stays as it is.
pub(crate) fn decode(value: &str) -> String {
    value
        .strip_prefix(START)
        .and_then(|rest| rest.strip_suffix(END))
        .and_then(|word| STANDARD.decode(word).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_else(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_values_stay_and_others_are_words() {
        for (value, kept) in [
            ("plain value", "plain value"),
            ("ü", "=?UTF-8?B?w7w=?="),
            (" ends ", "=?UTF-8?B?IGVuZHMg?="),
            ("=?UTF-8?B?w7w=?=", "=?UTF-8?B?PT9VVEYtOD9CP3c3dz0/PQ==?="),
        ] {
            assert_eq!(encode(value), kept);
            assert_eq!(decode(kept), value);
        }
        assert_eq!(decode("=?UTF-8?B?no base64?="), "=?UTF-8?B?no base64?=");
    }

    proptest! {
        #[test]
        fn values_come_back_and_are_ascii(value: String) {
            let kept = encode(&value);
            prop_assert!(kept.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert_eq!(decode(&kept), value);
        }

        #[test]
        fn any_kept_text_decodes(text: String) {
            let _ = decode(&text);
        }
    }
}
