//! What an operator is told when the gateway cannot start.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::{Dir, Server, options, options_over};
use penstock_base::{Error, Kind, Secret};
use penstock_gateway::{BackendOptions, Gateway, KeyPair, Options};
use std::path::PathBuf;

fn at(dir: PathBuf) -> Options {
    options_over(BackendOptions::directory(&dir))
}

async fn refused(options: Options) -> Error {
    Gateway::bind(options).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let server = Server::start().await;
    let dir = Dir::new();
    let listen = server.address.to_string();
    let error = refused(Options { listen: listen.clone(), ..options(&dir) }).await;
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
}

#[tokio::test]
async fn missing_keys_are_told_with_the_ways_to_give_them() {
    let dir = Dir::new();
    let none = refused(Options { keys: Vec::new(), ..options(&dir) }).await;
    assert_eq!(none.kind(), Kind::Invalid);
    for way in ["PENSTOCK_SECRET_KEY", "--secret-key-file", "--anonymous"] {
        assert!(none.to_string().contains(way), "{none}");
    }
    let empty = KeyPair { access_key: "a".into(), secret_key: Secret::new("") };
    let error = refused(Options { keys: vec![empty], ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_bad_address_is_told() {
    let dir = Dir::new();
    let error = refused(Options { listen: "nonsense".into(), ..options(&dir) }).await;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("HOST:PORT"), "{error}");
}

#[tokio::test]
async fn secrets_stay_out_of_debug_output() {
    let dir = Dir::new();
    assert!(!format!("{:?}", options(&dir)).contains(common::SECRET_KEY));
    let gateway = Gateway::bind(options(&dir)).await.unwrap();
    assert!(!format!("{gateway:?}").contains(common::SECRET_KEY));
}
