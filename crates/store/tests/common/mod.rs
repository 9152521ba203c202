//! A server that plays a script, and an observer that keeps what it hears.
#![allow(dead_code)] // each test binary uses its own part
#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use penstock_store::{HttpClient, HttpOptions, HttpResponse, Observer, Payload, RequestEvent};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Of a store that signs.
pub const KEY: &[(&str, &str)] = &[("key_id", "AKIA"), ("secret", "hunter2")];

/// An answer with a document.
pub fn xml(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Keeps every event, whether connections could be opened early, and how many requests began to
/// wait for one, and ended.
#[derive(Debug, Default)]
pub struct Heard(pub Mutex<Vec<RequestEvent>>, pub Mutex<Vec<bool>>, pub Mutex<(usize, usize)>);

impl Observer for Heard {
    fn request_finished(&self, event: RequestEvent) {
        self.0.lock().unwrap().push(event);
    }

    fn connection_warmed(&self, is_open: bool) {
        self.1.lock().unwrap().push(is_open);
    }

    fn wait_begins(&self) {
        self.2.lock().unwrap().0 += 1;
    }

    fn wait_ended(&self, _after: Duration) {
        self.2.lock().unwrap().1 += 1;
    }
}

impl Heard {
    pub fn events(&self) -> Vec<RequestEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Of each request, whether it opened its own connection.
    pub fn opened(&self) -> Vec<bool> {
        self.events().iter().map(|event| event.new_connection).collect()
    }

    /// Waits for a connection that began, and that ended.
    pub fn waits(&self) -> (usize, usize) {
        *self.2.lock().unwrap()
    }

    pub fn warmed(&self) -> Vec<bool> {
        self.1.lock().unwrap().clone()
    }
}

pub fn client_with(options: HttpOptions) -> (HttpClient, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    (HttpClient::new(options, heard.clone()).unwrap(), heard)
}

pub fn client() -> (HttpClient, Arc<Heard>) {
    client_with(HttpOptions::default())
}

pub fn request(method: &str, url: &str) -> Parts {
    Request::builder().method(method).uri(url).body(()).unwrap().into_parts().0
}

pub async fn get(client: &HttpClient, url: &str) -> penstock_base::Result<HttpResponse> {
    client.send(request("GET", url), Payload::default()).await
}

pub async fn get_all(client: &HttpClient, url: &str) -> penstock_base::Result<Bytes> {
    get(client, url).await?.body.read_to_bytes(1 << 24).await
}

/// A server of one test.
pub struct Script {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicUsize>,
}

impl Script {
    /// Plays `play(n, connection)` for the n-th connection, from 0.
    pub async fn start<F>(play: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Script
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(play(count.fetch_add(1, Ordering::SeqCst), stream));
            }
        });
        Script { address, accepted }
    }

    /// Answers every request of every connection with these bytes.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Script {
        let answer: Arc<[u8]> = answer.into().into();
        Script::start(move |_, mut stream| {
            let answer = answer.clone();
            async move {
                while read_request(&mut stream).await.is_some() {
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A request's head and body; `None` when the connection ended.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

/// Writes one byte at a time, each in a segment of its own.
pub async fn trickle(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).await.is_err() {
            return;
        }
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
}
