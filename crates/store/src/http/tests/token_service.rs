//! A server that plays token services, and contexts that lead to it. For tests.

use crate::http::credential_context;
use crate::{HttpClient, HttpOptions, Observer, RequestEvent};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use reqsign_core::{Context, HttpSend, StaticEnv};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

/// A running service.
pub(crate) struct TokenService {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl TokenService {
    /// `answer` makes status and body from a request, head and body in one text.
    pub async fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let request = read_request(&mut socket).await;
                let (status, body) = answer(&request);
                log.lock().unwrap().push(request);
                let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length:");
                let answer = format!("{head} {}\r\n\r\n{body}", body.len());
                // A client that gave up does not hear it.
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        TokenService { url, seen }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_string();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

/// The world of the signing crates with this home directory and these variables. Requests to fixed
/// addresses go to `service` too, with the host they were meant for in the header `x-meant-for`.
pub(crate) fn context(
    service: Option<&TokenService>,
    home: Option<&Path>,
    variables: &[(&str, &str)],
) -> Context {
    let http = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
    let inner = credential_context(&http);
    let envs = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let env = StaticEnv { home_dir: home.map(Path::to_path_buf), envs: envs.collect() };
    let context = match service {
        Some(service) => inner.clone().with_http_send(Redirect { inner, url: service.url.clone() }),
        None => inner,
    };
    context.with_env(env)
}

#[derive(Debug)]
struct Redirect {
    inner: Context,
    url: String,
}

impl HttpSend for Redirect {
    async fn http_send(&self, request: Request<Bytes>) -> reqsign_core::Result<Response<Bytes>> {
        let (mut parts, body) = request.into_parts();
        let host = parts.uri.host().unwrap_or_default().to_string();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = format!("{}{path}", self.url).parse()?;
        parts.headers.insert("x-meant-for", HeaderValue::from_str(&host)?);
        self.inner.http_send(Request::from_parts(parts, body)).await
    }
}

/// A directory of its own, removed at the end.
pub(crate) struct Home(pub PathBuf);

impl Home {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "penstock-home-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Home(path)
    }

    /// Writes a file below it; its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A directory that stays behind in the temporary one harms no later test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
