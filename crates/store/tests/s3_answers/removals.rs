//! Removals of one version at services that do not compare.

use super::*;

/// A service whose object has the tag `"other"`, and that removes whatever is there.
fn heedless(_: usize, head: &str) -> String {
    match head.starts_with("HEAD") {
        true => "HTTP/1.1 200 OK\r\nETag: \"other\"\r\nContent-Length: 1\r\n\r\n".to_string(),
        false => "HTTP/1.1 204 No Content\r\n\r\n".to_string(),
    }
}

#[tokio::test]
async fn what_somebody_else_wrote_is_not_removed_where_the_service_would() {
    let (store, requests) = bucket(KEY, heedless).await;
    let error = store.delete("k", Some(&ETag("ours".into()))).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Conflict, Retry::Never), "{error}");
    store.delete("k", Some(&ETag("other".into()))).await.unwrap();
    store.delete("k", None).await.unwrap();
    let requests = requests.lock().unwrap();
    let heads = requests.iter().map(|(head, _)| head.split('/').next().unwrap().trim());
    assert_eq!(heads.collect::<Vec<_>>(), ["HEAD", "HEAD", "DELETE", "DELETE"]);
}

#[tokio::test]
async fn what_a_filter_on_the_way_says_of_a_removal_is_no_removal() {
    for (status, body, is_removed) in [
        ("200 OK", "{\"blocked\": true}", false),
        ("200 OK", "blocked", false),
        ("200 OK", "<html><body>blocked</body></html>", false),
        ("200 OK", "<Error><Code>AccessDenied</Code></Error>", false),
        ("200 OK", "", true),
        ("200 OK", "\r\n", true),
        ("204 No Content", "", true),
    ] {
        let length = format!("Content-Length: {}\r\n", body.len());
        let length = if status.starts_with("204") { String::new() } else { length };
        let answer = format!("HTTP/1.1 {status}\r\n{length}\r\n{body}");
        let (store, _) = bucket(KEY, move |_, _| answer.clone()).await;
        assert_eq!(store.delete("k", None).await.is_ok(), is_removed, "{status} {body}");
    }
}
