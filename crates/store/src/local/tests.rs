//! What a local bucket does on a real directory.

mod attributes;
mod kept;
mod keys;
mod uploads;

use super::*;
use crate::GetRange;
use crate::WriteCondition;
use crate::streaming::StreamingStore as _;
use bytes::Bytes;
use penstock_testkit::scratch::Scratch;
use std::fs;

/// A directory of its own for each test.
struct Dir(Scratch);

impl Dir {
    fn new() -> Self {
        Dir(Scratch::new("local"))
    }

    fn bucket(&self) -> LocalStore {
        LocalStore::open(self.0.path()).unwrap()
    }

    /// Every path in it, hidden ones too.
    fn paths(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, into: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                into.push(path.strip_prefix(root).unwrap().display().to_string());
                if path.is_dir() {
                    walk(&path, root, into);
                }
            }
        }
        let mut paths = Vec::new();
        walk(self.0.path(), self.0.path(), &mut paths);
        paths.sort();
        paths
    }
}

fn none() -> PutOptions {
    PutOptions::default()
}

fn when(condition: WriteCondition) -> PutOptions {
    PutOptions { condition, ..Default::default() }
}

async fn put(store: &LocalStore, key: &str, text: &'static str) -> PutResult {
    store.put(key, Bytes::from_static(text.as_bytes()).into(), &none()).await.unwrap()
}

async fn read(store: &LocalStore, key: &str) -> Result<String> {
    let request = GetRequest::default();
    let mut body = store.get(key, request).await?.body;
    let (mut text, mut buf) = (Vec::new(), [0; 7]);
    loop {
        match body.read(&mut buf).await? {
            0 => return Ok(String::from_utf8(text).unwrap()),
            n => text.extend_from_slice(&buf[..n]),
        }
    }
}

async fn keys(store: &LocalStore, request: ListRequest) -> (Vec<String>, Vec<String>) {
    let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
    let mut request = request;
    loop {
        let page = store.list(request.clone()).await.unwrap();
        objects.extend(page.objects.into_iter().map(|entry| entry.key));
        prefixes.extend(page.prefixes);
        match page.next {
            Some(token) => request.token = Some(token),
            None => return (objects, prefixes),
        }
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn object_keeps_bytes_type_metadata_and_tag_across_a_restart() {
    let dir = Dir::new();
    let options = PutOptions {
        content_type: Some("text/csv".into()),
        metadata: vec![("owner".into(), "ü".into()), ("big".into(), "x".repeat(20_000))],
        ..Default::default()
    };
    let bytes: Bytes = Bytes::from_static(b"a,b\n");
    let put = dir.bucket().put("t/x.csv", bytes.into(), &options).await.unwrap();
    let store = dir.bucket();
    let meta = store.stat("t/x.csv").await.unwrap();
    assert_eq!((meta.size_bytes, &meta.etag), (Some(4), &put.etag));
    assert_eq!(meta.content_type, options.content_type);
    assert_eq!(meta.metadata, options.metadata);
    assert_eq!(read(&store, "t/x.csv").await.unwrap(), "a,b\n");
    store.delete("t/x.csv", None).await.unwrap();
    assert_eq!(dir.paths(), Vec::<String>::new(), "attributes and directories go too");
}

#[tokio::test]
async fn conditions_hold() {
    let dir = Dir::new();
    let store = dir.bucket();
    let body = || Payload::from(Bytes::from_static(b"x"));
    let absent = when(WriteCondition::IfAbsent);
    let first = store.put("k", body(), &absent).await.unwrap().etag.unwrap();
    assert_eq!(store.put("k", body(), &absent).await.unwrap_err().kind(), Kind::Conflict);
    let over_first = when(WriteCondition::IfMatch(first.clone()));
    let second = store.put("k", body(), &over_first).await.unwrap().etag.unwrap();
    assert_ne!(first, second);
    assert_eq!(store.put("k", body(), &over_first).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(store.delete("k", Some(&first)).await.unwrap_err().kind(), Kind::Conflict);
    let request = GetRequest { range: GetRange::All, if_match: Some(first), ..Default::default() };
    assert_eq!(store.get("k", request).await.unwrap_err().kind(), Kind::Conflict);
    store.delete("k", Some(&second)).await.unwrap();
    store.delete("k", Some(&second)).await.unwrap();
    let gone = when(WriteCondition::IfMatch(second));
    assert_eq!(store.put("k", body(), &gone).await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(dir.paths(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_conditional_writers_each_round_has_one_winner() {
    let dir = Dir::new();
    // Two stores on one directory: the conditions must hold without a lock in this process.
    let stores = [Arc::new(dir.bucket()), Arc::new(dir.bucket())];
    let mut tag = put(&stores[0], "k", "0").await.etag.unwrap();
    for _ in 0..20 {
        let writers: Vec<_> = (0..8)
            .map(|i| {
                let (store, tag) = (stores[i % 2].clone(), tag.clone());
                tokio::spawn(async move {
                    let body = Bytes::from(i.to_string());
                    store.put("k", body.into(), &when(WriteCondition::IfMatch(tag))).await
                })
            })
            .collect();
        let mut winners = Vec::new();
        for writer in writers {
            match writer.await.unwrap() {
                Ok(result) => winners.push(result.etag.unwrap()),
                Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        tag = winners.remove(0);
        assert_eq!(stores[0].stat("k").await.unwrap().etag.as_ref(), Some(&tag));
    }
}

#[tokio::test]
async fn leftovers_of_the_dead_are_swept_and_those_of_the_living_stay() {
    let dir = Dir::new();
    fs::write(dir.0.path().join(".penstock-tmp-dead"), "x").unwrap();
    let living = fs::File::create(dir.0.path().join(".penstock-tmp-living")).unwrap();
    living.lock().unwrap();
    put(&dir.bucket(), "k", "v").await;
    assert_eq!(dir.paths(), [".penstock-tmp-living", "k"]);
}

#[tokio::test]
async fn file_cut_under_the_reader_is_corrupt_not_short() {
    let dir = Dir::new();
    let store = dir.bucket();
    put(&store, "k", "0123456789").await;
    let request = GetRequest::from(GetRange::From(2));
    let mut body = store.get("k", request).await.unwrap().body;
    let file = fs::OpenOptions::new().write(true).open(dir.0.path().join("k")).unwrap();
    file.set_len(4).unwrap();
    let mut buf = [0; 100];
    assert_eq!(body.read(&mut buf).await.unwrap(), 2);
    assert_eq!(body.read(&mut buf).await.unwrap_err().kind(), Kind::Corrupt);
}

#[tokio::test]
async fn bytes_that_are_not_in_the_page_cache_come_from_a_blocking_thread() {
    let dir = Dir::new();
    let store = dir.bucket();
    put(&store, "k", "0123456789").await;
    let range = GetRange::Bounded(penstock_base::ByteRange { start: 1, end: 8 });
    let mut body = store.get("k", GetRequest::from(range)).await.unwrap().body;
    match &mut body {
        Body::File(file) => file.nowait = false,
        other => panic!("a file answers with {other:?}"),
    }
    let mut text = Vec::new();
    for size in [1, 2, 3, 9, 9] {
        let mut buf = vec![0; size];
        let count = body.read(&mut buf).await.unwrap();
        text.extend_from_slice(&buf[..count]);
    }
    assert_eq!(text, b"1234567");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_two_writers_see_whole_objects_of_one_of_them() {
    const LEN: usize = 300_000;
    let dir = Dir::new();
    let stores = [Arc::new(dir.bucket()), Arc::new(dir.bucket())];
    put(&stores[0], "k", "").await;
    let writers: Vec<_> = (0..2u8)
        .map(|i| {
            let store = stores[usize::from(i)].clone();
            tokio::spawn(async move {
                let bytes = Bytes::from(vec![b'a' + i; LEN]);
                for _ in 0..50 {
                    store.put("k", bytes.clone().into(), &none()).await.unwrap();
                }
            })
        })
        .collect();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let text = read(&stores[0], "k").await.unwrap();
        let first = text.bytes().next();
        assert!(text.is_empty() || text.len() == LEN);
        assert!(text.bytes().all(|byte| Some(byte) == first), "a mix of two versions");
    }
    assert_eq!(dir.paths(), ["k"]);
}

#[tokio::test]
async fn a_full_disk_is_told_with_the_path_and_leaves_nothing() {
    // More than any disk that tests run on has.
    const LEN: u64 = 8 << 40;
    let dir = Dir::new();
    let error = dir.bucket().stage("d/k", Some(LEN), &WriteCondition::None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    assert!(error.to_string().contains("/d/k"), "{error}");
    assert!(error.to_string().contains("Free space"), "{error}");
    assert_eq!(dir.paths(), ["d"]);
}

#[tokio::test]
async fn a_changed_hidden_file_of_attributes_is_on_the_disk_before_the_answer() {
    let dir = Dir::new();
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    // More than any extended attribute holds.
    let metadata = vec![("big".into(), "x".repeat(70_000))];
    let options = PutOptions { metadata, ..none() };
    dir.bucket().put("d/k", Bytes::from_static(b"v").into(), &options).await.unwrap();
    let at = names::locate(Scope::Bucket, "d/k").unwrap();
    let revision: crate::streaming::Revision = Box::new(|_| Ok(Some("on".to_string())));
    let (done, synced) =
        durable::seen::during(|| versions::revise(&root, &at, None, ("@lock-hold", &revision)));
    done.unwrap();
    let inside = fs::canonicalize(dir.0.path().join("d")).unwrap();
    let name = synced.iter().position(|it| it.path == inside).expect("the directory is synced");
    let is_temp =
        |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with(names::TEMP);
    let bytes = synced.iter().position(|it| it.len > 70_000 && is_temp(&it.path));
    assert!(bytes.expect("the new file is synced") < name, "{synced:?}");
    let hidden = |it: &String| it.starts_with(names::SIDECAR);
    assert_eq!(synced[name].names.iter().filter(|it| hidden(it)).count(), 1);
}

#[test]
fn a_hidden_file_of_attributes_is_locked_while_it_is_written() {
    let dir = Dir::new();
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    let options = PutOptions { metadata: vec![("big".into(), "x".repeat(70_000))], ..none() };
    let at = names::locate(Scope::Bucket, "k").unwrap();
    let mut temp = Temp::create(&root, &at).unwrap();
    temp.write(&Bytes::from_static(b"v").into(), "k").unwrap();
    let attributes = Attributes::of(&options);
    // The first sweep of another process comes just when the file's bytes are written.
    let other = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    durable::seen::meanwhile(
        move || sweep::Sweeper::default().sweep_once(&other, "."),
        || temp.publish(&root, &at, &WriteCondition::None, &attributes),
    )
    .unwrap();
    let (_, meta) = open(&root, &at).unwrap();
    assert_eq!(meta.metadata, options.metadata);
}

#[tokio::test]
async fn the_hidden_file_of_attributes_goes_with_the_version_that_is_replaced() {
    let dir = Dir::new();
    let bucket = dir.bucket();
    // More than any extended attribute holds, and as much as most hold.
    let options =
        |len: usize| PutOptions { metadata: vec![("m".into(), "x".repeat(len))], ..none() };
    let hidden = || dir.paths().iter().filter(|it| it.starts_with(names::SIDECAR)).count();
    for (len, files) in [(70_000, 1), (70_000, 1), (100, 0), (70_000, 1), (0, 0)] {
        let options = if len == 0 { none() } else { options(len) };
        bucket.put("k", Bytes::from_static(b"v").into(), &options).await.unwrap();
        assert_eq!(hidden(), files, "after {len}");
        assert_eq!(bucket.stat("k").await.unwrap().metadata, options.metadata);
    }
}
