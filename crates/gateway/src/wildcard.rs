//! Patterns with wildcards, of bucket names and of what policies name. Pure.

/// Whether a pattern stands for a text: `*` for any bytes, and the byte `one`, where there is such
/// a wildcard, for any one. Takes time proportional to the product of both lengths at most.
pub(crate) fn matches(pattern: &str, text: &str, one: Option<u8>) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    // Where the last `*` stood, and how far the text was read when it was met.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if Some(*byte) == one || *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                // The last star takes one byte more.
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                read = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// As policies write them: `*` and `?`.
pub(crate) fn stands_for(pattern: &str, text: &str) -> bool {
    matches(pattern, text, Some(b'?'))
}
