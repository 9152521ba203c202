//! Back ends whose listings are not what they were asked for: nothing of those is shown.

use crate::common::{Dir, Server, options_over};
use penstock_base::Secret;
use penstock_gateway::{BackendOptions, BucketOptions};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "other-team/secret";

/// The answer of a service that passes over `prefix`.
fn listing(query: &str) -> String {
    let entry = format!("<Key>{SECRET}</Key><Size>1</Size>");
    if query.contains("uploads") {
        let upload = format!("<Upload><Key>{SECRET}</Key><UploadId>1</UploadId></Upload>");
        format!("<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>")
    } else if query.contains("versions") {
        let version = format!("<Version>{entry}<VersionId>1</VersionId></Version>");
        format!("<ListVersionsResult>{version}</ListVersionsResult>")
    } else {
        format!("<ListBucketResult><Contents>{entry}</Contents></ListBucketResult>")
    }
}

async fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap() == 0 {
            return;
        }
    }
    let line = String::from_utf8_lossy(&head);
    let body = listing(line.lines().next().unwrap());
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/xml\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

async fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream));
        }
    });
    address
}

/// A gateway with the bucket `lake`, which is a prefix of a container of that service.
async fn gateway(service: SocketAddr) -> Server {
    let pairs = [
        ("endpoint", format!("http://{service}")),
        ("key_id", "test".to_string()),
        ("secret", "test".to_string()),
        ("region", "us-east-1".to_string()),
        ("url_style", "path".to_string()),
    ];
    let pairs = pairs.map(|(name, value)| (name.to_string(), Secret::new(value))).to_vec();
    let (name, url) = ("back".to_string(), "s3://".to_string());
    let backend = BackendOptions { name, url, options: pairs, ..Default::default() };
    let bucket = BucketOptions {
        name: "lake".into(),
        backend: "back".into(),
        container: Some("raw".into()),
        prefix: "team/".into(),
        ..Default::default()
    };
    let mut options = options_over(backend);
    options.buckets = vec![bucket];
    Server::start_with(Dir::new(), options).await
}

#[tokio::test]
async fn names_from_elsewhere_are_an_error_that_does_not_tell_them() {
    let server = gateway(service().await).await;
    for path in ["/lake?list-type=2", "/lake", "/lake?uploads", "/lake?versions"] {
        let answer = server.get(path).await;
        let text = answer.text();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (500, "InternalError"),
            "{path} {text}"
        );
        assert!(text.contains("does not begin with the prefix asked for"), "{path} {text}");
        assert!(!text.contains(SECRET) && !text.contains("raw"), "{path} {text}");
    }
}
