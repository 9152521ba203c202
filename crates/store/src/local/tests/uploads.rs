//! Uploads in parts.

use super::*;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_that_an_abort_overtakes_finds_no_upload() {
    let dir = Dir::new();
    let store = Arc::new(dir.bucket());
    for _ in 0..100 {
        let id = store.create_upload("k", &none()).await.unwrap();
        let mut parts = Vec::new();
        for number in 1..5 {
            let part = store.upload_part("k", &id, number, Bytes::from_static(b"1").into());
            parts.push(part.await.unwrap());
        }
        let aborting = {
            let (store, id) = (store.clone(), id.clone());
            tokio::spawn(async move { store.abort_upload("k", &id).await })
        };
        if let Err(error) = store.complete_upload("k", &id, &parts, &none()).await {
            assert_eq!(error.kind(), Kind::NotFound, "{error}");
        }
        aborting.await.unwrap().unwrap();
        assert_eq!(dir.paths().iter().filter(|path| *path != "k").count(), 0, "{:?}", dir.paths());
    }
}
