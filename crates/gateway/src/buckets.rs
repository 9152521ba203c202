//! Buckets as they are asked for: from the routing table to an open store.
//!
//! Nothing here is remembered that another replica could make wrong: what is kept open are
//! connections and credentials, never what is in a bucket or whether it is there.

mod writes;

use crate::ahead::Followed;
use crate::error::{NO_SUCH_BUCKET, Subject, to_s3};
use crate::judged::Judged;
use crate::route::{Place, Routes, is_bucket_name, own_name};
use crate::tag::TagForm;
use penstock_base::settings::Validation;
use penstock_base::{Metrics, Settings};
use penstock_engine::{Engine, Location, Mount, Query, Stream};
use penstock_store::{Account, Observer, StreamingStore};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::{S3ErrorCode, S3Result, dto, s3_error};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Buckets kept open. Their names come from clients, so there may be any number.
const OPEN_MAX: usize = 1024;

/// The routing table and what it leads to.
#[derive(Debug)]
pub struct Buckets {
    engine: Arc<Engine>,
    routes: Routes,
    /// In the order of the table's indices.
    back_ends: Vec<BackEnd>,
    open: Mutex<HashMap<String, Arc<Bucket>>>,
    /// Container of each back end that holds the notes; empty where none are kept.
    notes_container: String,
    followed: Followed,
    started: SystemTime,
}

/// Where buckets are.
#[derive(Debug)]
pub struct BackEnd {
    /// Its containers.
    pub account: Arc<dyn Account>,
    /// The same over connections of its own: whoever holds one of the others until a body has come
    /// asks for notes before it lets go.
    pub notes: Arc<dyn Account>,
    /// Hears of what becomes of its requests.
    pub observer: Arc<dyn Observer>,
}

/// One bucket of a listing.
#[derive(Debug)]
pub struct BucketEntry {
    /// Its name.
    pub name: String,
    /// When it was made, where the back end told it with its listing; else when the gateway
    /// started. Clients take a date for granted.
    pub created: SystemTime,
}

/// A bucket, open.
#[derive(Debug)]
pub struct Bucket {
    /// For verbs that carry no policy. What changes objects goes through methods of this bucket.
    pub store: Arc<dyn StreamingStore>,
    /// How its tags look to clients.
    pub tags: TagForm,
    mount: Arc<Mount>,
    engine: Arc<Engine>,
    place: Place,
}

impl Bucket {
    /// The key in the store.
    pub fn key(&self, key: &str) -> String {
        format!("{}{key}", self.place.prefix)
    }

    /// What stands before every key in the store.
    pub fn prefix(&self) -> &str {
        &self.place.prefix
    }

    /// The object of a key, for the engine.
    pub fn at(&self, key: &str) -> Location {
        self.mount.at(self.key(key))
    }

    /// One client request, for verbs that the engine's policy is over.
    pub fn query(&self) -> Query {
        self.engine.query(self.engine.settings().clone(), None)
    }

    /// The same for what must not be older than what the back end has, whatever `cache_validation`
    /// says: sources of copies, and who may do what.
    pub fn asking_query(&self) -> Query {
        let settings = self.engine.settings().clone();
        self.engine.query(Settings { cache_validation: Validation::Always, ..settings }, None)
    }

    /// Whether what lies there is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.place.is_encrypted
    }

    /// The algorithm with which what lies there is encrypted, as answers tell it.
    pub fn encryption(&self) -> Option<dto::ServerSideEncryption> {
        let aes = || dto::ServerSideEncryption::from_static(dto::ServerSideEncryption::AES256);
        self.place.is_encrypted.then(aes)
    }

    /// Refuses writes where there are none.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn check_writable(&self) -> S3Result<()> {
        if self.place.is_read_only {
            return Err(s3_error!(AccessDenied, "This bucket is read-only."));
        }
        Ok(())
    }
}

impl Buckets {
    /// Buckets of a routing table, and its back ends, in a gateway that started then.
    pub fn new(
        engine: Arc<Engine>,
        routes: Routes,
        back_ends: Vec<BackEnd>,
        notes_container: String,
        followed: Followed,
        started: SystemTime,
    ) -> Self {
        let open = Mutex::default();
        Buckets { engine, routes, back_ends, open, notes_container, followed, started }
    }

    /// A read that a client was let do, and that is about to be answered.
    pub fn reads(&self, stream: Stream) -> Stream {
        self.followed.reads(stream)
    }

    /// What the engine behind all buckets counted.
    pub fn engine_metrics(&self) -> &Metrics {
        self.engine.metrics()
    }

    /// Refuses a key that the back end might take for one outside of the bucket's prefix.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_key(&self, bucket: &str, key: &str) -> S3Result<()> {
        let is_dots = |part: &str| matches!(part, "." | "..");
        if key.split('/').any(is_dots) && self.routes.bars_dots(bucket) {
            return Err(s3_error!(
                InvalidArgument,
                "A key of this bucket, which is a prefix on its back end, has no `.` or `..` \
                 between slashes: the service there might leave the prefix."
            ));
        }
        Ok(())
    }

    /// Every name of a bucket, which need not be there.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        self.routes.names(bucket)
    }

    fn place(&self, bucket: &str) -> S3Result<(Place, &BackEnd)> {
        if let Some(place) = self.routes.place(bucket)
            && let Some(back_end) = self.back_ends.get(place.backend)
        {
            if place.container == self.notes_container {
                return Err(s3_error!(AccessDenied, "Access Denied: the gateway's own bucket."));
            }
            return Ok((place, back_end));
        }
        if is_bucket_name(bucket) {
            return Err(s3_error!(NoSuchBucket, "{NO_SUCH_BUCKET}"));
        }
        let why = own_name(bucket).map_or(String::new(), |why| format!(" {why}."));
        Err(s3_error!(InvalidBucketName, "The specified bucket is not valid.{why}"))
    }

    fn account(&self, bucket: &str) -> S3Result<(Place, &dyn Account)> {
        self.place(bucket).map(|(place, back_end)| (place, &*back_end.account))
    }

    /// An open bucket. Whether it is there is told by what is asked of it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `InvalidBucketName`.
    pub async fn get(&self, bucket: &str) -> S3Result<Arc<Bucket>> {
        let (place, back_end) = self.place(bucket)?;
        self.opened(bucket, place, (&back_end.account, &back_end.observer)).await
    }

    async fn opened(
        &self,
        name: &str,
        place: Place,
        (account, observer): (&Arc<dyn Account>, &Arc<dyn Observer>),
    ) -> S3Result<Arc<Bucket>> {
        let store = account.open(&place.container).await.map_err(about_bucket)?;
        let known = self.lock().get(name).cloned();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.store, &store)) {
            return Ok(known);
        }
        let opened = Arc::new(Bucket {
            tags: TagForm::of(store.root()),
            mount: self.engine.mount_observed(store.clone(), observer.clone()),
            engine: self.engine.clone(),
            store,
            place,
        });
        let mut open = self.lock();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(name.to_string(), opened.clone());
        Ok(opened)
    }

    /// Where the notes of a bucket are, and their key there; `None` where none are kept.
    ///
    /// # Errors
    /// As [`Buckets::get`]; `NoSuchBucket` may also mean that they have no container yet.
    pub async fn notes_home(&self, bucket: &str) -> S3Result<Option<(Arc<Bucket>, String)>> {
        let (place, back_end) = self.place(bucket)?;
        if self.notes_container.is_empty() {
            return Ok(None);
        }
        let prefix = utf8_percent_encode(&place.prefix, NON_ALPHANUMERIC);
        let key = format!("{}/bucket{prefix}.json", place.container);
        let home = Place {
            container: self.notes_container.clone(),
            prefix: String::new(),
            is_fixed: true,
            ..place
        };
        // No bucket has a name with a space.
        let name = format!("notes of {}", home.backend);
        let over = (&back_end.notes, &back_end.observer);
        Ok(Some((self.opened(&name, home, over).await?, key)))
    }

    /// Makes the container for the notes of a bucket.
    ///
    /// # Errors
    /// What the back end says.
    pub async fn make_notes_home(&self, bucket: &str) -> S3Result<()> {
        let account = self.account(bucket)?.1;
        account.create(&self.notes_container).await.map_err(about_bucket)
    }

    /// A bucket to write to.
    ///
    /// # Errors
    /// As [`Buckets::get`], and `AccessDenied` for a read-only one.
    pub async fn writable(&self, bucket: &str) -> S3Result<Arc<Bucket>> {
        let found = self.get(bucket).await?;
        found.check_writable()?;
        Ok(found)
    }

    /// Whether the bucket is there.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn check(&self, bucket: &str) -> S3Result<()> {
        let (place, account) = self.account(bucket)?;
        account.check(&place.container).await.map_err(about_bucket)
    }

    /// Whether the bucket is there, where that is known.
    ///
    /// # Errors
    /// Any but that it is not.
    pub async fn is_there(&self, bucket: &str) -> S3Result<bool> {
        match self.check(bucket).await {
            Ok(()) => Ok(true),
            Err(error) if *error.code() == S3ErrorCode::NoSuchBucket => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether versions in a bucket of this name, which need not be there, can be locked.
    ///
    /// # Errors
    /// `InvalidBucketName`.
    pub fn is_lockable(&self, bucket: &str) -> S3Result<bool> {
        Ok(self.account(bucket)?.1.can_revise())
    }

    /// Makes a bucket; making one that is there succeeds, as in the region us-east-1.
    ///
    /// # Errors
    /// `InvalidBucketName`; what the back end says.
    pub async fn create(&self, bucket: &str, location: Option<&str>) -> S3Result<()> {
        let (place, account) = self.account(bucket)?;
        if place.is_read_only {
            return Err(s3_error!(AccessDenied, "This gateway makes no buckets."));
        }
        let made = match location.filter(|_| account.places_containers()) {
            Some(location) => account.create_at(&place.container, location).await,
            None => account.create(&place.container).await,
        };
        made.map_err(about_bucket)
    }

    /// Whether the back end of a bucket of this name puts it where it is told.
    ///
    /// # Errors
    /// `InvalidBucketName`.
    pub fn is_placed(&self, bucket: &str) -> S3Result<bool> {
        Ok(self.account(bucket)?.1.places_containers())
    }

    /// Where the back end says that a bucket is.
    ///
    /// # Errors
    /// `NoSuchBucket`; `NotImplemented` where [`Buckets::is_placed`] says no.
    pub async fn location(&self, bucket: &str) -> S3Result<String> {
        let (place, account) = self.account(bucket)?;
        account.location(&place.container).await.map_err(about_bucket)
    }

    /// Removes an empty bucket with the unfinished uploads in it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `BucketNotEmpty`; `OperationAborted` where it is another's by now.
    pub async fn delete(&self, judged: &Judged<'_>) -> S3Result<()> {
        let bucket = judged.bucket;
        let (place, account) = self.account(bucket)?;
        if place.is_read_only || place.is_fixed {
            return Err(s3_error!(AccessDenied, "The gateway's configuration names this bucket."));
        }
        // Before the container goes: from then on somebody else may make it, and note whose it is.
        let version = self.notes_version(judged).await?;
        account.delete(&place.container).await.map_err(about_bucket)?;
        self.lock().remove(bucket);
        match version {
            Some(version) => self.forget_notes_at(bucket, &version).await,
            None => Ok(()),
        }
    }

    /// All buckets, in byte order. Containers whose names no bucket can have are left out.
    ///
    /// # Errors
    /// What the back end says.
    pub async fn list(&self) -> S3Result<Vec<BucketEntry>> {
        let mut told: HashMap<String, SystemTime> = HashMap::new();
        let mut found: BTreeMap<String, SystemTime> = BTreeMap::new();
        let dynamic = self.routes.dynamic_backend();
        if let Some(back_end) = dynamic.and_then(|index| self.back_ends.get(index)) {
            for entry in back_end.account.list().await.map_err(about_bucket)? {
                let created = entry.created.unwrap_or(self.started);
                if is_bucket_name(&entry.name) && entry.name != self.notes_container {
                    found.insert(entry.name.clone(), created);
                }
                told.insert(entry.name, created);
            }
        }
        // No other back end is asked: one that is down must not take the list away.
        for (name, place) in self.routes.fixed() {
            let own = told.get(&place.container).filter(|_| Some(place.backend) == dynamic);
            found.insert(name.to_string(), own.copied().unwrap_or(self.started));
        }
        Ok(found.into_iter().map(|(name, created)| BucketEntry { name, created }).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Bucket>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn about_bucket(error: penstock_base::Error) -> s3s::S3Error {
    to_s3(Subject::Bucket, error)
}
