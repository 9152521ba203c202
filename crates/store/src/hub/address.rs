//! What a `hf://` URL names, and where the Hub has it. Pure.
//!
//! `hf://datasets/USER/NAME[@REVISION]/PATH`, and so for `spaces` and `models`. A slash in a
//! revision is written `%2F`, but in `refs/convert/NAME` and `refs/pr/NUMBER`. In a path a percent
//! sign before two hex digits encodes a byte, as in any URL; everything else stands for itself.

use penstock_base::{Error, Kind, Result};
use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};

/// How the error of a URL begins that names no file of the Hub.
pub const NOT_A_FILE: &str = "this names no file of a repository of the Hugging Face Hub";
/// How the error of a URL begins whose first name is none of the Hub's.
pub const NOT_A_TYPE: &str = "repositories of the Hugging Face Hub are datasets, spaces or models";

const FORM: &str = "Write hf://datasets/USER/NAME/PATH, or hf://datasets/USER/NAME@REVISION/PATH";
const FORM_OF_TYPES: &str = "Write hf://datasets/, hf://spaces/ or hf://models/, then \
                             USER/NAME/PATH; buckets of the Hub are not served";

/// The revision of a URL that names none.
const MAIN: &str = "main";

/// What a path in a request cannot have as it is, but for the percent sign.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// What a revision cannot have as it is: it is one name in the path of a request.
const IN_REVISION: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One revision of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `datasets`, `spaces` or `models`.
    pub kind: &'static str,
    /// `USER/NAME`.
    pub name: String,
    /// Branch, tag, commit or reference, as it is.
    pub revision: String,
    /// The URL of its root, as it was written, ending with `/`.
    pub root: String,
}

impl Repository {
    /// The repository, and the key in it, of what follows `hf://`. The key is empty where the URL
    /// names the repository as a whole.
    ///
    /// # Errors
    /// `Invalid` for what names none.
    pub fn parse(rest: &str) -> Result<(Self, &str)> {
        let (kind, rest) = rest.split_once('/').ok_or_else(not_a_file)?;
        let known = ["datasets", "spaces", "models"].into_iter().find(|known| *known == kind);
        let kind =
            known.ok_or_else(|| Error::new(Kind::Invalid, NOT_A_TYPE).with_hint(FORM_OF_TYPES))?;
        let (user, place) = rest.split_once('/').ok_or_else(not_a_file)?;
        let name_bytes = place.find(['/', '@']).unwrap_or(place.len());
        let (name, behind) = place.split_at(name_bytes);
        let written = behind.strip_prefix('@').map(|text| &text[..revision_bytes(text)]);
        let key = &behind[written.map_or(0, |text| 1 + text.len())..];
        let revision = match written {
            Some(text) => percent_decode_str(text).decode_utf8().map_err(|_| not_a_file())?,
            None => MAIN.into(),
        };
        let is_revision = revision.split('/').all(|name| !matches!(name, "" | "." | ".."));
        if !is_name(user) || !is_name(name) || !is_revision {
            return Err(not_a_file());
        }
        let at = written.map_or(String::new(), |text| format!("@{text}"));
        let repository = Repository {
            kind,
            name: format!("{user}/{name}"),
            revision: revision.into_owned(),
            root: format!("hf://{kind}/{user}/{name}{at}/"),
        };
        Ok((repository, key.strip_prefix('/').unwrap_or(key)))
    }

    /// The URL at which objects are asked for by their paths, ending with `/`.
    pub fn objects_url(&self, endpoint: &str) -> String {
        format!("{}/resolve/{}/", self.page_url(endpoint), self.encoded_revision())
    }

    /// The URL of a directory's listing, without a query; the key is without the last slash, and
    /// empty for the root.
    ///
    /// # Errors
    /// As [`in_request`].
    pub fn tree_url(&self, endpoint: &str, directory: &str) -> Result<String> {
        let (kind, name, revision) = (self.kind, &self.name, self.encoded_revision());
        let tree = format!("{endpoint}/api/{kind}/{name}/tree/{revision}");
        match directory {
            "" => Ok(tree),
            directory => Ok(format!("{tree}/{}", in_request(directory)?)),
        }
    }

    /// The URL of its page, on which access is asked for.
    pub fn page_url(&self, endpoint: &str) -> String {
        match self.kind {
            "models" => format!("{endpoint}/{}", self.name),
            kind => format!("{endpoint}/{kind}/{}", self.name),
        }
    }

    fn encoded_revision(&self) -> String {
        utf8_percent_encode(&self.revision, IN_REVISION).to_string()
    }
}

/// The error of a URL that names no file.
pub(crate) fn not_a_file() -> Error {
    Error::new(Kind::Invalid, NOT_A_FILE).with_hint(FORM)
}

/// A user's or repository's name, as the Hub gives them.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !matches!(text, "" | "." | "..") && text.bytes().all(is_letter)
}

/// Length of the revision that a text begins with: its first name, or one of the references that
/// the Hub makes itself.
fn revision_bytes(text: &str) -> usize {
    let name_bytes = |text: &str| text.find('/').unwrap_or(text.len());
    for prefix in ["refs/convert/", "refs/pr/"] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return prefix.len() + name_bytes(rest);
        }
    }
    name_bytes(text)
}

/// A key as the path of a request has it.
///
/// # Errors
/// `Invalid` where it could lead out of the repository.
pub(crate) fn in_request(key: &str) -> Result<String> {
    let decoded = percent_decode_str(key).collect::<Vec<u8>>();
    if decoded.split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b"..")) {
        return Err(Error::new(
            Kind::Invalid,
            "no file of a repository has `.` or `..` in its path",
        ));
    }
    let mut pieces = key.split('%');
    let mut path = encoded(pieces.next().unwrap_or_default());
    for piece in pieces {
        path.push_str(if is_code(piece) { "%" } else { "%25" });
        path.push_str(&encoded(piece));
    }
    Ok(path)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, IN_PATH).to_string()
}

/// Whether a percent sign before this text encodes a byte.
fn is_code(text: &str) -> bool {
    text.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2
}

/// The key of a path that the Hub lists.
pub(crate) fn key_of(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut key = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        key.push_str(if is_code(piece) { "%25" } else { "%" });
        key.push_str(piece);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HUB: &str = "https://huggingface.co";

    #[test]
    fn urls_are_divided_where_the_hub_divides_them() {
        for (rest, root, key, objects) in [
            (
                "datasets/me/lake/data/a b.csv",
                "hf://datasets/me/lake/",
                "data/a b.csv",
                "/datasets/me/lake/resolve/main/",
            ),
            (
                "spaces/me/app@v1.0/x@y/z",
                "hf://spaces/me/app@v1.0/",
                "x@y/z",
                "/spaces/me/app/resolve/v1.0/",
            ),
            ("models/me/bert/*.bin", "hf://models/me/bert/", "*.bin", "/me/bert/resolve/main/"),
            (
                "datasets/me/lake@~parquet/default/0.parquet",
                "hf://datasets/me/lake@~parquet/",
                "default/0.parquet",
                "/datasets/me/lake/resolve/~parquet/",
            ),
            (
                "datasets/me/lake@refs%2Fpr%2F7/x",
                "hf://datasets/me/lake@refs%2Fpr%2F7/",
                "x",
                "/datasets/me/lake/resolve/refs%2Fpr%2F7/",
            ),
            (
                "datasets/me/lake@refs/pr/7/x",
                "hf://datasets/me/lake@refs/pr/7/",
                "x",
                "/datasets/me/lake/resolve/refs%2Fpr%2F7/",
            ),
            (
                "datasets/me/lake@refs/convert/parquet/a/b",
                "hf://datasets/me/lake@refs/convert/parquet/",
                "a/b",
                "/datasets/me/lake/resolve/refs%2Fconvert%2Fparquet/",
            ),
            ("datasets/me/lake", "hf://datasets/me/lake/", "", "/datasets/me/lake/resolve/main/"),
            (
                "datasets/me/lake@dev/",
                "hf://datasets/me/lake@dev/",
                "",
                "/datasets/me/lake/resolve/dev/",
            ),
        ] {
            let (repository, found) = Repository::parse(rest).unwrap();
            assert_eq!((repository.root.as_str(), found), (root, key), "{rest}");
            assert_eq!(repository.objects_url(HUB), format!("{HUB}{objects}"), "{rest}");
        }
    }

    #[test]
    fn what_names_no_file_is_told() {
        for rest in [
            "",
            "file.parquet",
            "datasets/file.parquet",
            "datasets//x/y",
            "datasets/**/file.parquet",
            "datasets/../lake/x",
            "datasets/me/../x",
            "datasets/me/la?ke/x",
            "datasets/me/lake@/x",
            "datasets/me/lake@../x",
            "datasets/me/lake@%2E%2E/x",
            "datasets/me/lake@%FF/x",
        ] {
            let error = Repository::parse(rest).unwrap_err();
            assert_eq!((error.kind(), error.message()), (Kind::Invalid, NOT_A_FILE), "{rest}");
        }
        for rest in ["still/not/file.parquet", "dataset/me/lake/x", "buckets/me/b/x"] {
            let error = Repository::parse(rest).unwrap_err();
            assert_eq!((error.kind(), error.message()), (Kind::Invalid, NOT_A_TYPE), "{rest}");
        }
    }

    #[test]
    fn a_path_leads_nowhere_else() {
        for key in ["..", "a/../../b", "./a", "a/%2e%2E/b", "a%2F..%2Fb", "a/."] {
            assert_eq!(in_request(key).unwrap_err().kind(), Kind::Invalid, "{key}");
        }
        for (key, path) in [
            ("a b/c%20d", "a%20b/c%20d"),
            ("100%/50%2", "100%25/50%252"),
            ("a?b#c", "a%3Fb%23c"),
            ("..a/b..", "..a/b.."),
            ("ü[1]", "%C3%BC%5B1%5D"),
        ] {
            assert_eq!(in_request(key).unwrap(), path);
        }
        let (lake, _) = Repository::parse("models/me/bert@a/b").unwrap();
        assert_eq!(lake.tree_url(HUB, "").unwrap(), format!("{HUB}/api/models/me/bert/tree/a"));
        let sub = lake.tree_url(HUB, "x y/z").unwrap();
        assert_eq!(sub, format!("{HUB}/api/models/me/bert/tree/a/x%20y/z"));
    }

    proptest! {
        #[test]
        fn a_listed_path_is_asked_for_by_its_key(path in "[a-z%0-9? #ü/+&=\\[\\]]{0,20}") {
            let asked = in_request(&key_of(&path)).unwrap();
            let found = percent_decode_str(&asked).decode_utf8().unwrap();
            prop_assert_eq!(found.as_ref(), path.as_str());
            let url = format!("{HUB}/{asked}").parse::<http::Uri>();
            prop_assert!(url.is_ok());
        }

        #[test]
        fn root_and_key_are_the_url_again(
            kind in "datasets|spaces|models",
            name in "[a-zA-Z0-9._-]{1,8}",
            revision in "(@[a-z0-9.~%F_-]{1,8}|@refs/(pr/[0-9]|convert/[a-z]{1,3}))?",
            key in ".{0,20}",
        ) {
            let rest = format!("{kind}/me/{name}{revision}/{key}");
            let Ok((repository, found)) = Repository::parse(&rest) else { return Ok(()) };
            prop_assert_eq!(format!("{}{found}", repository.root), format!("hf://{rest}"));
            let url = repository.objects_url(HUB);
            prop_assert!(url.parse::<http::Uri>().is_ok());
            // Neither name nor revision adds a name to the path, or takes one away.
            let names = url.split('/').count();
            prop_assert_eq!(names, if kind == "models" { 8 } else { 9 });
        }

        #[test]
        fn any_text_is_a_file_or_told(rest in ".{0,60}") {
            if let Ok((repository, key)) = Repository::parse(&rest) {
                prop_assert!(repository.objects_url(HUB).parse::<http::Uri>().is_ok());
                if let Ok(url) = repository.tree_url(HUB, key) {
                    prop_assert!(url.parse::<http::Uri>().is_ok(), "{}", url);
                }
            }
        }
    }
}
