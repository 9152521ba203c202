//! Which bucket is where: back end, container, prefix. Pure.
//!
//! A bucket that the configuration names is where it says. Any other name is a container of the
//! one back end that was made *dynamic*, if there is one. Whether that container is there is asked
//! of the back end, never remembered: another replica may have made or removed it.

use crate::Options;
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result, Secret};
use s3s::validation::{AwsNameValidation, NameValidation as _};
use std::collections::{BTreeMap, BTreeSet};

/// Which names buckets have.
pub(crate) const BUCKET_NAMES: &str = "A bucket's name has 3 to 63 lower-case letters, digits, \
    dots and hyphens, with a letter or a digit at both ends of what stands between dots";
/// Names that the gateway answers itself, or may yet.
const OWN_NAMES: &[&str] = &["healthz", "readyz", "metrics"];

/// One account, service or directory behind the gateway.
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    /// What buckets call it.
    pub name: String,
    /// `az://`, `az://account.blob.core.windows.net/`, `s3://`, `gs://`, `r2://`, `mem://` or
    /// `file:///directory`.
    pub url: String,
    /// Buckets that are not named elsewhere are containers of this back end.
    pub is_dynamic: bool,
    /// Nothing is written there through this gateway.
    pub is_read_only: bool,
    /// Whether what lies there is encrypted; `None` for what services of its scheme do.
    pub is_encrypted: Option<bool>,
    /// Options of the store, as in a secret of DuckDB.
    pub options: Vec<(String, Secret)>,
}

impl BackendOptions {
    /// Whether what lies there is encrypted. Azure, S3 and Google do so in any case; of a disk only
    /// its owner knows.
    pub fn encrypts(&self) -> bool {
        let is_local = self.url.starts_with("file:") || self.url.starts_with("mem:");
        self.is_encrypted.unwrap_or(!is_local)
    }

    /// Whether the service may take `a/../b` for `b`, as some services of S3's interface do, and
    /// proxies before others. A directory and memory do not, and Azure is never asked for it.
    fn may_resolve_dots(&self) -> bool {
        ["s3:", "s3a:", "s3n:", "gs:", "gcs:", "r2:"]
            .iter()
            .any(|known| self.url.starts_with(known))
    }
}

/// One bucket that the configuration names.
#[derive(Clone, Debug, Default)]
pub struct BucketOptions {
    /// What clients call it.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// The back end's name.
    pub backend: String,
    /// The container there; the bucket's name where `None`.
    pub container: Option<String>,
    /// What stands before every key in the container.
    pub prefix: String,
    /// Nothing is written there through this gateway.
    pub is_read_only: bool,
}

impl BucketOptions {
    /// The container that it is, or is a part of.
    pub fn container(&self) -> &str {
        self.container.as_deref().unwrap_or(&self.name)
    }
}

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the back end.
    pub backend: usize,
    /// The container there.
    pub container: String,
    /// What stands before every key.
    pub prefix: String,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// The configuration names it, so clients cannot remove it.
    pub is_fixed: bool,
    /// What lies there is encrypted.
    pub is_encrypted: bool,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    fixed: BTreeMap<String, Place>,
    /// The dynamic back end.
    dynamic: Option<Dynamic>,
    /// Back ends that may resolve dots.
    resolves_dots: BTreeSet<usize>,
}

/// The back end whose containers are buckets.
#[derive(Clone, Copy, Debug)]
struct Dynamic {
    backend: usize,
    is_read_only: bool,
    is_encrypted: bool,
}

fn invalid(why: String) -> Error {
    Error::new(Kind::Invalid, why)
}

impl Routes {
    /// The table of a configuration.
    ///
    /// # Errors
    /// As [`Routes::new`]; `Invalid` for a bucket in the gateway's own container of notes.
    pub fn of(options: &Options) -> Result<Self> {
        let routes = Routes::new(&options.backends, &options.buckets)?;
        routes.check_notes(&options.serve.notes_bucket)?;
        Ok(routes)
    }

    /// Checks names and makes the table.
    ///
    /// # Errors
    /// `Invalid` for a name that stands twice, cannot be a bucket's, or names no back end.
    pub fn new(backends: &[BackendOptions], buckets: &[BucketOptions]) -> Result<Self> {
        let mut routes = Routes::default();
        for (index, backend) in backends.iter().enumerate() {
            if backends[..index].iter().any(|other| other.name == backend.name) {
                return Err(invalid(format!("two back ends have the name `{}`", backend.name)));
            }
            if backend.may_resolve_dots() {
                routes.resolves_dots.insert(index);
            }
            if backend.is_dynamic {
                if routes.dynamic.is_some() {
                    return Err(invalid("two back ends are dynamic".to_string())
                        .with_hint("A bucket that is not named can lie in one back end only"));
                }
                let (is_read_only, is_encrypted) = (backend.is_read_only, backend.encrypts());
                routes.dynamic = Some(Dynamic { backend: index, is_read_only, is_encrypted });
            }
        }
        for bucket in buckets {
            let Some(index) = backends.iter().position(|found| found.name == bucket.backend) else {
                return Err(unknown_backend(bucket, backends));
            };
            let place = Place {
                backend: index,
                container: bucket.container().to_string(),
                prefix: bucket.prefix.clone(),
                is_read_only: bucket.is_read_only || backends[index].is_read_only,
                is_fixed: true,
                is_encrypted: backends[index].encrypts(),
            };
            for name in std::iter::once(&bucket.name).chain(&bucket.aliases) {
                if !is_bucket_name(name) {
                    return Err(no_bucket_name(name));
                }
                if routes.fixed.insert(name.clone(), place.clone()).is_some() {
                    return Err(invalid(format!("two buckets have the name `{name}`")));
                }
            }
        }
        if routes.fixed.is_empty() && routes.dynamic.is_none() {
            return Err(invalid("no bucket leads anywhere".to_string())
                .with_hint("Add a [[bucket]], or `dynamic = true` to a [[backend]]"));
        }
        Ok(routes)
    }

    /// Refuses a bucket in the container of this name, in which the gateway keeps what buckets are
    /// told; an empty name is none.
    fn check_notes(&self, container: &str) -> Result<()> {
        let mut inside = self.fixed.iter().filter(|(_, place)| place.container == container);
        match inside.next().filter(|_| !container.is_empty()) {
            None => Ok(()),
            Some((name, _)) => Err(invalid(format!(
                "bucket `{name}` lies in `{container}`, the gateway's own container for what \
                 buckets are told (notes_bucket)"
            ))
            .with_hint("Give the bucket another container, or set notes_bucket to another name")),
        }
    }

    /// Where a bucket of this name is. `None` for names that no bucket has.
    pub fn place(&self, bucket: &str) -> Option<Place> {
        if let Some(place) = self.fixed.get(bucket) {
            return Some(place.clone());
        }
        let dynamic = self.dynamic.filter(|_| is_bucket_name(bucket))?;
        Some(Place {
            backend: dynamic.backend,
            container: bucket.to_string(),
            prefix: String::new(),
            is_read_only: dynamic.is_read_only,
            is_fixed: false,
            is_encrypted: dynamic.is_encrypted,
        })
    }

    /// Every name of a bucket: those that the configuration gives its place, and that of the
    /// container itself where it is dynamic. None for names that no bucket has.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        let Some(place) = self.place(bucket) else { return Vec::new() };
        let is_same = |other: &Place| {
            (other.backend, &other.container, &other.prefix)
                == (place.backend, &place.container, &place.prefix)
        };
        let fixed = self.fixed.iter().filter(|row| is_same(row.1)).map(|row| row.0.clone());
        let mut names: Vec<String> = fixed.collect();
        let is_dynamic = self.place(&place.container).is_some_and(|own| is_same(&own));
        if is_dynamic && !names.contains(&place.container) {
            names.push(place.container.clone());
        }
        names
    }

    /// Whether a key with `.` or `..` between its slashes might lie outside of a bucket's prefix.
    pub fn bars_dots(&self, bucket: &str) -> bool {
        let place = self.fixed.get(bucket).filter(|place| !place.prefix.is_empty());
        place.is_some_and(|place| self.resolves_dots.contains(&place.backend))
    }

    /// The names that the configuration gives, in byte order.
    pub fn fixed_names(&self) -> impl Iterator<Item = &str> {
        self.fixed.keys().map(String::as_str)
    }

    /// The buckets that the configuration names, in byte order of their names.
    pub fn fixed(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.fixed.iter().map(|(name, place)| (name.as_str(), place))
    }

    /// A container of a back end that the configuration names.
    pub fn a_container_of(&self, backend: usize) -> Option<String> {
        let place = self.fixed.values().find(|place| place.backend == backend)?;
        Some(place.container.clone())
    }

    /// The back end whose containers are buckets.
    pub fn dynamic_backend(&self) -> Option<usize> {
        self.dynamic.map(|dynamic| dynamic.backend)
    }
}

/// Whether a bucket may have this name here: what stands between its dots are labels of a host's
/// name, which neither begin nor end with a hyphen.
pub fn is_bucket_name(name: &str) -> bool {
    let are_labels = !name.contains("-.") && !name.contains(".-");
    are_labels && AwsNameValidation::new().validate_bucket_name(name) && !OWN_NAMES.contains(&name)
}

/// Why clients get no bucket of this name, where it is the gateway's.
pub fn own_name(name: &str) -> Option<String> {
    let names = OWN_NAMES.join(", ");
    OWN_NAMES.contains(&name).then(|| format!("The gateway keeps these names for itself: {names}"))
}

fn no_bucket_name(name: &str) -> Error {
    let error = invalid(format!("`{name}` cannot be the name of a bucket"));
    error.with_hint(own_name(name).unwrap_or_else(|| BUCKET_NAMES.to_string()))
}

fn unknown_backend(bucket: &BucketOptions, backends: &[BackendOptions]) -> Error {
    let names = || backends.iter().map(|backend| backend.name.as_str());
    let error =
        invalid(format!("bucket `{}` lies in unknown back end `{}`", bucket.name, bucket.backend));
    match nearest(&bucket.backend, names()) {
        Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
        None if backends.is_empty() => error.with_hint("Add a [[backend]] of that name"),
        None => error.with_hint(format!("Known are: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn backend(name: &str, is_dynamic: bool) -> BackendOptions {
        BackendOptions { name: name.into(), is_dynamic, ..Default::default() }
    }

    fn bucket(name: &str, backend: &str) -> BucketOptions {
        BucketOptions { name: name.into(), backend: backend.into(), ..Default::default() }
    }

    #[test]
    fn fixed_names_come_before_containers() {
        let lake = BucketOptions {
            aliases: vec!["old".into()],
            container: Some("raw".into()),
            prefix: "team/".into(),
            ..bucket("lake", "blob")
        };
        let routes =
            Routes::new(&[backend("disk", true), backend("blob", false)], &[lake]).unwrap();
        let place = routes.place("lake").unwrap();
        assert_eq!((place.backend, place.container.as_str()), (1, "raw"));
        assert_eq!(routes.place("old"), Some(place));
        let other = routes.place("other").unwrap();
        assert_eq!((other.backend, other.container.as_str(), other.is_fixed), (0, "other", false));
        assert_eq!(routes.names("lake"), ["lake", "old"]);
        assert_eq!(routes.names("old"), ["lake", "old"]);
        assert_eq!(routes.names("other"), ["other"]);
        assert_eq!(routes.names("UPPER"), [""; 0]);
        assert_eq!(routes.place("healthz"), None);
        assert_eq!(routes.place("UPPER"), None);
    }

    #[test]
    fn slips_are_named() {
        let blob = || [backend("blob", false)];
        for (backends, buckets, word) in [
            (vec![], vec![bucket("lake", "blob")], "unknown back end"),
            (blob().to_vec(), vec![bucket("lake", "blo")], "Did you mean `blob`?"),
            (blob().to_vec(), vec![bucket("LAKE", "blob")], "3 to 63 lower-case letters"),
            (blob().to_vec(), vec![bucket("metrics", "blob")], "healthz, readyz, metrics"),
            (blob().to_vec(), vec![bucket("lake", "blob"), bucket("lake", "blob")], "two buckets"),
            (blob().to_vec(), vec![], "leads anywhere"),
            (vec![backend("a1", true), backend("a2", true)], vec![], "dynamic"),
            (vec![backend("a1", true), backend("a1", false)], vec![], "two back ends"),
        ] {
            let error = Routes::new(&backends, &buckets).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    /// A name from a client becomes a path, or the first label of a host, at the back end.
    #[test]
    fn a_name_that_is_a_host_or_a_path_is_no_bucket() {
        let routes = Routes::new(&[backend("b", true)], &[]).unwrap();
        for name in [
            "evil.example:80",
            "user@evil.example",
            "evil.example/x",
            "evil.example?x",
            "evil.example#",
            "http://evil.example",
            r"evil.example\x",
            "evil%2eexample",
            "..",
            "127.0.0.1",
            "[::1]",
        ] {
            assert_eq!(routes.place(name), None, "{name}");
        }
    }

    #[test]
    fn no_bucket_lies_among_the_notes() {
        let inside = BucketOptions { container: Some("notes".into()), ..bucket("lake", "blob") };
        for bucket in [inside, bucket("notes", "blob")] {
            let routes = Routes::new(&[backend("blob", false)], &[bucket]).unwrap();
            let error = routes.check_notes("notes").unwrap_err();
            assert!(error.to_string().contains("notes_bucket"), "{error}");
            routes.check_notes("others").unwrap();
            routes.check_notes("").unwrap();
        }
    }

    proptest! {
        #[test]
        fn a_dynamic_bucket_is_a_container_of_its_own_name(name in "[a-z.-]{1,12}") {
            let routes = Routes::new(&[backend("b", true)], &[]).unwrap();
            match routes.place(&name) {
                Some(place) => prop_assert_eq!(place.container, name),
                None => prop_assert!(!is_bucket_name(&name)),
            }
        }
    }
}
