//! Which answers say that a write was done, for each verb that writes.

use crate::common::{Script, read_request};
use crate::support::{body, none, open_url};
use penstock_base::{Kind, Result};
use penstock_store::{
    AzureStore, CopySource, PutOptions, Store as _, StreamingStore as _, UploadId,
};
use tokio::io::AsyncWriteExt as _;

/// Each verb with the one status that says that it was done.
const VERBS: &[(&str, u16)] = &[
    ("put", 201),
    ("part", 201),
    ("complete", 201),
    ("discard", 201),
    ("delete", 202),
    ("copy", 202),
    ("copy_anew", 201),
    ("set_tags", 204),
    ("create_container", 201),
];

async fn carry_out(store: &AzureStore, verb: &str, upload: &UploadId) -> Result<()> {
    let tags = [("a".to_string(), "b".to_string())];
    match verb {
        "put" => store.put("k", body("x"), &none()).await.map(drop),
        "part" => store.upload_part("k", upload, 1, body("x")).await.map(drop),
        "complete" => store.complete_upload("k", upload, &[], &none()).await.map(drop),
        "discard" => store.discard_upload("k", upload).await,
        "delete" => store.delete("k", None).await,
        "copy" => store.copy("l", "k", &none()).await.map(drop),
        "copy_anew" => {
            let source = CopySource { key: "l".into(), range: None, if_match: None };
            let options = PutOptions { content_type: Some("text/csv".into()), ..none() };
            store.copy_version(&source, "k", &options).await.map(drop)
        }
        "set_tags" => store.set_tags("k", &tags).await,
        "create_container" => store.create_container().await,
        other => panic!("no verb {other}"),
    }
}

/// A container whose service answers every request that writes alike, and has no blob.
async fn answering(status: u16, head: &'static str, text: &'static str) -> AzureStore {
    let server = Script::start(move |_, mut stream| async move {
        let mark = "x-ms-request-id: 1\r\nx-ms-copy-status: success\r\nETag: \"0x8D\"";
        let length = format!("Content-Length: {}\r\n", text.len());
        let (length, text) = if status == 204 { ("", "") } else { (length.as_str(), text) };
        let done = format!("HTTP/1.1 {status} Odd\r\n{mark}\r\n{head}{length}\r\n{text}");
        let absent = "HTTP/1.1 404 Not Found\r\nx-ms-error-code: BlobNotFound\r\n\
                      Content-Length: 0\r\n\r\n";
        while let Some((head, _)) = read_request(&mut stream).await {
            let answer = if head.starts_with("HEAD") { absent } else { done.as_str() };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let endpoint = format!("http://{}/lake", server.address);
    let account = [("account_name", "lake"), ("account_key", "aGlkZGVu")];
    let options = [&account[..], &[("endpoint", endpoint.as_str())]].concat();
    open_url("az://exam", &options).unwrap()
}

#[tokio::test]
async fn only_what_the_protocol_answers_says_that_a_write_was_done() {
    for (verb, done) in VERBS {
        for status in [200, 201, 202, 203, 204, 205, 206, 207, 226] {
            let store = answering(status, "", "").await;
            let upload = store.create_upload("k", &none()).await.unwrap();
            let told = carry_out(&store, verb, &upload).await;
            assert_eq!(told.is_ok(), status == *done, "{verb} {status}: {told:?}");
        }
    }
}

#[tokio::test]
async fn an_error_in_an_answer_of_success_is_the_error() {
    const BODY: &str = "<Error><Code>AuthorizationFailure</Code></Error>";
    for (verb, done) in VERBS {
        let named = answering(*done, "x-ms-error-code: AuthorizationFailure\r\n", "").await;
        let mut stores = vec![named];
        if *done != 204 {
            stores.push(answering(*done, "", BODY).await);
        }
        for store in stores {
            let upload = store.create_upload("k", &none()).await.unwrap();
            let error = carry_out(&store, verb, &upload).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{verb}: {error}");
        }
    }
}
