//! What a local bucket does on a real directory.

use super::*;
use crate::GetRange;
use crate::WriteCondition;
use crate::streaming::StreamingStore as _;
use bytes::Bytes;
use penstock_testkit::scratch::Scratch;
use std::fs;
use std::os::unix::fs::symlink;

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
async fn listing_folds_pages_and_hides() {
    let dir = Dir::new();
    let store = dir.bucket();
    for key in ["a-b", "a/b", "a/c/d", "a0", "b/", "b//x", "z/.x"] {
        put(&store, key, "v").await;
    }
    fs::create_dir_all(dir.0.path().join("empty/deep")).unwrap();
    fs::write(dir.0.path().join(".penstock-tmp-left"), "x").unwrap();
    for max_keys in [None, Some(1), Some(2)] {
        let all = ListRequest { max_keys, ..Default::default() };
        let (objects, _) = keys(&store, all.clone()).await;
        assert_eq!(objects, ["a-b", "a/b", "a/c/d", "a0", "b/", "b//x", "z/.x"]);
        let folded = ListRequest { delimiter: Some("/".into()), ..all.clone() };
        let (objects, prefixes) = keys(&store, folded.clone()).await;
        assert_eq!((objects, prefixes), (strings(&["a-b", "a0"]), strings(&["a/", "b/", "z/"])));
        let below = ListRequest { prefix: "a/".into(), ..folded.clone() };
        let (objects, prefixes) = keys(&store, below).await;
        assert_eq!((objects, prefixes), (strings(&["a/b"]), strings(&["a/c/"])));
        let after = ListRequest { start_after: Some("a/b".into()), ..folded };
        let (objects, prefixes) = keys(&store, after).await;
        assert_eq!((objects, prefixes), (strings(&["a0"]), strings(&["a/", "b/", "z/"])));
    }
    let none = ListRequest { prefix: "nothing/here".into(), ..Default::default() };
    assert_eq!(keys(&store, none).await, (vec![], vec![]));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn links_inside_work_and_links_outside_are_refused() {
    let (outside, dir) = (Dir::new(), Dir::new());
    fs::write(outside.0.path().join("secret"), "s").unwrap();
    let store = dir.bucket();
    put(&store, "d/real", "r").await;
    symlink("d/real", dir.0.path().join("inside")).unwrap();
    symlink(outside.0.path().join("secret"), dir.0.path().join("out")).unwrap();
    symlink(outside.0.path(), dir.0.path().join("outdir")).unwrap();
    symlink("../d", dir.0.path().join("d/loop")).unwrap();
    assert_eq!(read(&store, "inside").await.unwrap(), "r");
    for key in ["out", "outdir/secret"] {
        assert_eq!(read(&store, key).await.unwrap_err().kind(), Kind::Denied, "{key}");
        let wrote = store.put(key, Bytes::from_static(b"x").into(), &none()).await;
        assert_eq!(wrote.unwrap_err().kind(), Kind::Denied, "{key}");
    }
    assert_eq!(keys(&store, ListRequest::default()).await.0, ["d/real", "inside"]);
    assert_eq!(fs::read_to_string(outside.0.path().join("secret")).unwrap(), "s");
}

#[tokio::test]
async fn upload_is_invisible_until_complete_and_leaves_nothing_behind() {
    let dir = Dir::new();
    let store = dir.bucket();
    let begun = PutOptions { content_type: Some("a/b".into()), ..Default::default() };
    let id = store.create_upload("x/k", &begun).await.unwrap();
    let part =
        |n: u32, text: &'static str| store.upload_part("x/k", &id, n, Bytes::from(text).into());
    let stale = part(2, "old").await.unwrap();
    let two = part(2, "two").await.unwrap();
    let one = part(1, "one-").await.unwrap();
    assert_eq!(keys(&store, ListRequest::default()).await.0, Vec::<String>::new());
    let wrong = store.complete_upload("x/k", &id, &[one.clone(), stale], &none()).await;
    assert_eq!(wrong.unwrap_err().kind(), Kind::Invalid);
    // Another process completes, twice.
    let other = dir.bucket();
    let parts = [one, two];
    let done = other.complete_upload("x/k", &id, &parts, &none()).await.unwrap();
    assert_eq!(other.complete_upload("x/k", &id, &parts, &none()).await.unwrap(), done);
    assert_eq!(read(&store, "x/k").await.unwrap(), "one-two");
    assert_eq!(store.stat("x/k").await.unwrap().content_type.as_deref(), Some("a/b"));
    assert_eq!(dir.paths(), ["x", "x/k"]);
    let id = store.create_upload("y/k", &none()).await.unwrap();
    store.upload_part("y/k", &id, 1, Bytes::from_static(b"1").into()).await.unwrap();
    store.abort_upload("y/k", &id).await.unwrap();
    store.abort_upload("y/k", &id).await.unwrap();
    assert_eq!(dir.paths(), ["x", "x/k"]);
    let late = store.upload_part("y/k", &id, 1, Bytes::from_static(b"1").into()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_come_while_an_upload_ends_leave_nothing() {
    let dir = Dir::new();
    let store = Arc::new(dir.bucket());
    for round in 0..200 {
        let id = store.create_upload("k", &none()).await.unwrap();
        let first = store.upload_part("k", &id, 1, Bytes::from_static(b"1").into()).await.unwrap();
        let parts = (2..6).map(|number| {
            let (store, id) = (store.clone(), id.clone());
            let part = async move {
                store.upload_part("k", &id, number, Bytes::from_static(b"2").into()).await
            };
            tokio::spawn(part)
        });
        let parts: Vec<_> = parts.collect();
        if round % 2 == 0 {
            store.abort_upload("k", &id).await.unwrap();
        } else {
            store.complete_upload("k", &id, &[first], &none()).await.unwrap();
        }
        for part in parts {
            if let Err(error) = part.await.unwrap() {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
            }
        }
        assert_eq!(dir.paths().iter().filter(|path| *path != "k").count(), 0, "{:?}", dir.paths());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_completions_at_once_both_have_the_same_answer() {
    let dir = Dir::new();
    let store = Arc::new(dir.bucket());
    for _ in 0..100 {
        let id = store.create_upload("k", &none()).await.unwrap();
        let part = store.upload_part("k", &id, 1, Bytes::from_static(b"1").into()).await.unwrap();
        let complete = || {
            let (store, id, part) = (store.clone(), id.clone(), part.clone());
            tokio::spawn(async move { store.complete_upload("k", &id, &[part], &none()).await })
        };
        let (one, two) = (complete(), complete());
        assert_eq!(one.await.unwrap().unwrap(), two.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn an_object_may_have_the_name_of_a_directory() {
    let dir = Dir::new();
    let store = dir.bucket();
    put(&store, "a", "first").await;
    put(&store, "a/b", "below").await;
    assert_eq!(read(&store, "a").await.unwrap(), "first");
    assert_eq!(dir.paths(), [".penstock-object-a", "a", "a/b"]);
    let second = put(&store, "a", "second").await;
    put(&store, "a/b/c/d", "deep").await;
    for (key, text) in [("a", "second"), ("a/b", "below"), ("a/b/c/d", "deep")] {
        assert_eq!(read(&store, key).await.unwrap(), text);
    }
    assert_eq!(store.stat("a/b/c").await.unwrap_err().kind(), Kind::NotFound);
    let all = keys(&store, ListRequest::default()).await.0;
    assert_eq!(all, ["a", "a/b", "a/b/c/d"]);
    let folded = ListRequest { delimiter: Some("/".into()), ..Default::default() };
    assert_eq!(keys(&store, folded).await, (strings(&["a"]), strings(&["a/"])));
    let absent = when(WriteCondition::IfAbsent);
    let over = store.put("a", Bytes::from_static(b"x").into(), &absent).await.unwrap_err();
    assert_eq!(over.kind(), Kind::Conflict);
    store.delete("a/b", None).await.unwrap();
    store.delete("a/b/c/d", None).await.unwrap();
    store.delete("a", second.etag.as_ref()).await.unwrap();
    assert_eq!(dir.paths(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_never_gone_while_a_directory_takes_its_name() {
    let dir = Dir::new();
    let store = Arc::new(dir.bucket());
    for round in 0..50 {
        let (name, below) = (format!("k{round}"), format!("k{round}/x"));
        put(&store, &name, "v").await;
        let writer = {
            let store = store.clone();
            tokio::spawn(async move { put(&store, &below, "w").await })
        };
        while !writer.is_finished() {
            assert_eq!(read(&store, &name).await.unwrap(), "v");
        }
        writer.await.unwrap();
        assert_eq!(read(&store, &name).await.unwrap(), "v");
    }
}

#[tokio::test]
async fn plain_files_keep_directories_and_name_the_directory_opened_as_file() {
    let dir = Dir::new();
    let files = LocalStore::files().unwrap();
    let key = format!("{}/sub/f", dir.0.path().display());
    let key = key.trim_start_matches('/');
    put(&files, key, "v").await;
    assert_eq!(read(&files, key).await.unwrap(), "v");
    let error = files.stat(key.trim_end_matches("/f")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("directory"), "{error}");
    let body = || Payload::from(Bytes::from_static(b"x"));
    let over = files.put(key.trim_end_matches("/f"), body(), &none()).await.unwrap_err();
    assert_eq!(over.kind(), Kind::Invalid, "{over}");
    let below = files.put(&format!("{key}/g"), body(), &none()).await.unwrap_err();
    assert_eq!(below.kind(), Kind::Invalid, "{below}");
    files.delete(key, None).await.unwrap();
    assert_eq!(dir.paths(), ["sub"]);
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

/// Long enough that no name is left for an object beside a directory of its name.
const LONG_NAME_BYTES: [usize; 4] = [238, 239, 254, 255];

#[tokio::test]
async fn names_of_every_length_are_objects_and_missing_ones_are_not_found() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    for len in LONG_NAME_BYTES {
        for key in ["k".repeat(len), format!("d/{}", "k".repeat(len))] {
            assert_eq!(read(&store, &key).await.unwrap_err().kind(), Kind::NotFound, "{len}");
            put(&store, &key, "one").await;
            put(&store, &key, "two").await;
            assert_eq!(read(&store, &key).await.unwrap(), "two");
            let id = store.create_upload(&key, &none()).await.unwrap();
            let part = store.upload_part(&key, &id, 1, Bytes::from("p").into()).await.unwrap();
            let parts = [part];
            store.complete_upload(&key, &id, &parts, &none()).await.unwrap();
            assert_eq!(read(&store, &key).await.unwrap(), "p");
            store.delete(&key, None).await.unwrap();
            assert_eq!(read(&store, &key).await.unwrap_err().kind(), Kind::NotFound, "{len}");
        }
    }
}

#[tokio::test]
async fn a_long_name_is_an_object_or_a_directory_and_the_second_is_told_why_not() {
    let dir = Dir::new();
    let store = dir.bucket();
    let body = || Payload::from(Bytes::from_static(b"x"));
    for len in LONG_NAME_BYTES {
        let (key, below) = ("k".repeat(len), format!("{}/b", "k".repeat(len)));
        let has_room = len == 238;
        put(&store, &below, "below").await;
        let over = [
            store.put(&key, body(), &none()).await.map(drop),
            store.create_upload(&key, &none()).await.map(drop),
            store.stage(&key, None, &WriteCondition::None).await.map(drop),
        ];
        for done in over {
            match done {
                Ok(()) => assert!(has_room, "{len} bytes"),
                Err(error) => {
                    assert!(!has_room && error.kind() == Kind::Invalid, "{error}");
                    assert!(error.to_string().contains("238 bytes"), "{error}");
                }
            }
        }
        assert_eq!(read(&store, &below).await.unwrap(), "below");
        store.delete(&below, None).await.unwrap();
        store.delete(&key, None).await.unwrap();
        let _ = fs::remove_dir_all(dir.0.path().join(&key));
        put(&store, &key, "plain").await;
        match store.put(&below, body(), &none()).await {
            Ok(_) => assert!(has_room, "{len} bytes"),
            Err(error) => {
                assert!(!has_room && error.kind() == Kind::Invalid, "{error}");
                assert!(error.to_string().contains("238 bytes"), "{error}");
            }
        }
        assert_eq!(read(&store, &key).await.unwrap(), "plain");
    }
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
async fn what_is_put_between_two_pages_is_on_the_second() {
    let dir = Dir::new();
    let store = dir.bucket();
    for key in ["a", "b", "d/x", "d/z", "e"] {
        put(&store, key, "v").await;
    }
    let first = ListRequest { max_keys: Some(3), ..Default::default() };
    let page = store.list(first.clone()).await.unwrap();
    let shown: Vec<_> = page.objects.into_iter().map(|entry| entry.key).collect();
    assert_eq!(shown, ["a", "b", "d/x"]);
    // Both in a directory that is half shown, and in those around it.
    for key in ["aa", "c", "d/y", "dd/x", "f"] {
        put(&store, key, "new").await;
    }
    let rest = keys(&store, ListRequest { token: page.next, max_keys: None, ..first }).await.0;
    assert_eq!(rest, ["d/y", "d/z", "dd/x", "e", "f"]);
}
