//! A gateway on a directory of its own, and a client that says exactly what a test wants said.

#![allow(dead_code)] // Each test binary uses its own part.

pub mod costs;
pub mod raw;
pub mod sign;

use penstock_base::{Secret, ServeSettings, Settings};
use penstock_gateway::{
    BackendOptions, Gateway, Grant, KeyPair, Notices, Options, Pattern, Reloader, Rights,
};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const ACCESS_KEY: &str = "TESTACCESS";
pub const SECRET_KEY: &str = "test/secret+key";

/// A directory that is removed at the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("penstock-gateway-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("served")).unwrap();
        Dir(path)
    }

    /// The served directory; what lies beside it must stay out of reach.
    pub fn served(&self) -> PathBuf {
        self.0.join("served")
    }

    /// Every file below, as relative paths.
    pub fn files(&self) -> Vec<String> {
        fn walk(path: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(path).unwrap().flatten() {
                if entry.path().is_dir() && !entry.path().is_symlink() {
                    walk(&entry.path(), root, found);
                } else {
                    found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &self.0, &mut found);
        found.sort();
        found
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A running gateway.
pub struct Server {
    pub address: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
    /// What it says to the operator.
    pub notices: Notices,
    pub reloader: Reloader,
    pub dir: Dir,
    pub stop: Option<oneshot::Sender<()>>,
    pub served: JoinHandle<()>,
    /// What lies behind, if it is a server.
    pub fake: Option<FakeHandle>,
}

pub fn options(dir: &Dir) -> Options {
    options_over(BackendOptions::directory(&dir.served()))
}

pub fn options_over(backend: BackendOptions) -> Options {
    Options {
        backends: vec![backend],
        buckets: Vec::new(),
        settings: Settings::default(),
        serve: ServeSettings { drain_seconds: 20, ..serve_settings() },
        keys: vec![KeyPair::new(ACCESS_KEY, Secret::new(SECRET_KEY))],
        public: Vec::new(),
        cors: Vec::new(),
    }
}

/// A key of the same secret that may read, write and list everywhere, and set nothing up.
pub fn key_without_admin(access_key: &str) -> KeyPair {
    let rights = Rights::parse(["read", "write", "list"]).unwrap();
    let grants = vec![Grant { buckets: vec![Pattern::new("*")], rights }];
    KeyPair { grants, ..KeyPair::new(access_key, Secret::new(SECRET_KEY)) }
}

/// The defaults, on free ports of this machine.
pub fn serve_settings() -> ServeSettings {
    let any = "127.0.0.1:0".to_string();
    ServeSettings { listen: any.clone(), admin_listen: any, ..ServeSettings::default() }
}

/// What lies behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Local,
    Memory,
    Azure,
    S3,
    Google,
}

/// The back end of the Azure fake.
pub fn azure(fake: &FakeHandle) -> BackendOptions {
    let options = vec![("connection_string".to_string(), Secret::new(fake.connection_string()))];
    BackendOptions { options, ..remote("az://") }
}

/// The back end of the S3 fake.
pub fn s3(fake: &FakeHandle) -> BackendOptions {
    speaking_s3("s3://", fake)
}

/// Google's XML API, with an HMAC key.
pub fn google(fake: &FakeHandle) -> BackendOptions {
    speaking_s3("gs://", fake)
}

/// The same in Google's own dialect, which goes with a token.
pub fn google_by_token(fake: &FakeHandle, token: &str) -> BackendOptions {
    let mut backend = google(fake);
    backend.options.push(("bearer_token".to_string(), Secret::new(token)));
    backend
}

fn speaking_s3(url: &str, fake: &FakeHandle) -> BackendOptions {
    let pairs = [
        ("endpoint", fake.endpoint()),
        ("key_id", "test".to_string()),
        ("secret", "test".to_string()),
        ("region", "us-east-1".to_string()),
        ("url_style", "path".to_string()),
    ];
    let options = pairs.map(|(name, value)| (name.to_string(), Secret::new(value))).to_vec();
    BackendOptions { options, ..remote(url) }
}

fn remote(url: &str) -> BackendOptions {
    let name = "back".to_string();
    BackendOptions { name, url: url.to_string(), is_dynamic: true, ..Default::default() }
}

/// Makes one test of each of these for every back end: they are functions of a [`Lane`]. Those
/// behind `but_google` are about what Google has not, which `google.rs` holds it to.
#[macro_export]
macro_rules! on_every_lane {
    ($($name:ident),* $(,)?) => {
        $crate::on_every_lane!($($name),*; but_google: );
    };
    ($($name:ident),* $(,)?; but_google: $($other:ident),* $(,)?) => {
        $crate::on_lane!(local, Local: $($name,)* $($other),*);
        $crate::on_lane!(memory, Memory: $($name,)* $($other),*);
        $crate::on_lane!(azure, Azure: $($name,)* $($other),*);
        $crate::on_lane!(s3, S3: $($name,)* $($other),*);
        $crate::on_lane!(google, Google: $($name),*);
    };
}

/// The same for one back end.
#[macro_export]
macro_rules! on_lane {
    ($module:ident, $lane:ident: $($name:ident),* $(,)?) => {
        mod $module {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::common::Lane::$lane).await;
            })*
        }
    };
}

impl Server {
    /// With a bucket `lake`.
    pub async fn start() -> Self {
        let dir = Dir::new();
        let options = options(&dir);
        Self::start_with(dir, options).await
    }

    pub async fn start_with(dir: Dir, options: Options) -> Self {
        std::fs::create_dir_all(dir.served().join("lake")).unwrap();
        let notices = Notices::kept();
        let gateway = Gateway::bind_saying(options, notices.clone()).await.unwrap();
        let (address, admin) = (gateway.address(), gateway.admin_address().unwrap());
        let reloader = gateway.reloader();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let shutdown = async {
                stopped.await.ok();
            };
            gateway.serve(shutdown).await.unwrap();
        });
        let stop = Some(stop);
        Server { address, admin, notices, reloader, dir, stop, served, fake: None }
    }

    /// On a back end, with a bucket `lake`.
    pub async fn on(lane: Lane) -> Self {
        Self::on_with(lane, |_| {}).await
    }

    /// The same, with other options.
    pub async fn on_with(lane: Lane, change: impl FnOnce(&mut Options)) -> Self {
        let fake = match lane {
            Lane::Local => {
                let dir = Dir::new();
                let mut options = options(&dir);
                change(&mut options);
                return Self::start_with(dir, options).await;
            }
            Lane::Memory => None,
            Lane::Azure => Some(FakeAzure::start(FakeOptions::azure()).unwrap()),
            Lane::S3 => {
                let options = FakeOptions { digests: true, ..FakeOptions::s3() };
                Some(FakeS3::start(options).unwrap())
            }
            Lane::Google => {
                let options = FakeOptions { digests: true, ..FakeOptions::google() };
                Some(FakeS3::start(options).unwrap())
            }
        };
        let backend = match (&fake, lane) {
            (Some(fake), Lane::Azure) => azure(fake),
            (Some(fake), Lane::Google) => google(fake),
            (Some(fake), _) => s3(fake),
            (None, _) => remote("mem://"),
        };
        let mut options = options_over(backend);
        change(&mut options);
        let server = Server { fake, ..Self::start_with(Dir::new(), options).await };
        let made =
            server.send(Request { method: "PUT", path: "/lake", ..Default::default() }).await;
        assert_eq!(made.status, 200, "{}", made.text());
        server
    }

    /// Requests that the back end has served.
    pub fn backend_requests(&self) -> u64 {
        self.fake.as_ref().unwrap().stats().requests
    }

    /// Signs and sends; the path is written to the wire as it is.
    pub async fn send(&self, request: Request<'_>) -> Answer {
        self.send_as(ACCESS_KEY, request).await
    }

    /// As another key with the same secret.
    pub async fn send_as(&self, access_key: &str, request: Request<'_>) -> Answer {
        let bytes = sign::signed(&request, &self.address.to_string(), SECRET_KEY, access_key);
        self.send_raw(&bytes).await
    }

    /// Sends these bytes on a connection of their own and reads one answer.
    pub async fn send_raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses early may close before everything is sent.
        stream.write_all(bytes).await.ok();
        let head_only = bytes.starts_with(b"HEAD ");
        read_answer(&mut stream, head_only).await
    }

    /// A page of the admin port.
    pub async fn admin_page(&self, path: &str) -> Answer {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: admin\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        read_answer(&mut stream, false).await
    }

    pub async fn put(&self, path: &str, body: &[u8]) -> Answer {
        self.send(Request { method: "PUT", path, body, ..Default::default() }).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request { path, ..Default::default() }).await
    }

    /// Sends a request that nobody signs.
    pub async fn unsigned(&self, request: Request<'_>) -> Answer {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: h\r\n", request.method, request.path);
        for (name, value) in request.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", request.body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(request.body);
        self.send_raw(&bytes).await
    }
}

/// What to ask.
#[derive(Clone)]
pub struct Request<'a> {
    pub method: &'a str,
    /// With the query, if any.
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// What to claim as x-amz-content-sha256; the true digest when `None`.
    pub content_sha256: Option<&'a str>,
    /// Shifts the clock of the signature.
    pub clock_offset_s: i64,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request {
            method: "GET",
            path: "/",
            headers: &[],
            body: b"",
            content_sha256: None,
            clock_offset_s: 0,
        }
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The S3 error code, or the empty string.
    pub fn code(&self) -> String {
        let text = self.text();
        let after = text.split_once("<Code>").map_or("", |(_, rest)| rest);
        after.split_once("</Code>").map_or("", |(code, _)| code).to_string()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A body in chunks, of which some bytes are here (RFC 9112, section 7.1).
async fn read_chunks(stream: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> Vec<u8> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n");
        let size = line.map(|end| {
            let size = std::str::from_utf8(&bytes[at..at + end]).unwrap();
            (at + end + 2, usize::from_str_radix(size, 16).unwrap())
        });
        match size {
            Some((from, size)) if bytes.len() >= from + size + 2 => {
                body.extend_from_slice(&bytes[from..from + size]);
                at = from + size + 2;
                if size == 0 {
                    return body;
                }
            }
            _ => {
                let read = stream.read_buf(&mut bytes).await.unwrap();
                assert!(read > 0, "chunks cut off: {:?}", String::from_utf8_lossy(&bytes));
            }
        }
    }
}

pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin), head_only: bool) -> Answer {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.unwrap();
        assert!(read > 0, "closed before an answer: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&chunk[..read]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        .collect();
    let mut body = bytes.split_off(end);
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        body = read_chunks(stream, body).await;
    } else if !head_only && status != 304 && status != 204 {
        let len: usize =
            headers.get("content-length").map(|value| value.parse().unwrap()).unwrap_or(0);
        while body.len() < len {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).await.unwrap();
            assert!(read > 0, "body cut at {} of {len}", body.len());
            body.extend_from_slice(&chunk[..read]);
        }
    }
    Answer { status, headers, body }
}
