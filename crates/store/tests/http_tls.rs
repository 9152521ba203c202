//! TLS with a self-made authority, and HTTP proxies.
#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use common::{Heard, Script, client, client_with, get, get_all, read_request};
use penstock_base::{Kind, Retry};
use penstock_store::http::{Proxy, ProxyChoice};
use penstock_store::{HttpClient, HttpOptions, StoreOptions, drive, open};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;

/// An https server named `localhost`, and the file of its certificate.
struct Secure {
    script: Script,
    certificate: PathBuf,
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.certificate);
    }
}

/// Answers every request with `length` bytes; hangs up in the middle of the second half where told.
async fn secure(name: &str, length: usize, cut: bool) -> Secure {
    secure_with(name, length, cut, |_| {}).await
}

/// The same with another certificate.
async fn secure_with(
    name: &str,
    length: usize,
    cut: bool,
    change: impl FnOnce(&mut CertificateParams),
) -> Secure {
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    change(&mut params);
    let signing_key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let file = format!("penstock-tls-{name}-{}.pem", std::process::id());
    let certificate = std::env::temp_dir().join(file);
    std::fs::write(&certificate, cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let script = Script::start(move |_, tcp| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(tcp).await else { return };
            while read_request(&mut stream).await.is_some() {
                let head =
                    format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let body: Vec<u8> = (0..length).map(|n| n as u8).collect();
                let sent = if cut { length / 2 } else { length };
                stream.write_all(&body[..sent]).await.unwrap();
                stream.flush().await.unwrap();
                if cut {
                    return;
                }
            }
        }
    })
    .await;
    Secure { script, certificate }
}

impl Secure {
    fn url(&self) -> String {
        format!("https://localhost:{}/k", self.script.address.port())
    }

    fn client(&self) -> (HttpClient, Arc<Heard>) {
        let ca_file = Some(self.certificate.clone());
        client_with(HttpOptions { ca_file, ..HttpOptions::default() })
    }
}

#[tokio::test]
async fn trusted_certificate_carries_bodies_over_one_connection() {
    let server = secure("trusted", 3_000_000, false).await;
    let (client, heard) = server.client();
    for _ in 0..3 {
        let body = get_all(&client, &server.url()).await.unwrap();
        assert!(body.len() == 3_000_000 && body.iter().enumerate().all(|(n, b)| *b == n as u8));
    }
    let opened: Vec<bool> = heard.events().iter().map(|event| event.new_connection).collect();
    assert_eq!(opened, [true, false, false]);
}

#[test]
fn blocked_callers_and_tasks_take_turns_on_one_connection() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = runtime.block_on(secure("turns", 3_000_000, false));
    let (client, heard) = server.client();
    let url = server.url();
    for is_blocked in [true, true, false, true, false, false] {
        let body = if is_blocked {
            let _context = runtime.enter();
            drive::block_on(get_all(&client, &url), Duration::from_secs(60), || false)
                .unwrap()
                .unwrap()
        } else {
            runtime.block_on(get_all(&client, &url))
        };
        let body = body.unwrap();
        assert!(body.len() == 3_000_000 && body.iter().enumerate().all(|(n, b)| *b == n as u8));
    }
    let opened = heard.events().iter().filter(|event| event.new_connection).count();
    assert_eq!((opened, heard.events().len()), (1, 6));
}

#[tokio::test]
async fn unknown_authority_is_refused_unless_told_otherwise() {
    let server = secure("unknown", 10, false).await;
    let (client, _) = client();
    let error = get(&client, &server.url()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Never), "{error}");
    assert!(error.hint().unwrap().contains("ca_file"), "{error}");
    let body = get_all(&client.with_verify_tls(false), &server.url()).await.unwrap();
    assert_eq!(body.len(), 10);
    // What was learnt without checking is of no use to those who check.
    assert!(get(&client, &server.url()).await.is_err());
    let trusting = client.with_ca_file(&server.certificate);
    assert_eq!(get_all(&trusting, &server.url()).await.unwrap().len(), 10);
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_told() {
    let authority = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 2, 3);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 2, 3);
    let named = |params: &mut CertificateParams| params.subject_alt_names.clear();
    let servers = [
        (secure_with("authority", 10, false, authority).await, "authority has signed"),
        (secure_with("expired", 10, false, expired).await, "It has expired"),
        (secure_with("early", 10, false, early).await, "not valid yet"),
        (secure_with("named", 10, false, named).await, "another name"),
    ];
    for (server, told) in servers {
        let (client, _) = server.client();
        let error = get(&client, &server.url()).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Never), "{error}");
        assert!(error.hint().unwrap().contains(told), "{error}");
    }
}

#[tokio::test]
async fn connection_cut_inside_tls_is_no_end_of_body() {
    let server = secure("cut", 100_000, true).await;
    let (client, _) = server.client();
    let error = get_all(&client, &server.url()).await.unwrap_err();
    assert_eq!(error.retry(), Retry::BackOff, "{error}");
}

#[tokio::test]
async fn plain_server_on_an_https_url_is_named() {
    let script = Script::start(|_, mut stream| async move {
        let mut some = [0; 10];
        let _ = stream.read_exact(&mut some).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let (client, _) = client();
    let url = format!("https://localhost:{}/", script.address.port());
    let error = get(&client, &url).await.unwrap_err();
    assert!(error.hint().unwrap().contains("USE_SSL false"), "{error}");
}

#[tokio::test]
async fn missing_authority_file_is_the_callers_error() {
    let ca_file = Some(PathBuf::from("/nowhere/ca.pem"));
    let (client, _) = client_with(HttpOptions { ca_file, ..HttpOptions::default() });
    let server = secure("nofile", 1, false).await;
    let error = get(&client, &server.url()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("ca_file /nowhere/ca.pem"), "{error}");
    // Told by the name that its user has set.
    let client = client.with_ca_file(Path::new("/nowhere/other.pem"));
    let error = get(&client, &server.url()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("ca_cert_file /nowhere/other.pem"), "{error}");
    assert!(error.hint().unwrap().starts_with("ca_cert_file "), "{error}");
}

#[tokio::test]
async fn stores_take_certificates_from_their_options() {
    let server = secure("store", 10, false).await;
    let endpoint = format!("localhost:{}", server.script.address.port());
    let path = server.certificate.display().to_string();
    let pairs = [("endpoint", endpoint.as_str()), ("ca_cert_file", path.as_str())];
    let options = StoreOptions::new(pairs).unwrap();
    let (store, key) = open("s3://b/k", &options, &client().0).unwrap();
    assert_eq!(store.stat(&key).await.unwrap().size_bytes, Some(10));
}

fn proxied(script: &Script) -> ProxyChoice {
    let proxy = Proxy::parse(&script.url("")).unwrap().with_basic("user", "hunter2");
    ProxyChoice::Fixed(proxy)
}

const USER: &str = "proxy-authorization: basic dxnlcjpodw50zxiy";

#[tokio::test]
async fn plain_requests_go_to_the_proxy_with_the_whole_url() {
    let proxy = Script::start(|_, mut stream| async move {
        while let Some((head, _)) = read_request(&mut stream).await {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let (client, heard) = client();
    let client = client.with_proxy(proxied(&proxy));
    let head = get_all(&client, "http://store.example:8080/b/k?x=1").await.unwrap();
    let head = String::from_utf8(head.to_vec()).unwrap();
    assert!(head.starts_with("GET http://store.example:8080/b/k?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Host: store.example:8080\r\n"), "{head}");
    assert!(head.to_lowercase().contains(USER), "{head}");
    assert!(!format!("{client:?} {:?}", heard.events()).contains("dXNlcjpodW50ZXIy"));
}

/// A proxy that makes tunnels for those who give the password.
async fn tunnelling() -> Script {
    Script::start(|_, mut stream| async move {
        let Some((head, _)) = read_request(&mut stream).await else { return };
        let target = head.split(' ').nth(1).unwrap().to_string();
        if !head.to_lowercase().contains(USER) {
            let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(refusal.as_bytes()).await.unwrap();
            return;
        }
        let mut server = TcpStream::connect(target).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut server).await;
    })
    .await
}

#[tokio::test]
async fn https_goes_through_the_proxys_tunnel() {
    let server = secure("tunnel", 1000, false).await;
    let proxy = tunnelling().await;
    let (client, _) = server.client();
    let through = client.with_proxy(proxied(&proxy));
    for _ in 0..2 {
        assert_eq!(get_all(&through, &server.url()).await.unwrap().len(), 1000);
    }
    assert_eq!((proxy.connections(), server.script.connections()), (1, 1));

    let stranger = ProxyChoice::Fixed(Proxy::parse(&proxy.url("")).unwrap());
    let error = get(&client.with_proxy(stranger), &server.url()).await.unwrap_err();
    assert_eq!((error.kind(), error.http_status()), (Kind::Denied, Some(407)), "{error}");
}

/// What is opened early has proxy, tunnel and handshake behind it.
#[tokio::test]
async fn connections_that_are_opened_early_go_the_way_of_all_others() {
    let server = secure("early", 1000, false).await;
    let proxy = tunnelling().await;
    let (client, heard) = server.client();
    for client in [client.clone(), client.with_proxy(proxied(&proxy))] {
        client.warm(&server.url(), 2).unwrap().await;
        let known = client.connections(&server.url());
        assert_eq!((known.idle, known.opening), (2, 0));
        assert!(known.connect.is_some());
        for _ in 0..2 {
            assert_eq!(get_all(&client, &server.url()).await.unwrap().len(), 1000);
        }
    }
    assert_eq!(heard.opened(), [false; 4]);
    assert_eq!((heard.warmed(), server.script.connections()), (vec![true; 4], 4));
    assert_eq!(proxy.connections(), 2);

    // A certificate that is not trusted is told by the request.
    let (stranger, heard) = client_with(HttpOptions::default());
    stranger.warm(&server.url(), 2).unwrap().await;
    assert_eq!(heard.warmed(), [false; 2]);
    let error = get(&stranger, &server.url()).await.unwrap_err();
    assert!(error.to_string().contains("is not trusted"), "{error}");
}

#[tokio::test]
async fn proxy_of_the_options_is_used() {
    let proxy = Script::answering("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
    let url = proxy.url("");
    let options = StoreOptions::new([("http_proxy", url.as_str())]).unwrap();
    let (store, key) = open("http://store.example/k", &options, &client().0).unwrap();
    assert_eq!(store.stat(&key).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(proxy.connections(), 1);
}
