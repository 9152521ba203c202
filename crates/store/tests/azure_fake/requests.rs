//! How many requests each verb takes, also on accounts that refuse some kinds of them.

use crate::support::{body, bounded, get, heard, none, told};
use penstock_base::{Kind, Result};
use penstock_store::{GetRange, ListRequest, PutOptions, Store};

#[tokio::test]
async fn each_verb_is_as_few_requests_as_can_be() {
    let (_fake, store, heard) = heard();
    store.put("small", body("x"), &none()).await.unwrap();
    assert_eq!(heard.take().len(), 1);
    let id = store.create_upload("large", &none()).await.unwrap();
    assert_eq!(heard.take().len(), 0, "an upload begins without a request");
    let mut parts = Vec::new();
    for number in 1..=3 {
        parts.push(store.upload_part("large", &id, number, body("part")).await.unwrap());
    }
    store.complete_upload("large", &id, &parts, &none()).await.unwrap();
    assert_eq!(heard.take().len(), 4);
    get(&store, "large", bounded(0, 100)).await.unwrap();
    store.list(ListRequest::default()).await.unwrap();
    let keys: Vec<String> = ["small", "large", "absent"].map(String::from).into();
    let results = store.delete_batch(&keys).await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(heard.take().len(), 3);
}

#[tokio::test]
async fn accounts_without_batches_get_single_deletes() {
    let (fake, store, heard) = heard();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for key in &keys {
        store.put(key, body("x"), &none()).await.unwrap();
    }
    fake.fault("status=501,code=NotImplemented,op=SubmitBatch");
    let results = store.delete_batch(&keys).await.unwrap();
    assert!(results.len() == 40 && results.iter().all(Result::is_ok));
    assert!(store.list(ListRequest::default()).await.unwrap().objects.is_empty());
    store.delete_batch(&keys).await.unwrap();
    let batches = heard.take().iter().filter(|url| url.contains("comp=batch")).count();
    assert_eq!(batches, 1, "a refusal is remembered");
}

#[tokio::test]
async fn a_batch_that_is_refused_is_not_the_last_one() {
    let (fake, store, heard) = heard();
    let keys = ["a".to_string(), "b".to_string()];
    let batches = async |count: usize| {
        for _ in 0..count {
            store.delete_batch(&keys).await.unwrap();
        }
        heard.take().iter().filter(|url| url.contains("comp=batch")).count()
    };
    for refused in [1, 15] {
        fake.fault(&format!("status=409,code=Odd,op=SubmitBatch,times={refused}"));
        assert_eq!(batches(refused + 1).await, refused + 1);
    }
    fake.fault("status=409,code=Odd,op=SubmitBatch");
    assert_eq!(batches(20).await, 16, "an account that refuses all is asked no more");
}

#[tokio::test]
async fn copy_with_another_type_is_one_request_or_falls_back() {
    let typed = PutOptions {
        content_type: Some("text/plain".into()),
        metadata: vec![("a".into(), "b".into())],
        ..none()
    };
    for refuses in [false, true] {
        let (fake, store, heard) = heard();
        let first = PutOptions { content_type: Some("x/y".into()), ..none() };
        store.put("from", body("content"), &first).await.unwrap();
        if refuses {
            fake.fault("status=501,code=NotImplemented,op=PutBlobFromURL");
        }
        heard.take();
        let result = store.copy("from", "to", &typed).await.unwrap();
        assert_eq!(heard.take().len(), if refuses { 3 } else { 1 });
        let meta = store.stat("to").await.unwrap();
        assert_eq!((&meta.content_type, &meta.metadata), (&typed.content_type, &typed.metadata));
        assert_eq!(meta.etag, result.etag);
        store.copy("from", "kept", &none()).await.unwrap();
        let kept = store.stat("kept").await.unwrap();
        assert_eq!(kept.content_type.as_deref(), Some("x/y"));
        assert_eq!(get(&store, "kept", GetRange::All).await.unwrap(), "content");
        let error = store.copy("absent", "to", &none()).await.unwrap_err();
        told(&error, Kind::NotFound, &["az://exam/absent"]);
    }
}
