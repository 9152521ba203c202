//! Names of objects beside those of files and directories: listings, links, objects that are called
//! as directories are, long names.

use super::*;
use std::os::unix::fs::symlink;

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

#[tokio::test]
async fn a_listing_that_stopped_holds_nothing_open_and_goes_on() {
    let dir = Dir::new();
    let store = dir.bucket();
    let deep = (0..30).map(|level| level.to_string()).collect::<Vec<_>>().join("/");
    for key in ["x", "y", "z"] {
        put(&store, &format!("{deep}/{key}"), "v").await;
    }
    let inside = fs::canonicalize(dir.0.path()).unwrap();
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter_map(|fd| fs::read_link(fd.path()).ok())
            .filter(|to| to.starts_with(&inside))
            .count()
    };
    assert_eq!(open(), 1, "the root");
    let mut request = ListRequest { max_keys: Some(1), ..Default::default() };
    let mut found = Vec::new();
    loop {
        let page = store.list(request.clone()).await.unwrap();
        assert_eq!(open(), 1, "after {found:?}");
        found.extend(page.objects.into_iter().map(|entry| entry.key));
        match page.next {
            Some(token) => request.token = Some(token),
            None => break,
        }
    }
    assert_eq!(found, ["x", "y", "z"].map(|key| format!("{deep}/{key}")));
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
