//! Checksums of parts, on their way from whoever sent a part to the completion that names it.
//!
//! Whoever completes an upload may be another process than the one that took its parts. What a part
//! was compared with is therefore told by its tag, unless the store keeps it and compares by
//! itself: `<tag>-<algorithm>-<hexadecimal digits>`. No other tag ends so, since every algorithm's
//! name has a letter that is no hexadecimal digit.

use crate::streaming::Inflow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use penstock_base::Result;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Before the names of pairs of metadata that tell checksums: `@checksum-crc32` and its kin.
const NOTE: &str = "@checksum-";

/// A checksum: the algorithm's name as in `x-amz-checksum-crc32`, and the value in base64.
pub type Sum = (String, String);

/// The tag of a part that was compared with this checksum.
pub fn tag_with_sum(tag: &str, sum: Option<&Sum>) -> String {
    let bytes = sum.and_then(|(name, text)| Some((name, STANDARD.decode(text).ok()?)));
    match bytes {
        Some((name, bytes)) => format!("{tag}-{name}-{}", crate::random::hex(&bytes)),
        None => tag.to_string(),
    }
}

/// The store's part of a tag, and the checksum that it tells of.
pub fn split_tag(tag: &str) -> (&str, Option<Sum>) {
    let told = || {
        let (rest, digits) = tag.rsplit_once('-')?;
        let (tag, name) = rest.rsplit_once('-')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            && name.bytes().any(|byte| !byte.is_ascii_hexdigit());
        let bytes = is_name.then(|| unhex(digits))??;
        Some((tag, (name.to_string(), STANDARD.encode(bytes))))
    };
    told().map_or((tag, None), |(tag, sum)| (tag, Some(sum)))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The checksum among the pairs that a body told at its end.
pub(crate) fn sum_of_notes(notes: Vec<(String, String)>) -> Option<Sum> {
    let sum = |(name, text): (String, String)| {
        name.strip_prefix(NOTE).map(|algorithm| (algorithm.to_string(), text))
    };
    notes.into_iter().find_map(sum)
}

/// What a body that was given away told at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Option<Sum>>>);

impl Heard {
    pub fn sum(&self) -> Option<Sum> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Listens for the checksum that a body tells at its end.
pub(crate) fn overheard(body: Box<dyn Inflow>) -> (Box<dyn Inflow>, Heard) {
    let heard = Heard::default();
    (Box::new(Overheard { body, heard: heard.clone() }), heard)
}

#[derive(Debug)]
struct Overheard {
    body: Box<dyn Inflow>,
    heard: Heard,
}

impl Inflow for Overheard {
    fn size_bytes(&self) -> u64 {
        self.body.size_bytes()
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let polled = self.body.poll_piece(context);
        // Behind the verdict, which the last piece waits for.
        if let Poll::Ready(None | Some(Ok(_))) = &polled
            && let Some(sum) = sum_of_notes(self.body.late_metadata())
        {
            *self.heard.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sum);
        }
        polled
    }

    fn late_metadata(&self) -> Vec<(String, String)> {
        self.body.late_metadata()
    }

    fn checksum(&self) -> Option<(String, Option<String>)> {
        self.body.checksum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_tags_tell_of_no_checksum() {
        for tag in [
            "96e024ba2074fe77e8e965ba43a704be",
            "96e024ba2074fe77e8e965ba43a704be-2",
            // Of a directory: time, size and inode.
            "18b2f0c3a5d6e7f8-500000-1a2b",
            "0123456789abcdef01234567-3",
            "tag-crc32-",
            "tag-crc32-0",
            "tag-crc32-xy",
        ] {
            assert_eq!(split_tag(tag), (tag, None));
        }
    }

    proptest! {
        #[test]
        fn tags_tell_their_checksum(
            tag in "[0-9a-f]{1,8}(-[0-9a-f]{1,4}){0,2}",
            name in prop::sample::select(vec!["crc32", "crc64nvme", "sha512", "md5", "xxhash3"]),
            bytes in prop::collection::vec(any::<u8>(), 1..65),
        ) {
            let sum = (name.to_string(), STANDARD.encode(&bytes));
            let text = tag_with_sum(&tag, Some(&sum));
            prop_assert_eq!(split_tag(&text), (tag.as_str(), Some(sum)));
            prop_assert_eq!(tag_with_sum(&tag, None), tag);
        }

        #[test]
        fn any_tag_is_read(tag: String) {
            let _ = split_tag(&tag);
        }
    }
}
