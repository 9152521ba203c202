//! Bodies for a fuzzer: keys as file names.

use super::Scope;
use super::names::{decode, locate};

/// A key has a place below the root or none, and its place tells it again.
pub(crate) fn names(input: &[u8]) {
    drop((decode(input, false), decode(input, true)));
    let key = String::from_utf8_lossy(input);
    let Ok(location) = locate(Scope::Bucket, &key) else { return };
    let path = location.path();
    assert!(!path.starts_with('/') && !path.contains('\0'), "a place outside: {path:?}");
    assert!(path.split('/').all(|part| part != ".."), "a place above: {path:?}");
    let mut told = String::new();
    if location.dir != "." {
        for part in location.dir.split('/') {
            let part = decode(part.as_bytes(), true);
            assert!(part.is_some(), "a directory without a key: {path:?}");
            told += &part.unwrap_or_default();
            told.push('/');
        }
    }
    let name = decode(location.name.as_bytes(), false);
    assert!(name.is_some(), "a file without a key: {path:?}");
    told += &name.unwrap_or_default();
    assert_eq!(told, key, "a key that changed");
}
