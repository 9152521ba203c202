//! The HTTP client against servers that play scripts, good and bad.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::{Script, client, client_with, get, get_all, read_request, request, trickle};
use futures_util::FutureExt as _;
use penstock_base::{Kind, Retry};
use penstock_store::{HttpOptions, Payload};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TEXT: &str = "the quick brown fox";

fn framings() -> Vec<(&'static str, String)> {
    vec![
        ("length", format!("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{TEXT}")),
        (
            "chunked",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nthe \r\n0F\r\n\
             quick brown fox\r\n0\r\nTrailer: t\r\n\r\n"
                .to_string(),
        ),
        ("close", format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{TEXT}")),
        (
            "after 1xx",
            format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{TEXT}"
            ),
        ),
    ]
}

#[tokio::test]
async fn every_framing_gives_the_same_bytes_however_they_arrive() {
    for (name, answer) in framings() {
        for bytewise in [false, true] {
            let answer = answer.clone().into_bytes();
            let server = Script::start(move |_, mut stream| {
                let answer = answer.clone();
                async move {
                    while read_request(&mut stream).await.is_some() {
                        match bytewise {
                            true => trickle(&mut stream, &answer).await,
                            false => stream.write_all(&answer).await.unwrap(),
                        }
                        if answer.windows(5).any(|word| word == b"close") {
                            return;
                        }
                    }
                }
            })
            .await;
            let (client, _) = client();
            for _ in 0..2 {
                let body = get_all(&client, &server.url("/x")).await.unwrap();
                assert_eq!(body, TEXT, "{name}, byte by byte: {bytewise}");
            }
            let expected = if name == "close" { 2 } else { 1 };
            assert_eq!(server.connections(), expected, "{name}, byte by byte: {bytewise}");
        }
    }
}

#[tokio::test]
async fn answers_without_body_keep_the_connection() {
    for (method, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let server = Script::answering(answer).await;
        let (client, heard) = client();
        for _ in 0..2 {
            let sent = client.send(request(method, &server.url("/")), Payload::default());
            let mut answer = sent.await.unwrap();
            assert!(answer.body.read_to_bytes(10).await.unwrap().is_empty());
        }
        assert_eq!(server.connections(), 1, "{method} {answer}");
        let events = heard.events();
        let opened: Vec<bool> = events.iter().map(|event| event.new_connection).collect();
        assert_eq!(opened, [true, false]);
    }
}

#[tokio::test]
async fn truncated_body_is_corrupt_and_names_the_object() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n",
    ] {
        let server = Script::start(move |_, mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let (client, heard) = client();
        let response = get(&client, &server.url("/")).await.unwrap();
        let mut body = response.body.named("s3://b/k");
        let error = body.read_to_bytes(1000).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::BackOff));
        assert_eq!(error.object(), Some("s3://b/k"));
        assert!(!heard.events()[0].error.is_empty());
    }
}

#[tokio::test]
async fn garbage_is_corrupt_with_a_hint() {
    for answer in ["SSH-2.0-OpenSSH_9\r\n", "<html>proxy</html>", "HTTP/2 200\r\n\r\n"] {
        let server = Script::answering(answer).await;
        let (client, _) = client();
        let error = get(&client, &server.url("/")).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly), "{answer}");
        assert!(error.hint().unwrap().contains("Is this a proxy"), "{error}");
    }
}

/// PostgreSQL, for one, hangs up on what it does not understand. A store that has answered before
/// is given the whole deadline.
#[tokio::test]
async fn a_server_that_only_hangs_up_is_no_store_and_one_that_answered_is() {
    let server = Script::start(|turn, mut stream| async move {
        read_request(&mut stream).await;
        if turn == 1 {
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let (client, _) = client();
    let error = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Briefly), "{error}");
    assert!(error.hint().unwrap().contains("is it the store's port"), "{error}");
    get(&client, &server.url("/")).await.unwrap();
    let error = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::BackOff), "{error}");
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_tried_briefly() {
    let (client, _) = client();
    let error = get(&client, "http://no-such-host.invalid/").await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Briefly), "{error}");
    assert!(error.to_string().contains("`no-such-host.invalid` cannot be resolved"), "{error}");
}

#[tokio::test]
async fn endless_head_is_refused() {
    let server = Script::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(b"X-Header: 0123456789\r\n").await.is_ok() {}
    })
    .await;
    let (client, _) = client();
    let error = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn dead_kept_connection_is_replaced_where_that_is_safe() {
    // The first connection serves one request, reads the second and hangs up without an answer.
    let server = Script::start(|index, mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(EMPTY).await.unwrap();
        if index > 0 {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(EMPTY).await.unwrap();
            }
        } else {
            read_request(&mut stream).await;
        }
    });
    let server = server.await;
    let (client, _) = client();
    get_all(&client, &server.url("/1")).await.unwrap();
    let sent = client.send(request("PUT", &server.url("/2")), Payload::from(Bytes::from("x")));
    assert_eq!(sent.await.unwrap().status, 200);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn unsafe_request_on_a_dead_connection_is_told_not_repeated() {
    let condition = |mut parts: http::request::Parts| {
        parts.headers.insert("if-none-match", "*".parse().unwrap());
        parts
    };
    for conditional in [false, true] {
        let server = Script::start(|_, mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(EMPTY).await.unwrap();
            read_request(&mut stream).await;
        })
        .await;
        let (client, _) = client();
        get_all(&client, &server.url("/1")).await.unwrap();
        let parts = match conditional {
            true => condition(request("PUT", &server.url("/2"))),
            false => request("POST", &server.url("/2")),
        };
        let error = client.send(parts, Payload::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::BackOff));
        assert!(error.to_string().contains("kept connection"), "{error}");
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn connection_closed_while_idle_is_noticed_before_use() {
    let (closed, mut is_closed) = tokio::sync::mpsc::channel::<()>(1);
    let server = Script::start(move |_, mut stream| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(EMPTY).await.unwrap();
            stream.shutdown().await.unwrap();
            closed.send(()).await.unwrap();
        }
    })
    .await;
    let (client, _) = client();
    get_all(&client, &server.url("/1")).await.unwrap();
    is_closed.recv().await.unwrap();
    // Not even a request that must not be repeated fails.
    let sent = client.send(request("POST", &server.url("/2")), Payload::default()).await;
    assert_eq!(sent.unwrap().status, 200);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn answer_before_the_body_was_sent_is_read() {
    let server = Script::start(|_, mut stream| async move {
        let mut some = vec![0; 1000];
        stream.read_exact(&mut some).await.unwrap();
        let answer = b"HTTP/1.1 503 Slow Down\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nslow";
        stream.write_all(answer).await.unwrap();
        // Closing with unread bytes would reset the connection under the answer.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let (client, _) = client();
    let payload = Payload::from(Bytes::from(vec![7; 64 << 20]));
    let mut answer = client.send(request("PUT", &server.url("/")), payload).await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body.read_to_bytes(100).await.unwrap(), "slow");
    // The request was cut short, so its connection cannot carry another.
    let parts = request("PUT", &server.url("/"));
    let payload = Payload::from(Bytes::from(vec![7; 2000]));
    assert_eq!(client.send(parts, payload).await.unwrap().status, 503);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn payload_goes_out_in_order_from_many_pieces() {
    let server = Script::start(|_, mut stream| async move {
        while let Some((_, body)) = read_request(&mut stream).await {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&body).await.unwrap();
        }
    })
    .await;
    let (client, heard) = client();
    let pieces: Vec<Bytes> = (0..100u8).map(|n| vec![n; usize::from(n) * 97].into()).collect();
    let whole: Vec<u8> = pieces.concat();
    let sent = client.send(request("PUT", &server.url("/")), Payload(pieces)).await.unwrap();
    let mut body = sent.body;
    assert_eq!(body.read_to_bytes(1 << 20).await.unwrap(), whole);
    let event = &heard.events()[0];
    assert_eq!((event.sent_bytes, event.received_bytes), (whole.len() as u64, whole.len() as u64));
}

#[tokio::test]
async fn stall_ends_the_wait_for_head_and_body() {
    let (client, _) = client_with(HttpOptions {
        stall_timeout: Duration::from_millis(50),
        ..HttpOptions::default()
    });
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"] {
        let server = Script::answering(answer).await;
        let error = get_all(&client, &server.url("/")).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::BackOff));
        assert!(error.hint().unwrap().contains("stall_timeout_ms"), "{error}");
    }
}

#[tokio::test]
async fn refused_connection_says_where() {
    let (client, heard) = client();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = get(&client, &format!("http://{address}/k?sig=secret")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Briefly));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let event = &heard.events()[0];
    assert_eq!((event.status, event.url.contains("secret")), (0, false), "{event:?}");
}

#[tokio::test]
async fn refused_proxy_is_called_one_and_says_who_named_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut settings = penstock_base::Settings::default();
    settings.set("http_proxy", &format!("http://u:hunter2@{address}")).unwrap();
    let (client, _) = client_with(HttpOptions::from_settings(&settings).unwrap());
    for scheme in ["http", "https"] {
        let error = get(&client, &format!("{scheme}://store.example/k")).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("no connection to the proxy 127.0.0.1"), "{told}");
        assert!(told.contains("comes from penstock_http_proxy"), "{told}");
        assert!(!format!("{told} {error:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn dropped_body_gives_the_connection_back_only_if_little_is_left() {
    for (length, connections) in [(1000, 1), (10_000_000, 2)] {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + length, b'x');
        let server = Script::answering(answer).await;
        let (client, heard) = client();
        let mut response = get(&client, &server.url("/")).await.unwrap();
        let mut some = [0; 900];
        response.body.read_exact(&mut some).await.unwrap();
        drop(response);
        let mut response = get(&client, &server.url("/")).await.unwrap();
        response.body.read_exact(&mut some).await.unwrap();
        assert_eq!(server.connections(), connections, "{length}");
        assert_eq!(heard.events().len(), 1);
    }
}

#[tokio::test]
async fn body_may_be_dropped_on_a_thread_without_runtime() {
    let (go_on, mut may_go_on) = tokio::sync::mpsc::channel::<()>(1);
    let server = Script::start(move |_, mut stream| {
        let go_on = go_on.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
            go_on.closed().await;
        }
    })
    .await;
    let (client, heard) = client();
    let response = get(&client, &server.url("/")).await.unwrap();
    std::thread::spawn(move || drop(response)).join().unwrap();
    may_go_on.close();
    assert!(!heard.events()[0].error.is_empty());
}

#[tokio::test]
async fn connections_of_one_host_are_limited_and_given_in_order() {
    let server = Script::answering(EMPTY).await;
    let (client, _) =
        client_with(HttpOptions { connections_per_host: 2, ..HttpOptions::default() });
    let requests = (0..50).map(|n| {
        let (client, url) = (client.clone(), server.url(&format!("/{n}")));
        tokio::spawn(async move { get_all(&client, &url).await.unwrap() })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.unwrap();
    }
    assert!(server.connections() <= 2);
}

#[tokio::test]
async fn held_connections_make_others_wait_but_not_for_ever() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 10_000_000, b'x');
    let server = Script::answering(answer).await;
    let (client, heard) = client_with(HttpOptions {
        connections_per_host: 1,
        stall_timeout: Duration::from_millis(20),
        ..HttpOptions::default()
    });
    let held = get(&client, &server.url("/")).await.unwrap();
    assert_eq!(heard.waits(), (0, 0), "it found one at once");
    let error = get(&client, &server.url("/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted);
    assert!(error.hint().unwrap().contains("connections_per_host"), "{error}");
    assert_eq!(heard.waits(), (1, 1), "it was given up");
    let url = server.url("/");
    let mut next = std::pin::pin!(get(&client, &url));
    assert!(next.as_mut().now_or_never().is_none());
    assert_eq!(heard.waits(), (2, 1));
    drop(held);
    next.await.unwrap();
    assert_eq!(heard.waits(), (2, 2));
    get(&client, &server.url("/")).await.unwrap();
    assert_eq!(heard.waits(), (2, 2));
}

#[tokio::test]
async fn dropped_request_leaves_no_trace_on_the_next() {
    // The first request is never answered; its future is dropped while it waits.
    let server = Script::start(|index, mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            if index > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            }
        }
    })
    .await;
    let (client, heard) = client();
    let url = server.url("/");
    let waiting = tokio::time::timeout(Duration::from_millis(20), get(&client, &url));
    assert!(waiting.await.is_err());
    assert_eq!(heard.events()[0].error, "cancelled");
    assert_eq!(get_all(&client, &server.url("/")).await.unwrap(), "ok");
}
