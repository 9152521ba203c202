//! What an operator is told when the gateway cannot start.

use crate::common::{Dir, Server, options, options_over, serve_settings};
use penstock_base::{Error, Kind, Secret, ServeSettings};
use penstock_gateway::{BackendOptions, BucketOptions, Gateway, KeyPair, Options};
use std::path::PathBuf;

fn at(dir: PathBuf) -> Options {
    options_over(BackendOptions::directory(&dir))
}

fn listening(listen: &str) -> ServeSettings {
    ServeSettings { listen: listen.to_string(), ..serve_settings() }
}

async fn refused(options: Options) -> Error {
    Gateway::bind(options).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let server = Server::start().await;
    let dir = Dir::new();
    let listen = server.address.to_string();
    let error = refused(Options { serve: listening(&listen), ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains(&listen), "{error}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_served_is_named() {
    let dir = Dir::new();
    let missing = refused(at(dir.0.join("nowhere"))).await;
    assert_eq!(missing.kind(), Kind::NotFound);
    assert!(missing.to_string().contains("mkdir -p"), "{missing}");
    std::fs::write(dir.0.join("file"), "").unwrap();
    let file = refused(at(dir.0.join("file"))).await;
    assert_eq!(file.kind(), Kind::Invalid);
    // Nobody can make files there, root included.
    let locked = refused(at("/proc".into())).await;
    assert_eq!(locked.kind(), Kind::Denied);
    assert!(locked.to_string().contains("not writable"), "{locked}");
    assert!(locked.to_string().contains("read_only"), "{locked}");
}

/// Nothing is written to a back end that is read-only, or all of whose buckets are.
#[tokio::test]
async fn a_directory_that_is_only_read_need_not_be_writable() {
    let proc = || BackendOptions::directory("/proc".as_ref());
    let bucket = |is_read_only| BucketOptions {
        name: "process".into(),
        backend: "dir".into(),
        container: Some("self".into()),
        is_read_only,
        ..Default::default()
    };
    let closed = BackendOptions { is_read_only: true, ..proc() };
    Gateway::bind(options_over(closed)).await.unwrap();
    let fixed = |is_read_only| Options {
        buckets: vec![bucket(is_read_only)],
        ..options_over(BackendOptions { is_dynamic: false, ..proc() })
    };
    Gateway::bind(fixed(true)).await.unwrap();
    assert_eq!(refused(fixed(false)).await.kind(), Kind::Denied);
}

#[tokio::test]
async fn missing_keys_are_told_with_the_ways_to_give_them() {
    let dir = Dir::new();
    let none = refused(Options { keys: Vec::new(), ..options(&dir) }).await;
    assert_eq!(none.kind(), Kind::Invalid);
    for way in ["PENSTOCK_SECRET_KEY", "--secret-key-file", "--anonymous"] {
        assert!(none.to_string().contains(way), "{none}");
    }
    let empty = KeyPair::new("a", Secret::new(""));
    let error = refused(Options { keys: vec![empty], ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_bad_address_is_told() {
    let dir = Dir::new();
    let error = refused(Options { serve: listening("nonsense"), ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("HOST:PORT"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_is_no_address_is_told() {
    let dir = Dir::new();
    let serve = ServeSettings { trusted_proxies: "balancer:80".to_string(), ..serve_settings() };
    let error = refused(Options { serve, ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("trusted_proxies: `balancer:80`"), "{error}");
}

#[tokio::test]
async fn secrets_stay_out_of_debug_output() {
    let dir = Dir::new();
    assert!(!format!("{:?}", options(&dir)).contains(crate::common::SECRET_KEY));
    let gateway = Gateway::bind(options(&dir)).await.unwrap();
    assert!(!format!("{gateway:?}").contains(crate::common::SECRET_KEY));
}

#[tokio::test]
async fn half_of_tls_and_files_that_cannot_serve_are_told() {
    let dir = Dir::new();
    let with = |cert: &str, key: &str| {
        let (tls_cert_file, tls_key_file) = (cert.to_string(), key.to_string());
        Options {
            serve: ServeSettings { tls_cert_file, tls_key_file, ..serve_settings() },
            ..options(&dir)
        }
    };
    let half = refused(with("/nowhere/cert.pem", "")).await;
    assert!(half.to_string().contains("both tls_cert_file and tls_key_file"), "{half}");
    let missing = refused(with("/nowhere/cert.pem", "/nowhere/key.pem")).await;
    assert_eq!(missing.kind(), Kind::NotFound);
    assert!(missing.to_string().contains("/nowhere/cert.pem"), "{missing}");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_told() {
    let dir = Dir::new();
    let serve = ServeSettings { access_log: "/nowhere/log".to_string(), ..serve_settings() };
    let error = refused(Options { serve, ..options(&dir) }).await;
    assert!(error.to_string().contains("access_log names a file"), "{error}");
}
