//! Which answers say that a write was done, for each verb that writes, in Amazon's and in Google's
//! dialect.

use super::common::{KEY, Script, client};
use bytes::Bytes;
use penstock_base::{Kind, Result};
use penstock_store::{
    Inflow, Part, Payload, PutOptions, S3Store, Store as _, StoreOptions, StreamingStore as _,
    UploadId,
};
use std::task::{Context, Poll};

#[derive(Debug)]
struct Piece(Option<Bytes>);

impl Inflow for Piece {
    fn size_bytes(&self) -> u64 {
        1
    }

    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

const UPLOAD: &str = "<InitiateMultipartUploadResult><UploadId>u</UploadId>\
                      </InitiateMultipartUploadResult>";
const COMPLETED: &str = "<CompleteMultipartUploadResult><ETag>e</ETag>\
                         </CompleteMultipartUploadResult>";
const COPIED: &str = "<CopyObjectResult><ETag>e</ETag></CopyObjectResult>";
const REMOVED: &str = "<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>";

const MADE: &[u16] = &[200, 201, 204];
const GONE: &[u16] = &[200, 204];
const TOLD: &[u16] = &[200];

/// A verb, the statuses that say that it was done, and the document that it needs.
type Verb = (&'static str, &'static [u16], &'static str);

const VERBS: &[Verb] = &[
    ("put", MADE, ""),
    ("put_flow", MADE, ""),
    ("part", MADE, ""),
    ("part_flow", MADE, ""),
    ("create", TOLD, UPLOAD),
    ("complete", TOLD, COMPLETED),
    ("copy", &[200, 201], COPIED),
    ("delete", GONE, ""),
    ("abort", GONE, ""),
    ("discard", GONE, ""),
    ("delete_batch", TOLD, REMOVED),
    ("set_tags", MADE, ""),
    ("remove_tags", GONE, ""),
    ("set_versioning", MADE, ""),
];

async fn carry_out(store: &S3Store, verb: &str) -> Result<()> {
    let (options, upload) = (PutOptions::default(), UploadId("u".into()));
    let payload = || Payload::from(Bytes::from_static(b"x"));
    let flow = || Box::new(Piece(Some(Bytes::from_static(b"x"))));
    let part = [Part { number: 1, etag: "e".into(), size_bytes: 1 }];
    let tags = [("a".to_string(), "b".to_string())];
    match verb {
        "put" => store.put("k", payload(), &options).await.map(drop),
        "put_flow" => store.put_flow("k", flow(), &options).await.map(drop),
        "part" => store.upload_part("k", &upload, 1, payload()).await.map(drop),
        "part_flow" => store.part_flow("k", &upload, 1, flow()).await.map(drop),
        "create" => store.create_upload("k", &options).await.map(drop),
        "complete" => store.complete_upload("k", &upload, &part, &options).await.map(drop),
        "copy" => store.copy("l", "k", &options).await.map(drop),
        "delete" => store.delete("k", None).await,
        "abort" => store.abort_upload("k", &upload).await,
        "discard" => store.discard_upload("k", &upload).await,
        "delete_batch" => store.delete_batch(&["k".into()]).await?.remove(0),
        "set_tags" => store.set_tags("k", &tags).await,
        "remove_tags" => store.set_tags("k", &[]).await,
        "set_versioning" => store.set_versioning(true).await,
        other => panic!("no verb {other}"),
    }
}

/// A bucket whose service answers every request alike.
async fn answering(scheme: &str, status: u16, body: &str) -> S3Store {
    let length = format!("Content-Length: {}\r\n", body.len());
    let (length, body) = if status == 204 { ("", "") } else { (length.as_str(), body) };
    let answer = format!("HTTP/1.1 {status} Odd\r\nETag: \"e\"\r\n{length}\r\n{body}");
    let endpoint = Script::answering(answer).await.address.to_string();
    let mut pairs = vec![("endpoint", endpoint.as_str()), ("use_ssl", "false")];
    pairs.extend(KEY);
    S3Store::open(scheme, "bucket", &StoreOptions::new(pairs).unwrap(), &client().0).unwrap()
}

/// The verbs that a service has. Google removes many objects one by one, and has no tags.
fn verbs(scheme: &str) -> Vec<&'static Verb> {
    let absent = ["delete_batch", "set_tags", "remove_tags"];
    VERBS.iter().filter(|(verb, ..)| scheme != "gs" || !absent.contains(verb)).collect()
}

#[tokio::test]
async fn only_what_the_protocol_answers_says_that_a_write_was_done() {
    for scheme in ["s3", "gs"] {
        for (verb, done, document) in verbs(scheme) {
            for status in [200, 201, 202, 203, 204, 205, 206, 207, 226] {
                let store = answering(scheme, status, document).await;
                let told = carry_out(&store, verb).await;
                let is_done = done.contains(&status);
                assert_eq!(told.is_ok(), is_done, "{scheme} {verb} {status}: {told:?}");
                if let Some(error) = told.err().filter(|_| !MADE.contains(&status)) {
                    assert_eq!(error.http_status(), Some(status), "{scheme} {verb}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_error_in_an_answer_of_success_is_the_error() {
    const ERROR: &str = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
    for scheme in ["s3", "gs"] {
        for (verb, done, _) in verbs(scheme) {
            for status in done.iter().filter(|status| **status != 204) {
                let store = answering(scheme, *status, ERROR).await;
                let error = carry_out(&store, verb).await.unwrap_err();
                assert_eq!(error.kind(), Kind::Denied, "{scheme} {verb} {status}: {error}");
            }
        }
    }
}
