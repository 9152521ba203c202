//! Writes and removals that the engine's verbs do not make: bodies that flow, uploads, copies
//! inside the back end, versions, tags.
//!
//! The one place that asks a store for them, so that around each of them the engine forgets what it
//! knew of the object, whatever becomes of the request. Names are the store's own, with the
//! bucket's prefix and, where one is meant, the version.

use super::Bucket;
use penstock_base::Result;
use penstock_engine::{Location, Payload};
use penstock_store::streaming::{NULL_VERSION, split_version, versioned};
use penstock_store::{
    CopySource, ETag, Inflow, Part, Permit, PutOptions, PutResult, Removed, Revision, UploadId,
};

impl Bucket {
    /// Places a whole body, with the engine's retries.
    ///
    /// # Errors
    /// As [`penstock_engine::Query::put`].
    pub async fn put_whole(
        &self,
        name: &str,
        payload: Payload,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let at = self.mount.at(name);
        // The engine forgets the object itself, and remembers what it made.
        let other = self.other_names(name);
        let query = self.query();
        let change = query.change(&other).await?;
        let placed = query.put(&at, payload, options).await;
        change.ended(&placed);
        placed
    }

    /// As [`penstock_store::StreamingStore::put_flow`].
    ///
    /// # Errors
    /// The store's.
    pub async fn put_flow(
        &self,
        name: &str,
        body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.changing(name, self.store.put_flow(name, body, options)).await
    }

    /// As [`penstock_store::Store::complete_upload`].
    ///
    /// # Errors
    /// The store's.
    pub async fn complete_upload(
        &self,
        name: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.changing(name, self.store.complete_upload(name, upload, parts, options)).await
    }

    /// As [`penstock_store::StreamingStore::completed`]. What it finds may be news here.
    ///
    /// # Errors
    /// The store's.
    pub async fn completed(&self, name: &str, upload: &UploadId) -> Result<Option<PutResult>> {
        self.changing(name, self.store.completed(name, upload)).await
    }

    /// As [`penstock_store::StreamingStore::copy_version`].
    ///
    /// # Errors
    /// The store's.
    pub async fn copy_version(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        self.changing(to, self.store.copy_version(source, to, options)).await
    }

    /// As [`penstock_store::StreamingStore::set_tags`]: how many there are is told with an object.
    ///
    /// # Errors
    /// The store's.
    pub async fn set_tags(&self, name: &str, tags: &[(String, String)]) -> Result<()> {
        self.changing(name, self.store.set_tags(name, tags)).await
    }

    /// As [`penstock_store::StreamingStore::revise`].
    ///
    /// # Errors
    /// The store's.
    pub async fn revise(&self, name: &str, pair: &'static str, revision: Revision) -> Result<()> {
        self.changing(name, self.store.revise(name, pair, revision)).await
    }

    /// As [`penstock_store::StreamingStore::remove`], of a key and a version of it.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        let removal = self.store.remove(key, version, if_match);
        self.changing(&name_of(key, version), removal).await
    }

    /// As [`penstock_store::StreamingStore::remove_permitted`].
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_permitted(
        &self,
        key: &str,
        version: &str,
        if_match: Option<&ETag>,
        permit: Permit,
    ) -> Result<Removed> {
        let removal = self.store.remove_permitted(key, version, if_match, permit);
        self.changing(&name_of(key, Some(version)), removal).await
    }

    /// As [`penstock_store::StreamingStore::remove_batch`].
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_batch(&self, names: &[String]) -> Result<Vec<Result<Removed>>> {
        // One change, which waits for the cache's disk once. Where the end of one removal was not
        // heard, that of none counts as heard: it costs requests for a while.
        let objects: Vec<Location> = names.iter().flat_map(|name| self.all_names(name)).collect();
        let change = self.query().change(&objects).await?;
        let results = self.store.remove_batch(names).await;
        match &results {
            Ok(each) => change.ended_but(each.iter().filter_map(|result| result.as_ref().err())),
            Err(error) => change.ended_but([error]),
        }
        results
    }

    /// Waits for a request that may change an object.
    async fn changing<T>(&self, name: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
        let objects = self.all_names(name);
        let change = self.query().change(&objects).await?;
        let result = request.await;
        change.ended(&result);
        result
    }

    /// All names under which what a request for this one changes may be known.
    fn all_names(&self, name: &str) -> Vec<Location> {
        let (key, version) = split_version(name);
        let mut names = self.other_names(name);
        names.push(self.mount.at(key));
        names.extend(version.map(|_| self.mount.at(name)));
        names
    }

    /// Those besides its key and its own: a write replaces the version `null`, if it does not make
    /// a new one.
    fn other_names(&self, name: &str) -> Vec<Location> {
        let null = || self.mount.at(versioned(split_version(name).0, NULL_VERSION));
        self.store.has_versions().then(null).into_iter().collect()
    }
}

fn name_of(key: &str, version: Option<&str>) -> String {
    version.map_or_else(|| key.to_string(), |id| versioned(key, id))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// The verbs of a store that change an object.
    const VERBS: [&str; 13] = [
        "put",
        "put_flow",
        "complete_upload",
        "completed",
        "copy",
        "copy_version",
        "set_tags",
        "revise",
        "delete",
        "delete_batch",
        "remove",
        "remove_permitted",
        "remove_batch",
    ];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    /// What was remembered of the object would outlive such a write. (The doctor serves nothing.)
    #[test]
    fn nobody_else_asks_a_store_to_change_an_object() {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        let is_other = |path: &PathBuf| {
            let path = path.to_string_lossy();
            !path.contains("/doctor") && !path.ends_with("buckets/writes.rs")
        };
        files.retain(is_other);
        assert!(files.len() > 50, "{files:?}");
        for path in files {
            let text: String = std::fs::read_to_string(&path).unwrap().split_whitespace().collect();
            for verb in VERBS {
                assert!(!text.contains(&format!("store.{verb}(")), "{}: {verb}", path.display());
            }
        }
    }
}
