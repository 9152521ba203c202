//! Trouble that a service or the way to it can make, and what is told of it.

use crate::common::{Script, read_request};
use crate::support::{body, bounded, fake, get, none, open_url, told};
use penstock_base::{Kind, Retry};
use penstock_store::{ETag, GetRange, GetRequest, ListRequest, PutOptions, Store, WriteCondition};
use penstock_testkit::fake::{FakeAzure, FakeOptions};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn answers_that_cannot_be_right_are_corrupt() {
    for fault in
        ["truncate=3", "wrong-range=+1", "ignore-range", "html", "lie-length=-2", "error-200"]
    {
        let (fake, store) = fake();
        store.put("k", body("0123456789"), &none()).await.unwrap();
        fake.fault(&format!("{fault},op=GetBlob"));
        let error = get(&store, "k", bounded(2, 8)).await.unwrap_err();
        told(&error, Kind::Corrupt, &["GET az://exam/k"]);
    }
    // A whole object has no range to compare, but no service answers without its own headers.
    let (fake, store) = fake();
    fake.fault("html");
    told(&get(&store, "k", GetRange::All).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.stat("k").await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.put("k", body("x"), &none()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.list(ListRequest::default()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.delete("k", None).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.copy("k", "l", &none()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
}

#[tokio::test]
async fn what_a_proxy_says_is_done_is_not() {
    let (fake, store) = fake();
    store.put("k", body("kept"), &none()).await.unwrap();
    let id = store.create_upload("u", &none()).await.unwrap();
    let part = store.upload_part("u", &id, 1, body("part")).await.unwrap();
    fake.fault("html=201");
    for error in [
        store.put("k", body("x"), &none()).await.map(drop).unwrap_err(),
        store.upload_part("u", &id, 2, body("x")).await.map(drop).unwrap_err(),
        store.complete_upload("u", &id, &[part], &none()).await.map(drop).unwrap_err(),
        store.create_container().await.unwrap_err(),
    ] {
        told(&error, Kind::Corrupt, &["proxy"]);
    }
    fake.faults().clear();
    fake.fault("html=202");
    told(&store.delete("k", None).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.copy("k", "l", &none()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    fake.faults().clear();
    // What is not found by somebody else may well be there.
    fake.fault("html=404");
    told(&store.delete("k", None).await.unwrap_err(), Kind::NotFound, &["web page"]);
    fake.faults().clear();
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "kept");
    assert_eq!(store.stat("u").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn an_answer_of_the_service_without_a_tag_is_no_blob() {
    // The service's own error, which came with status 200.
    const ERROR: &str = "<Error><Code>ServerBusy</Code></Error>";
    let server = Script::start(|_, mut stream| async move {
        while let Some((head, _)) = read_request(&mut stream).await {
            let body = if head.starts_with("HEAD") { "" } else { ERROR };
            let length = ERROR.len();
            let mark = "x-ms-request-id: 1\r\nx-ms-version: 2021-12-02";
            let answer =
                format!("HTTP/1.1 200 OK\r\n{mark}\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let endpoint = format!("http://{}/lake", server.address);
    let account = [("account_name", "lake"), ("account_key", "aGlkZGVu")];
    let options = [&account[..], &[("endpoint", endpoint.as_str())]].concat();
    let store = open_url("az://exam", &options).unwrap();
    told(&store.stat("k").await.unwrap_err(), Kind::Corrupt, &["not from a Blob service"]);
    let error = get(&store, "k", GetRange::All).await.unwrap_err();
    told(&error, Kind::Corrupt, &["not from a Blob service"]);
}

#[tokio::test]
async fn cut_connections_are_worth_another_try() {
    for (fault, op) in [
        ("reset", "PutBlob"),
        ("reset-upload=2", "PutBlob"),
        ("reset", "PutBlock"),
        ("reset", "PutBlockList"),
        ("reset", "ListBlobs"),
        ("reset", "GetBlob"),
        ("cut=3", "GetBlob"),
        ("reset", "GetBlobProperties"),
        ("reset", "DeleteBlob"),
        ("reset", "SubmitBatch"),
        ("reset", "CopyBlob"),
    ] {
        let (fake, store) = fake();
        store.put("there", body("0123456789"), &none()).await.unwrap();
        fake.fault(&format!("{fault},op={op}"));
        if op == "GetBlobProperties" {
            // Where HEAD has no answer a GET may have one.
            fake.fault(&format!("{fault},op=GetBlob"));
        }
        let failed = match op {
            "PutBlob" => store.put("k", body("0123456789"), &none()).await.map(drop),
            "PutBlock" | "PutBlockList" => {
                let id = store.create_upload("k", &none()).await.unwrap();
                match store.upload_part("k", &id, 1, body("x")).await {
                    Ok(part) => store.complete_upload("k", &id, &[part], &none()).await.map(drop),
                    Err(error) => Err(error),
                }
            }
            "ListBlobs" => store.list(ListRequest::default()).await.map(drop),
            "GetBlob" => get(&store, "there", GetRange::All).await.map(drop),
            "GetBlobProperties" => store.stat("there").await.map(drop),
            "DeleteBlob" => store.delete("there", None).await,
            "SubmitBatch" => store.delete_batch(&["a".into(), "b".into()]).await.map(drop),
            _ => store.copy("there", "k", &none()).await.map(drop),
        };
        let error = failed.expect_err(op);
        told(&error, Kind::Unavailable, &[]);
        assert_eq!(error.retry(), Retry::BackOff, "{op}: {error}");
        fake.faults().clear();
        assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound, "{op}");
    }
}

#[tokio::test]
async fn throttling_tells_how_long_to_wait() {
    let (fake, store) = fake();
    fake.fault("status=503,op=GetBlob,retry-after=7");
    let error = get(&store, "k", GetRange::All).await.unwrap_err();
    told(&error, Kind::Throttled, &["503"]);
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
}

#[tokio::test]
async fn missing_container_is_told_apart_from_a_missing_blob() {
    let service = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = service.connection_string();
    let store = open_url("az://missing-here", &[("connection_string", &string)]).unwrap();
    told(&get(&store, "k", GetRange::All).await.unwrap_err(), Kind::NotFound, &["container"]);
    let error = store.list(ListRequest::default()).await.unwrap_err();
    told(&error, Kind::NotFound, &["container"]);
    told(&store.delete("k", None).await.unwrap_err(), Kind::NotFound, &["container"]);
    let (_fake, store) = fake();
    told(&store.stat("k").await.unwrap_err(), Kind::NotFound, &["object does not exist"]);
}

#[tokio::test]
async fn a_blob_replaced_between_two_reads_is_a_conflict() {
    let (fake, store) = fake();
    let etag = store.put("k", body("0123456789"), &none()).await.unwrap().etag;
    fake.fault("replace,op=GetBlob");
    let request = GetRequest { range: bounded(0, 4), if_match: etag, ..Default::default() };
    told(&store.get("k", request).await.unwrap_err(), Kind::Conflict, &[]);
}

#[tokio::test]
async fn conditions_map_to_conflict() {
    let (_fake, store) = fake();
    let options = |condition| PutOptions { condition, ..none() };
    store.put("k", body("1"), &options(WriteCondition::IfAbsent)).await.unwrap();
    let again = store.put("k", body("2"), &options(WriteCondition::IfAbsent)).await;
    told(&again.unwrap_err(), Kind::Conflict, &["409 BlobAlreadyExists"]);
    let stale = options(WriteCondition::IfMatch(ETag("0x1".into())));
    told(&store.put("k", body("2"), &stale).await.unwrap_err(), Kind::Conflict, &["412"]);
    let error = store.delete("k", Some(&ETag("0x1".into()))).await.unwrap_err();
    told(&error, Kind::Conflict, &["412"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "1");
}
