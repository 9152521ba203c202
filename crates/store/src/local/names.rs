//! Keys to file names and back. Pure: decides what a name may be, touches no disk.
//!
//! In a bucket every key of at most 255 bytes a component has a place: components that no file can
//! be called (`a//b`, `dir/`, `.`, `..`) get a reserved name, and so does an object whose own name
//! is that of a directory (`a` beside `a/b`). A name that is too long for that is an object's or a
//! directory's, whichever came first. Among plain files nothing is escaped: such a path is refused.

use super::Scope;
use penstock_base::{Error, Kind, Result};
use std::borrow::Cow;

/// Everything that starts with this is ours and hidden from listings.
pub(super) const RESERVED: &str = ".penstock-";
/// Unfinished single writes.
pub(super) const TEMP: &str = ".penstock-tmp-";
/// Unfinished multipart uploads (directories).
pub(super) const UPLOAD: &str = ".penstock-upload-";
/// Objects whose own name is a directory's.
const ASIDE: &str = ".penstock-object-";
/// Attributes of one object version, where the file system keeps none itself.
pub(super) const SIDECAR: &str = ".penstock-meta-";

/// What was hidden in a bucket that is being removed (directories beside it).
pub(super) const REMOVED: &str = ".penstock-removed-";
/// A symbolic link at the root that leads nowhere and says whether the bucket keeps versions.
pub(super) const VERSIONING: &str = ".penstock-versioning";
/// The tree of earlier versions: a directory for each key.
pub(super) const VERSIONS: &str = ".penstock-versions";
/// One version in the directory of its key.
pub(super) const VERSION: &str = ".penstock-version-";

const COMPONENT_MAX_BYTES: usize = 255;
/// The longest name that an object and a directory can both have.
const SHARED_NAME_MAX_BYTES: usize = COMPONENT_MAX_BYTES - ASIDE.len();
const ESCAPES: [(&str, &str); 3] =
    [("", ".penstock-empty"), (".", ".penstock-dot"), ("..", ".penstock-dotdot")];
/// An escaped directory and an escaped file of one component may stand side by side.
const ESCAPED_DIR: &str = ".d";

/// Where an object lives: a directory relative to the root (`.` for the root) and a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub dir: String,
    pub name: String,
}

impl Location {
    /// Where the object is kept when a directory has its name. Escaped names never need that: those
    /// of directories differ from those of files.
    pub fn aside(&self, scope: Scope) -> Option<Location> {
        let name = aside(scope, &self.name)?;
        Some(Location { dir: self.dir.clone(), name })
    }

    /// Directory and name joined.
    pub fn path(&self) -> String {
        if self.dir == "." { self.name.clone() } else { format!("{}/{}", self.dir, self.name) }
    }
}

/// The place of a key.
///
/// # Errors
/// `Invalid` with the reason for a key that has no place.
pub(super) fn locate(scope: Scope, key: &str) -> Result<Location> {
    let (dir, name) = key.rsplit_once('/').map_or((None, key), |(dir, name)| (Some(dir), name));
    if key.is_empty() {
        return Err(Error::new(Kind::Invalid, "the empty name is no object"));
    }
    let name = encode(scope, name, false)?.into_owned();
    Ok(Location { dir: directory(scope, dir)?, name })
}

/// The directory that holds the keys `dir/...`; `None` for the root's.
pub(super) fn directory(scope: Scope, dir: Option<&str>) -> Result<String> {
    let Some(dir) = dir else { return Ok(".".into()) };
    let encoded: Result<Vec<_>> = dir.split('/').map(|part| encode(scope, part, true)).collect();
    Ok(encoded?.join("/"))
}

/// The name under which a file is kept when a directory takes its name; `None` where nothing is
/// kept aside, and for a name that has no room for what is put before it.
pub(super) fn aside(scope: Scope, name: &str) -> Option<String> {
    let allowed = scope == Scope::Bucket && !name.starts_with(RESERVED);
    (allowed && name.len() <= SHARED_NAME_MAX_BYTES).then(|| format!("{ASIDE}{name}"))
}

fn encode(scope: Scope, component: &str, is_dir: bool) -> Result<Cow<'_, str>> {
    let refuse = |why: String| Err(Error::new(Kind::Invalid, why));
    if let Some((_, escaped)) = ESCAPES.iter().find(|(plain, _)| *plain == component) {
        return match scope {
            Scope::Bucket if is_dir => Ok(format!("{escaped}{ESCAPED_DIR}").into()),
            Scope::Bucket => Ok((*escaped).into()),
            Scope::Files => refuse(format!("`{component}` cannot be part of a file's path here")),
        };
    }
    if component.starts_with(RESERVED) {
        return refuse(format!("names that start with `{RESERVED}` are reserved"));
    }
    if component.contains('\0') {
        return refuse("a file name cannot hold a NUL byte".into());
    }
    if component.len() > COMPONENT_MAX_BYTES {
        let len = component.len();
        let why = format!(
            "a part of the name has {len} bytes; files allow {COMPONENT_MAX_BYTES} between slashes"
        );
        return Err(Error::new(Kind::Invalid, why).with_service_code("KeyTooLongError"));
    }
    Ok(component.into())
}

/// The key component of a file name; `None` for what listings hide: our own files, and names that
/// are not UTF-8 and so are no keys.
pub(super) fn decode(name: &[u8], is_dir: bool) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    if name == "." || name == ".." {
        return None;
    }
    if !name.starts_with(RESERVED) {
        return Some(name.to_string());
    }
    if let Some(plain) = name.strip_prefix(ASIDE) {
        return (!is_dir).then(|| plain.to_string());
    }
    let bare = if is_dir { name.strip_suffix(ESCAPED_DIR)? } else { name };
    ESCAPES.iter().find(|(_, escaped)| *escaped == bare).map(|(plain, _)| (*plain).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_of_keys() {
        for (key, path) in [
            ("a", "a"),
            ("a/b c/ü", "a/b c/ü"),
            ("dir/", "dir/.penstock-empty"),
            ("a//b", "a/.penstock-empty.d/b"),
            ("/a", ".penstock-empty.d/a"),
            ("../x", ".penstock-dotdot.d/x"),
            ("x/..", "x/.penstock-dotdot"),
            (".hidden", ".hidden"),
        ] {
            assert_eq!(locate(Scope::Bucket, key).unwrap().path(), path, "{key}");
        }
    }

    #[test]
    fn names_without_a_place_are_refused() {
        let long = "x".repeat(256);
        for key in ["", "a\0b", ".penstock-tmp-1", "a/.penstock-x/b", ".penstock-object-a", &long] {
            assert_eq!(locate(Scope::Bucket, key).unwrap_err().kind(), Kind::Invalid, "{key}");
        }
        for key in ["a//b", "a/", "../a", "a/./b", "/a"] {
            assert_eq!(locate(Scope::Files, key).unwrap_err().kind(), Kind::Invalid, "{key}");
        }
    }

    proptest! {
        #[test]
        fn a_bucket_key_comes_back_from_its_path(key in "[a./ü\\-]{1,12}") {
            let path = locate(Scope::Bucket, &key).unwrap().path();
            prop_assert!(!path.split('/').any(|part| ["", ".", ".."].contains(&part)), "{}", path);
            let parts: Vec<_> = path.split('/').collect();
            let decoded: Option<Vec<_>> = parts
                .iter()
                .enumerate()
                .map(|(i, part)| decode(part.as_bytes(), i + 1 < parts.len()))
                .collect();
            prop_assert_eq!(decoded.map(|parts| parts.join("/")), Some(key));
        }
    }
}
