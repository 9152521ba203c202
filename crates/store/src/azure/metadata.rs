//! Names of user metadata in Azure's terms. Pure.
//!
//! Azure takes only C# identifiers as names. Others are escaped (`my-key` is `my_x2d_key`) and come
//! back as they were; for values see [`crate::encoded_word`].

use super::wire::{IS_FOLDER, UPLOAD_NONCE};

/// Names that mean something to the service's clients, or to ourselves.
const RESERVED: [&str; 2] = [IS_FOLDER, UPLOAD_NONCE];

/// The name that Azure keeps.
pub fn encode_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let bytes = name.as_bytes();
    // A user's own entry of such a name must not be taken for what it means here.
    let is_reserved = RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    for (at, byte) in bytes.iter().enumerate() {
        // Names come back in lower case, so that `_X40_` would be an escape then.
        let starts_escape =
            *byte == b'_' && bytes.get(at + 1).is_some_and(|next| next.eq_ignore_ascii_case(&b'x'));
        let legal = byte.is_ascii_alphabetic() && !(is_reserved && at == 0)
            || (*byte == b'_' && !starts_escape)
            || (byte.is_ascii_digit() && at > 0);
        if legal {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("_x{byte:02x}_"));
        }
    }
    out
}

/// The name that the user gave. What no escape of ours could be stays as it is.
pub fn decode_name(name: &str) -> String {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while !rest.is_empty() {
        match unescape(rest) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[5..];
            }
            None => {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                out.extend_from_slice(&rest.as_bytes()[..next]);
                rest = &rest[next..];
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| name.to_string())
}

fn unescape(text: &str) -> Option<u8> {
    let escape = text.as_bytes().get(..5)?;
    let hex = std::str::from_utf8(&escape[2..4]).ok()?;
    let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (escape.starts_with(b"_x") && escape[4] == b'_' && is_hex)
        .then(|| u8::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_stay_and_others_are_escaped() {
        for (name, kept) in
            [("owner", "owner"), ("my-key", "my_x2d_key"), ("1st", "_x31_st"), ("a_x", "a_x5f_x")]
        {
            assert_eq!(encode_name(name), kept);
            assert_eq!(decode_name(kept), name);
        }
        assert_eq!(decode_name("a_xzz_b"), "a_xzz_b");
        assert_eq!(encode_name("_X40_acl"), "_x5f_X40_acl");
        assert_eq!(decode_name("_x5f_x40_acl"), "_x40_acl");
        assert_eq!(encode_name("hdi_isfolder"), "_x68_di_isfolder");
        assert_eq!(decode_name("_x68_di_isfolder"), "hdi_isfolder");
        assert_eq!(encode_name("penstock_upload"), "_x70_enstock_upload");
    }

    proptest! {
        #[test]
        fn names_come_back_and_are_identifiers(name in "[a-zX0-9_@\\-.ü]{1,12}|_[xX]40_[a-c]") {
            let kept = encode_name(&name);
            prop_assert!(kept.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{}", kept);
            prop_assert!(!kept.starts_with(|c: char| c.is_ascii_digit()));
            prop_assert_eq!(decode_name(&kept), name.clone());
            // As the service tells it, whose names are headers'.
            let told = kept.to_ascii_lowercase();
            prop_assert_eq!(decode_name(&told), name.to_ascii_lowercase());
        }

        #[test]
        fn any_kept_name_decodes(text: String) {
            let _ = decode_name(&text);
        }
    }
}
