//! How users spell the stores that are open: a name of an object becomes the URL that they typed.

use crate::location::Mounts;
use penstock_base::redact;
use std::sync::Arc;

/// What the names of objects begin with, and what stands there in URLs.
#[derive(Debug, Default)]
pub(crate) struct Spellings(Vec<(String, Arc<str>)>);

impl Spellings {
    /// Those of the stores that are open.
    pub fn of(mounts: &Mounts) -> Self {
        let known = mounts.lock();
        let spelt = known
            .iter()
            .filter_map(|(_, mount)| Some((mount.name_of(""), Arc::clone(mount.spelt.get()?))));
        Spellings(spelt.collect())
    }

    /// The URL of an object of this name as its user spelt it, without secrets; its name where its
    /// store is not open.
    pub fn url(&self, name: &str) -> String {
        let stores = self.0.iter().filter(|(origin, _)| name.starts_with(&**origin));
        let url = stores.max_by_key(|(origin, _)| origin.len()).map_or_else(
            || name.to_string(),
            |(origin, spelt)| format!("{spelt}{}", &name[origin.len()..]),
        );
        redact::url(&url).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_in_the_spelling_of_their_store() {
        let of = |origin: &str, spelt: &str| (origin.to_string(), spelt.into());
        let spellings = Spellings(vec![
            of("https://a.blob.x.net/c/", "az://c/"),
            of("https://a.blob.x.net/", "https://a.blob.x.net/"),
            of("https://s3.x.net/b/", "s3a://b/"),
        ]);
        for (name, url) in [
            ("https://a.blob.x.net/c/k/x.csv", "az://c/k/x.csv"),
            ("https://a.blob.x.net/d/x?sig=abc", "https://a.blob.x.net/d/x?sig=***"),
            ("https://s3.x.net/b/", "s3a://b/"),
            ("https://other/x", "https://other/x"),
        ] {
            assert_eq!(spellings.url(name), url);
        }
    }
}
