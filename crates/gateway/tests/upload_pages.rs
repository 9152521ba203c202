//! Pages of ListMultipartUploads: every upload once, and no more asked for than a page needs.

use crate::common::{Lane, Request, Server};

const UPLOADS: usize = 40;

on_every_lane!(pages_of_any_size_show_every_upload_once);

fn fields(text: &str, name: &str) -> Vec<String> {
    let open = format!("<{name}>");
    text.split(&open).skip(1).map(|rest| rest.split('<').next().unwrap().to_string()).collect()
}

/// An upload with one part to each key, two to the last.
async fn begin(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> =
        (0..UPLOADS).map(|number| format!("d{}/k{number:02}", number % 3)).collect();
    keys.push(keys[UPLOADS - 1].clone());
    for key in &keys {
        let path = format!("/lake/{key}?uploads");
        let begun = Request { method: "POST", path: &path, ..Default::default() };
        let id = fields(&server.send(begun).await.text(), "UploadId").remove(0);
        let part = server.put(&format!("/lake/{key}?partNumber=1&uploadId={id}"), b"part").await;
        assert_eq!(part.status, 200, "{}", part.text());
    }
    keys.sort();
    keys
}

async fn pages_of_any_size_show_every_upload_once(lane: Lane) {
    let server = Server::on(lane).await;
    let keys = begin(&server).await;
    for max in [1, 7, 1000] {
        let (mut seen, mut marker) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/lake?uploads&max-uploads={max}{marker}")).await.text();
            seen.extend(fields(&page, "Key"));
            if fields(&page, "IsTruncated") != ["true"] {
                break;
            }
            let key = fields(&page, "NextKeyMarker").remove(0);
            let id = fields(&page, "NextUploadIdMarker").remove(0);
            marker = format!("&key-marker={}&upload-id-marker={id}", key.replace('/', "%2F"));
            assert!(seen.len() <= keys.len(), "{max}: the pages have no end");
        }
        assert_eq!(seen, keys, "{max}");
    }
    let folded = server.get("/lake?uploads&delimiter=%2F&max-uploads=2").await.text();
    assert_eq!(fields(&folded, "Prefix").join(" ").trim(), "d0/ d1/", "{folded}");
    let rest = server.get("/lake?uploads&delimiter=%2F&key-marker=d1%2F").await.text();
    assert_eq!(fields(&rest, "Prefix").join(" ").trim(), "d2/", "{rest}");
}

/// One listing, and as many looks at blobs as are wanted and under way at once.
#[tokio::test]
async fn a_page_on_azure_looks_at_no_more_than_it_needs() {
    let server = Server::on(Lane::Azure).await;
    begin(&server).await;
    let fake = server.fake.as_ref().unwrap();
    fake.reset_stats();
    let page = server.get("/lake?uploads&max-uploads=3&key-marker=d0%2Fk03").await.text();
    assert_eq!(fields(&page, "Key").len(), 3, "{page}");
    let asked: Vec<&str> = fake.requests().into_iter().map(|it| it.operation).collect();
    let looks = asked.iter().filter(|name| **name == "GetBlockList").count();
    assert!((4..=20).contains(&looks), "{looks} looks for a page of 3: {asked:?}");
    assert_eq!(asked.iter().filter(|name| **name == "ListBlobs").count(), 1, "{asked:?}");
}
