//! A local directory: its subdirectories are the containers.

use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use penstock_store::STORAGE_FULL;
use penstock_store::{Account, ContainerEntry, LocalStore, StreamingStore};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The served directory and the buckets opened so far.
#[derive(Debug)]
pub struct Directory {
    dir: PathBuf,
    open: Mutex<HashMap<String, Arc<LocalStore>>>,
    /// When the directory had last changed as no removal was under way in it.
    settled: Mutex<Option<SystemTime>>,
}

/// How long a change must be past for its time to tell it from the next one.
const CHANGE_AGE: Duration = Duration::from_secs(1);

impl Directory {
    /// Serves an existing directory, which must be writable where it `is_written` to.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` (no directory) or `Denied`, with what to do.
    pub fn open(dir: &Path, is_written: bool) -> Result<Self> {
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
        if is_written {
            check_writable(dir)?;
        }
        LocalStore::end_removals(dir, None)?;
        let (open, settled) = (Mutex::default(), Mutex::default());
        Ok(Directory { dir: dir.to_path_buf(), open, settled })
    }

    async fn store(&self, container: &str) -> Result<Arc<LocalStore>> {
        let path = self.path(container)?;
        self.end_removals(container).await?;
        let open = self.lock().get(container).cloned();
        match open {
            Some(store) if store.is_at(&path) => return Ok(store),
            Some(_) => drop(self.lock().remove(container)),
            None => {}
        }
        // Not through symbolic links: those lead out of the served directory.
        if !tokio::fs::symlink_metadata(&path).await.is_ok_and(|about| about.is_dir()) {
            return Err(Error::new(Kind::NotFound, "the bucket does not exist")
                .with_service_code("NoSuchBucket"));
        }
        let store = LocalStore::open(&path)?;
        Ok(self.lock().entry(container.to_string()).or_insert(Arc::new(store)).clone())
    }

    /// Ends removals that were killed, in whichever replica, before a bucket is looked into. Where
    /// buckets neither came nor went meanwhile, that is one look at the directory's time.
    async fn end_removals(&self, container: &str) -> Result<()> {
        let settled = || self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = std::fs::metadata(&self.dir).and_then(|about| about.modified());
        let changed = changed.map_err(|cause| io_error(&cause))?;
        if *settled() == Some(changed) {
            return Ok(());
        }
        let (dir, asked) = (self.dir.clone(), container.to_string());
        let end = move || LocalStore::end_removals(&dir, Some(&asked));
        let ended = tokio::task::spawn_blocking(end).await;
        let is_settled = ended.map_err(|error| {
            Error::new(Kind::Internal, "work on a blocking thread broke off").with_source(error)
        })??;
        if is_settled && changed.elapsed().is_ok_and(|age| age > CHANGE_AGE) {
            *settled() = Some(changed);
        }
        Ok(())
    }

    /// Containers are one plain path component, whoever names them.
    fn path(&self, container: &str) -> Result<PathBuf> {
        if container.is_empty() || container.starts_with('.') || container.contains(['/', '\0']) {
            return Err(Error::new(Kind::Invalid, "no directory here can have this name")
                .with_service_code("InvalidBucketName"));
        }
        Ok(self.dir.join(container))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<LocalStore>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Account for Directory {
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>> {
        Ok(self.store(container).await?)
    }

    async fn check(&self, container: &str) -> Result<()> {
        self.store(container).await.map(drop)
    }

    fn can_revise(&self) -> bool {
        true
    }

    async fn list(&self) -> Result<Vec<ContainerEntry>> {
        let mut entries = tokio::fs::read_dir(&self.dir).await.map_err(|cause| io_error(&cause))?;
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(|cause| io_error(&cause))? {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if self.path(&name).is_err() {
                continue;
            }
            // One that vanished meanwhile is no container any more.
            let Ok(about) = entry.metadata().await else { continue };
            if about.is_dir() {
                let created = about.created().or_else(|_| about.modified()).ok();
                found.push(ContainerEntry { name, created });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn create(&self, container: &str) -> Result<()> {
        let path = self.path(container)?;
        // Or it would be given what a bucket of this name had whose removal was cut short.
        self.end_removals(container).await?;
        LocalStore::create_bucket(&path).await
    }

    /// With the unfinished uploads in it.
    async fn delete(&self, container: &str) -> Result<()> {
        let store = self.store(container).await?;
        store.remove_bucket().await.map_err(|error| match error.kind() {
            Kind::Conflict => error.with_service_code("BucketNotEmpty"),
            _ => error,
        })?;
        self.lock().remove(container);
        Ok(())
    }
}

/// # Errors
/// `Denied`, with what to do.
fn check_writable(dir: &Path) -> Result<()> {
    let probe = dir.join(format!(".penstock-probe-{}", std::process::id()));
    let written = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    written.map_err(|cause| {
        Error::new(Kind::Denied, format!("{} is not writable", dir.display()))
            .with_source(cause)
            .with_hint(
                "Give this user write permission on it, serve another directory, or set read_only \
                 on its [[backend]] to serve what is there",
            )
    })
}

fn io_error(cause: &std::io::Error) -> Error {
    let (kind, code) = match cause.kind() {
        ErrorKind::PermissionDenied => (Kind::Denied, ""),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (Kind::Exhausted, STORAGE_FULL),
        _ => (Kind::Unavailable, ""),
    };
    Error::new(kind, cause.to_string()).with_service_code(code)
}
