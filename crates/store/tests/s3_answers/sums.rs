//! Services that do not know checksums in headers.

use super::*;

const STATUS: &str = "501 Not Implemented";

/// What a service answers that refuses these headers, by what they begin with.
fn refusing(
    status: &'static str,
    names: &'static [&'static str],
) -> impl Fn(usize, &str) -> String {
    move |_, head| match names.iter().any(|name| head.contains(name)) {
        true => error_xml(status, "NotImplemented", ""),
        false => EMPTY.to_string(),
    }
}

#[tokio::test]
async fn a_write_that_is_refused_for_its_checksum_goes_again_without_and_so_do_the_next() {
    // Some appliances say so under another status.
    for status in [STATUS, "400 Bad Request"] {
        let (store, requests) = bucket(KEY, refusing(status, &["x-amz-checksum-"])).await;
        let options = PutOptions::default();
        let put = || store.put("k", Payload::from(Bytes::from("x")), &options);
        for expected in [2, 3, 4] {
            put().await.unwrap();
            assert_eq!(requests.lock().unwrap().len(), expected, "{status}");
        }
        for (head, body) in &requests.lock().unwrap()[1..] {
            assert!(!head.contains("x-amz-checksum"), "{head}");
            assert_eq!(body, b"x");
        }
    }
}

#[tokio::test]
async fn what_is_refused_without_its_checksum_too_was_not_refused_for_that() {
    let (store, requests) = bucket(KEY, refusing(STATUS, &["x-amz-tagging"])).await;
    let tagged =
        PutOptions { metadata: vec![("@tagging".into(), "a=b".into())], ..PutOptions::default() };
    let put = |options: &PutOptions| {
        let (store, options) = (store.clone(), options.clone());
        async move { store.put("k", Payload::from(Bytes::from("x")), &options).await }
    };
    let error = put(&tagged).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unsupported, Retry::Never), "{error}");
    put(&PutOptions::default()).await.unwrap();
    let heads = requests.lock().unwrap().iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    let sent: Vec<_> = heads.iter().map(|head| head.contains("x-amz-checksum-crc32")).collect();
    assert_eq!(sent, [true, false, true]);
}

/// Bytes that came as others must not go again without what told it.
#[tokio::test]
async fn bytes_that_are_not_what_the_checksum_says_are_an_error() {
    for code in ["BadDigest", "XAmzContentChecksumMismatch"] {
        let (store, requests) = bucket(KEY, move |_, _| {
            let text = format!("<Error><Code>{code}</Code><Message>checksum</Message></Error>");
            xml("400 Bad Request", &text)
        })
        .await;
        let options = PutOptions::default();
        store.put("k", Payload::from(Bytes::from("x")), &options).await.unwrap_err();
        assert_eq!(requests.lock().unwrap().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_read_goes_on_where_checksums_cannot_be_asked_for() {
    for choice in ["auto", "none", "md5", "crc32"] {
        let options = [KEY, &[("checksum", choice)]].concat();
        let (store, requests) = bucket(&options, refusing(STATUS, &["x-amz-checksum-"])).await;
        store.stat("k").await.unwrap();
        get(&*store, GetRange::All).await.unwrap();
        store.stat("k").await.unwrap();
        let asked = |row: &(String, Vec<u8>)| row.0.contains("x-amz-checksum-mode: ENABLED");
        let asked: Vec<_> = requests.lock().unwrap().iter().map(asked).collect();
        assert!(asked[0] && !asked[1..].contains(&true), "{choice}: {asked:?}");
    }
}
