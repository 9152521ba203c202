//! Bodies for a fuzzer: keys as file names, and what stands beside objects.

use super::Scope;
use super::attributes::{Attributes, sidecar_inode};
use super::names::{decode, locate};
use super::upload::{Begun, part_name, part_of_name};

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

/// Ids of versions, one a line: each becomes a part of a path.
pub(crate) fn versions(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    text.split('\n').for_each(super::versions::fuzz);
}

/// The mark of a removal that is under way.
pub(crate) fn removal(input: &[u8]) {
    super::removal::fuzz(&String::from_utf8_lossy(input));
}

/// Names of the files of uploads and of attributes, and what the latter hold.
pub(crate) fn beside(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for name in text.split('\n') {
        let inode = sidecar_inode(name);
        assert!(inode.is_none() || name.is_ascii(), "an inode of {name:?}");
        if let Some(part) = part_of_name(name) {
            let again = part_of_name(&part_name(&part));
            assert_eq!(again.as_ref(), Some(&part), "a part that changed: {name:?}");
        }
    }
    drop(serde_json::from_slice::<Begun>(input));
    if let Ok(attributes) = serde_json::from_slice::<Attributes>(input) {
        let told = serde_json::to_vec(&attributes);
        let again = told.map(|told| serde_json::from_slice::<Attributes>(&told));
        assert!(matches!(again, Ok(Ok(again)) if again == attributes), "attributes that changed");
    }
}
