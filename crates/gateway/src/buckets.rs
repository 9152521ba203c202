//! Buckets: the directories right below the served one.

use crate::error::{Subject, to_s3};
use penstock_base::{Error, Kind, Result};
use penstock_store::LocalStore;
use s3s::validation::{AwsNameValidation, NameValidation as _};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Names that the gateway answers itself.
const OWN_NAMES: &[&str] = &["healthz"];

/// The served directory and the buckets opened so far.
#[derive(Debug)]
pub struct Buckets {
    dir: PathBuf,
    open: Mutex<HashMap<String, Arc<LocalStore>>>,
}

/// One bucket of a listing.
#[derive(Debug)]
pub struct BucketEntry {
    /// Its name.
    pub name: String,
    /// When the directory was made, where the file system knows.
    pub created: Option<SystemTime>,
}

impl Buckets {
    /// Serves an existing, writable directory.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` (no directory) or `Denied`, with what to do.
    pub fn open(dir: &Path) -> Result<Self> {
        let shown = dir.display();
        let about = std::fs::metadata(dir).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => {
                Error::new(Kind::NotFound, format!("the directory {shown} does not exist"))
                    .with_hint(format!("Make it: mkdir -p '{shown}'"))
            }
            ErrorKind::PermissionDenied => {
                Error::new(Kind::Denied, format!("{shown} may not be entered"))
                    .with_hint("Check the owner and mode of the directories on the way")
            }
            _ => Error::new(Kind::Invalid, format!("{shown} cannot be used")).with_source(cause),
        })?;
        if !about.is_dir() {
            return Err(Error::new(Kind::Invalid, format!("{shown} is not a directory"))
                .with_hint("--dir takes the directory whose subdirectories are the buckets"));
        }
        let probe = dir.join(format!(".penstock-probe-{}", std::process::id()));
        let written = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
        written.map_err(|cause| {
            Error::new(Kind::Denied, format!("{shown} is not writable"))
                .with_source(cause)
                .with_hint("Give this user write permission on it, or serve another directory")
        })?;
        Ok(Buckets { dir: dir.to_path_buf(), open: Mutex::default() })
    }

    /// The store of a bucket. The name was validated by s3s, so it is one plain path component.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub async fn get(&self, bucket: &str) -> S3Result<Arc<LocalStore>> {
        let path = self.path(bucket)?;
        let open = self.lock().get(bucket).cloned();
        match open {
            Some(store) if store.is_at(&path) => return Ok(store),
            Some(_) => drop(self.lock().remove(bucket)),
            None => {}
        }
        // Not through symbolic links: those lead out of the served directory.
        if !tokio::fs::symlink_metadata(&path).await.is_ok_and(|about| about.is_dir()) {
            return Err(s3_error!(NoSuchBucket, "The specified bucket does not exist"));
        }
        let store = LocalStore::open(&path).map_err(|error| to_s3(Subject::Bucket, error))?;
        Ok(self.lock().entry(bucket.to_string()).or_insert(Arc::new(store)).clone())
    }

    /// Makes a bucket; making one that is there succeeds, as in the region us-east-1.
    ///
    /// # Errors
    /// `InvalidBucketName`; what the file system says.
    pub async fn create(&self, bucket: &str) -> S3Result<()> {
        match tokio::fs::create_dir(self.path(bucket)?).await {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => Err(io_error(&cause)),
            _ => Ok(()),
        }
    }

    /// Removes an empty bucket with the unfinished uploads in it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`.
    pub async fn delete(&self, bucket: &str) -> S3Result<()> {
        let store = self.get(bucket).await?;
        store.remove_bucket().await.map_err(|error| match error.kind() {
            Kind::Conflict => {
                s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty")
            }
            _ => to_s3(Subject::Bucket, error),
        })?;
        self.lock().remove(bucket);
        Ok(())
    }

    /// All buckets, in byte order. Directories whose names no bucket can have are left out.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn list(&self) -> S3Result<Vec<BucketEntry>> {
        let mut entries = tokio::fs::read_dir(&self.dir).await.map_err(|cause| io_error(&cause))?;
        let mut buckets = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(|cause| io_error(&cause))? {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !is_bucket_name(&name) {
                continue;
            }
            // One that vanished meanwhile is no bucket any more.
            let Ok(about) = entry.metadata().await else { continue };
            if about.is_dir() {
                let created = about.created().or_else(|_| about.modified()).ok();
                buckets.push(BucketEntry { name, created });
            }
        }
        buckets.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(buckets)
    }

    fn path(&self, bucket: &str) -> S3Result<PathBuf> {
        if !is_bucket_name(bucket) {
            return Err(s3_error!(InvalidBucketName, "The specified bucket is not valid."));
        }
        Ok(self.dir.join(bucket))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<LocalStore>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_bucket_name(name: &str) -> bool {
    AwsNameValidation::new().validate_bucket_name(name) && !OWN_NAMES.contains(&name)
}

fn io_error(cause: &std::io::Error) -> s3s::S3Error {
    let kind = match cause.kind() {
        ErrorKind::PermissionDenied => Kind::Denied,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::Exhausted,
        _ => Kind::Unavailable,
    };
    to_s3(Subject::Bucket, Error::new(kind, cause.to_string()))
}
