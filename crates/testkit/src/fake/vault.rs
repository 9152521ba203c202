//! Where the fakes keep buckets (or containers), objects, and what is not committed yet.
//!
//! The index is in memory; bodies are in memory too, or in files below a directory, with one small
//! record beside them for each object, so that a restarted fake finds them again.

use super::clock;
use super::codec::hex;
use super::data::{Data, Piece, StoredFile};
use super::digest;
use super::generations::Generations;
use super::history::{History, Id};
use super::server::{Protocol, Server};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Header or metadata lines: names in lower case.
pub type Lines = Vec<(String, String)>;

/// A committed object or blob.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its bytes.
    pub data: Data,
    /// Its tag, without quotes.
    pub etag: String,
    /// Time of the last write, in whole seconds.
    pub modified: SystemTime,
    /// Headers that come back with it, such as `content-type`.
    pub headers: Lines,
    /// User metadata.
    pub metadata: Lines,
    /// S3 checksums by name (`crc32`), as the client sent them.
    pub checksums: Lines,
    /// Tags.
    pub tags: Lines,
    /// Azure: ids and sizes of its blocks, in order.
    pub blocks: Vec<(String, u64)>,
}

/// A part or block that is not committed yet.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Its bytes.
    pub data: Data,
    /// Its tag (S3).
    pub etag: String,
    /// When it came.
    pub modified: SystemTime,
    /// S3 checksums by name, as the client sent them.
    pub checksums: Lines,
}

/// An S3 multipart upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Which object it will make.
    pub key: String,
    /// When it began.
    pub begun: SystemTime,
    /// Headers and metadata of the object.
    pub headers: Lines,
    /// User metadata of the object.
    pub metadata: Lines,
    /// Algorithm and type of its checksums.
    pub checksum: Option<(String, String)>,
    /// Parts by number.
    pub parts: BTreeMap<u32, Staged>,
}

/// A bucket or container.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// When it was made.
    pub created: SystemTime,
    /// Where, as its maker said.
    pub location: String,
    /// Metadata of the container.
    pub metadata: Lines,
    /// Objects by key, in byte order.
    pub objects: BTreeMap<String, Arc<Object>>,
    /// S3 uploads by id.
    pub uploads: BTreeMap<String, Upload>,
    /// Azure blocks by blob, then by id.
    pub blocks: BTreeMap<String, BTreeMap<String, Staged>>,
    /// What Google calls versions.
    pub generations: Generations,
    /// What S3 calls versions.
    pub history: History,
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket {
            created: clock::now(),
            location: String::new(),
            metadata: Lines::new(),
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            blocks: BTreeMap::new(),
            generations: Generations::default(),
            history: History::default(),
        }
    }
}

/// All buckets, and the objects that changed since the last flush.
#[derive(Debug, Default)]
pub struct State {
    /// Buckets by name.
    pub buckets: BTreeMap<String, Bucket>,
    changed: Vec<(String, String)>,
}

impl State {
    /// Places an object, over any that is there; its generation.
    pub fn place(&mut self, bucket: &str, key: &str, object: Object) -> u64 {
        let found = self.buckets.entry(bucket.to_string()).or_default();
        let before = found.objects.insert(key.to_string(), Arc::new(object));
        self.changed.push((bucket.to_string(), key.to_string()));
        found.history.written(key, before.clone(), clock::now());
        found.generations.written(key, before, clock::now())
    }

    /// Changes what is told of an object that stays what it is: it gets no generation of its own.
    pub fn amend(&mut self, bucket: &str, key: &str, object: Object) {
        self.changed.push((bucket.to_string(), key.to_string()));
        if let Some(found) = self.buckets.get_mut(bucket) {
            found.objects.insert(key.to_string(), Arc::new(object));
        }
    }

    /// Removes an object; whether there was one.
    pub fn remove(&mut self, bucket: &str, key: &str) -> bool {
        self.changed.push((bucket.to_string(), key.to_string()));
        let Some(found) = self.buckets.get_mut(bucket) else { return false };
        let before = found.objects.remove(key);
        found.history.removed(key, before.clone(), clock::now());
        found.generations.removed(key, before.clone(), clock::now());
        before.is_some()
    }

    /// Removes one version of an object for good; whether it was a delete marker.
    pub fn forget(&mut self, bucket: &str, key: &str, id: Id) -> bool {
        self.changed.push((bucket.to_string(), key.to_string()));
        let Some(found) = self.buckets.get_mut(bucket) else { return false };
        found.history.forget(key, id, &mut found.objects)
    }

    /// An object.
    pub fn object(&self, bucket: &str, key: &str) -> Option<Arc<Object>> {
        self.buckets.get(bucket)?.objects.get(key).cloned()
    }
}

#[derive(Debug)]
struct Disk {
    dir: PathBuf,
    /// Set when the server ends, so that dropping the index deletes no file.
    closing: Arc<AtomicBool>,
}

/// The store behind a fake.
#[derive(Debug)]
pub struct Vault {
    state: Mutex<State>,
    disk: Option<Disk>,
    serial: AtomicU64,
}

impl Vault {
    /// Opens a vault in memory, or in a directory with what is already there.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(dir: Option<&Path>) -> io::Result<Self> {
        let mut state = State::default();
        let disk = match dir {
            None => None,
            Some(dir) => {
                let closing = Arc::new(AtomicBool::new(false));
                let disk = Disk { dir: dir.to_path_buf(), closing };
                std::fs::create_dir_all(disk.dir.join("data"))?;
                std::fs::create_dir_all(disk.dir.join("records"))?;
                disk.load(&mut state)?;
                Some(disk)
            }
        };
        let now = clock::now_ahead(0).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let serial = AtomicU64::new(now.as_nanos() as u64 / 100);
        Ok(Vault { state: Mutex::new(state), disk, serial })
    }

    /// Works on the state; what `work` does is atomic.
    pub fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.state.lock().expect("no holder of this lock panics"))
    }

    /// A number that no earlier call returned, also across restarts: a clock that never stands.
    pub fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a body: as it is, or in a file of its own.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn keep(&self, pieces: Vec<Bytes>) -> io::Result<Data> {
        let Some(disk) = &self.disk else {
            return Ok(Data(pieces.into_iter().map(Piece::Memory).collect()));
        };
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let path = disk.dir.join("data").join(format!("{:016x}", self.next_serial()));
        let file = StoredFile::new(path.clone(), disk.closing.clone());
        let write = move || -> io::Result<()> {
            let mut file = std::fs::File::create(path)?;
            pieces.iter().try_for_each(|piece| io::Write::write_all(&mut file, piece))
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
        Ok(Data(vec![Piece::File { file: Arc::new(file), offset: 0, len }]))
    }

    /// Writes the records of changed objects, where there is a directory.
    ///
    /// # Errors
    /// When a record cannot be written.
    pub async fn flush(&self) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            self.with(|state| state.changed.clear());
            return Ok(());
        };
        let records: Vec<(PathBuf, Option<String>)> = self.with(|state| {
            let changed = std::mem::take(&mut state.changed);
            let record = |(bucket, key): &(String, String)| {
                let object = state.object(bucket, key);
                let text = object.map(|object| to_record(bucket, key, &object).to_string());
                (disk.record_path(bucket, key), text)
            };
            changed.iter().map(record).collect()
        });
        let write = move || -> io::Result<()> {
            for (path, text) in records {
                match text {
                    Some(text) => {
                        let fresh = path.with_extension("new");
                        std::fs::write(&fresh, text)?;
                        std::fs::rename(fresh, path)?;
                    }
                    None => drop(std::fs::remove_file(path)),
                }
            }
            Ok(())
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.closing.store(true, Ordering::Relaxed);
        }
    }
}

impl Disk {
    fn record_path(&self, bucket: &str, key: &str) -> PathBuf {
        // A key may be longer than a file name and hold any character; its hash is neither.
        let name = hex(&digest::sha256(&[Bytes::from(format!("{bucket}/{key}"))]));
        self.dir.join("records").join(name + ".json")
    }

    fn load(&self, state: &mut State) -> io::Result<()> {
        let mut used = std::collections::HashSet::new();
        for entry in std::fs::read_dir(self.dir.join("records"))? {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)?;
            let record: Value = serde_json::from_str(&text).map_err(io::Error::other)?;
            let (bucket, key, object) = self.read_record(&record, &mut used).ok_or_else(|| {
                io::Error::other(format!("{} is not a record of this fake", path.display()))
            })?;
            let bucket = state.buckets.entry(bucket).or_default();
            bucket.generations.written(&key, None, object.modified);
            bucket.objects.insert(key, Arc::new(object));
        }
        // Parts that were never committed belong to nobody now.
        for entry in std::fs::read_dir(self.dir.join("data"))? {
            let path = entry?.path();
            if !used.contains(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn read_record(
        &self,
        record: &Value,
        used: &mut std::collections::HashSet<PathBuf>,
    ) -> Option<(String, String, Object)> {
        let text = |name: &str| record[name].as_str().map(str::to_string);
        let lines =
            |name: &str| -> Option<Lines> { serde_json::from_value(record[name].clone()).ok() };
        let mut data = Data::default();
        for piece in record["pieces"].as_array()? {
            let path = self.dir.join("data").join(piece[0].as_str()?);
            used.insert(path.clone());
            let file = Arc::new(StoredFile::new(path, self.closing.clone()));
            let (offset, len) = (piece[1].as_u64()?, piece[2].as_u64()?);
            data.0.push(Piece::File { file, offset, len });
        }
        let object = Object {
            data,
            etag: text("etag")?,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(record["modified_s"].as_u64()?),
            headers: lines("headers")?,
            metadata: lines("metadata")?,
            checksums: lines("checksums")?,
            tags: lines("tags").unwrap_or_default(),
            blocks: serde_json::from_value(record["blocks"].clone()).ok()?,
        };
        Some((text("bucket")?, text("key")?, object))
    }
}

fn to_record(bucket: &str, key: &str, object: &Object) -> Value {
    let piece = |piece: &Piece| match piece {
        Piece::File { file, offset, len } => {
            let name = file.path().file_name().map(|name| name.to_string_lossy().into_owned());
            json!([name, offset, len])
        }
        // `keep` puts every body of a vault with a directory into a file.
        Piece::Memory(_) => Value::Null,
    };
    let modified = object.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "bucket": bucket,
        "key": key,
        "pieces": object.data.0.iter().map(piece).collect::<Vec<_>>(),
        "etag": object.etag,
        "modified_s": modified.as_secs(),
        "headers": object.headers,
        "metadata": object.metadata,
        "checksums": object.checksums,
        "tags": object.tags,
        "blocks": object.blocks,
    })
}

/// A tag of the service's shape that no other write gets.
pub fn fresh_etag(server: &Server) -> String {
    let serial = server.vault.next_serial();
    match server.protocol {
        Protocol::S3 => {
            let spread = serial.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            format!("{spread:016x}{serial:016x}")
        }
        Protocol::Azure => format!("0x8D{serial:013X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(data: Data) -> Object {
        Object {
            data,
            etag: "e".to_string(),
            modified: clock::now(),
            headers: vec![("content-type".to_string(), "text/plain".to_string())],
            metadata: Lines::new(),
            checksums: Lines::new(),
            tags: Lines::new(),
            blocks: vec![("id".to_string(), 3)],
        }
    }

    #[tokio::test]
    async fn a_directory_is_found_again_without_uncommitted_files() {
        let dir = std::env::temp_dir().join(format!("penstock-vault-{}", std::process::id()));
        let vault = Vault::open(Some(&dir)).unwrap();
        let kept = vault.keep(vec![Bytes::from_static(b"abc"), Bytes::new()]).await.unwrap();
        let gone = vault.keep(vec![Bytes::from_static(b"gone")]).await.unwrap();
        vault.with(|state| {
            state.place("b", "k//%", object(kept));
            state.place("b", "gone", object(gone));
            state.remove("b", "gone");
        });
        vault.flush().await.unwrap();
        let orphan = vault.keep(vec![Bytes::from_static(b"never committed")]).await.unwrap();
        drop(vault);
        drop(orphan);

        let vault = Vault::open(Some(&dir)).unwrap();
        let found = vault.with(|state| state.object("b", "k//%")).unwrap();
        assert_eq!(found.data.load().await.unwrap().concat(), b"abc");
        assert_eq!(found.blocks, object(Data::default()).blocks);
        assert!(vault.with(|state| state.object("b", "gone")).is_none());
        assert_eq!(std::fs::read_dir(dir.join("data")).unwrap().count(), 1);
        drop(found);
        drop(vault);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
