//! What S3 has and the gateway has not: refused by name, all of it, and nothing else.

use crate::common::{Request, Server};
use penstock_gateway::{ABSENT, Place};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Browser forms are read in a room of their own (`src/forms.rs`), and become PutObject.
const ELSEWHERE: &str = "PostObject";

/// The sources of s3s that this build uses.
fn s3s() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let told = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version=1"])
        // What other platforms need is not here.
        .arg(format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH))
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let packages = told["packages"].as_array().unwrap();
    let s3s = packages.iter().find(|package| package["name"] == "s3s").unwrap();
    Path::new(s3s["manifest_path"].as_str().unwrap()).parent().unwrap().join("src")
}

/// A new version of s3s may know more operations: each has to be handled, or to stand in the list.
#[test]
fn every_operation_of_s3s_is_handled_or_listed() {
    let interface = std::fs::read_to_string(s3s().join("s3_trait.rs")).unwrap();
    let known: BTreeSet<&str> = interface
        .split("S3Request<")
        .filter_map(|rest| rest.split_once("Input>").map(|(name, _)| name))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .collect();
    assert_eq!(known.len(), interface.matches("async fn ").count(), "s3s writes it otherwise now");
    let rows = include_str!("../src/s3.rs").split("operations! {").last().unwrap();
    let handled: BTreeSet<&str> = rows
        .split("Input\n")
        .flat_map(|part| part.split("Input => "))
        .filter_map(|part| part.rsplit_once(": ").map(|row| row.1))
        .filter(|name| known.contains(name))
        .collect();
    let listed: BTreeSet<&str> = ABSENT.iter().map(|row| row.name).collect();
    assert_eq!(listed.len(), ABSENT.len(), "an operation stands there twice");
    let both: Vec<_> = handled.intersection(&listed).collect();
    assert!(both.is_empty(), "handled, and listed as absent: {both:?}");
    let neither: Vec<_> = known.iter().filter(|name| !handled.contains(*name)).collect();
    let neither: Vec<_> = neither.into_iter().filter(|name| !listed.contains(*name)).collect();
    assert_eq!(neither, [&ELSEWHERE], "neither handled nor listed in src/absent.rs");
}

#[tokio::test]
async fn each_is_refused_by_its_name() {
    let server = Server::start().await;
    server.put("/lake/k", b"bytes").await;
    for row in ABSENT {
        let request = row.request();
        let (method, path) = request.split_once(' ').unwrap();
        let path = path.replace("/BUCKET", "/lake").replace("/KEY", "/k");
        // What its document would be is not looked at.
        for body in [&b""[..], b"<Xml"] {
            let answer = server.send(Request { method, path: &path, body, ..Default::default() });
            let answer = answer.await;
            let told = (answer.status, answer.code());
            // Clients send again what is answered so of an object itself, or of no bucket.
            let is_subresource = row.query.iter().any(|it| !it.contains("x-id"));
            let status = if is_subresource && row.name != "RenameObject" { 501 } else { 400 };
            let wanted = (status, "NotImplemented".to_string());
            assert_eq!(told, wanted, "{request}: {}", answer.text());
            let message = format!("{} is not implemented: {}", row.name, row.why);
            let text = answer.text().replace("&apos;", "'");
            assert!(text.contains(&message), "{request}: {text}");
        }
    }
    assert_eq!(server.get("/lake/k").await.body, b"bytes");
    assert!(ABSENT.iter().any(|row| row.place == Place::Object));
}
