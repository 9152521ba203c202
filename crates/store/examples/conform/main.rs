//! Runs the store conformance suite against a running service; `scripts/conformance.py` does so
//! for every server that is not ours, and this by hand:
//!
//! ```text
//! cargo run -p penstock-store --example conform -- s3://bucket/ endpoint=127.0.0.1:7070 \
//!     use_ssl=false key_id=K secret=S
//! ```
//!
//! The bucket must exist. With `--seed-json URL` the objects that cases read are placed by Google's
//! JSON API in the bucket of this URL, for emulators whose XML API only reads. Prints one line for
//! each case, `passed NAME` or `failed NAME`, and ends with 1 if one failed; with TRACE in the
//! environment its requests are on stderr.

mod google;

use google::JsonWriter;
use penstock_store::{HttpClient, HttpOptions, Observer, RequestEvent, StoreOptions, open};
use penstock_testkit::conform::store::{CASES, Subject, failures, is_no_blob_name};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Debug)]
struct Log;

impl Observer for Log {
    fn request_finished(&self, event: RequestEvent) {
        if std::env::var_os("TRACE").is_some() {
            let RequestEvent { method, url, range, status, error, .. } = event;
            eprintln!("{method} {url} {range} {status} {error}");
        }
    }
}

/// What the command line says.
struct Arguments {
    url: String,
    seed_json: Option<String>,
    options: StoreOptions,
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let usage = "usage: conform [--seed-json URL] URL [option=value ...]";
    let mut url = words.next().ok_or(usage)?;
    let mut seed_json = None;
    if url == "--seed-json" {
        seed_json = Some(words.next().ok_or(usage)?);
        url = words.next().ok_or(usage)?;
    }
    let pairs: Vec<(String, String)> = words
        .map(|pair| pair.split_once('=').map(|(name, value)| (name.into(), value.into())))
        .collect::<Option<_>>()
        .ok_or(usage)?;
    let options = StoreOptions::new(pairs.iter().map(|(name, value)| (name, value)))
        .map_err(|error| error.to_string())?;
    Ok(Arguments { url, seed_json, options })
}

fn subject(arguments: &Arguments) -> Subject {
    let http = HttpClient::new(HttpOptions::default(), Arc::new(Log)).expect("a client");
    let (store, _) = open(&arguments.url, &arguments.options, &http).expect("the URL opens");
    let is_azure = store.root().starts_with("az://");
    let mut subject = Subject::new(store.clone());
    if let Some(secret) = arguments.options.get("secret") {
        subject = subject.with_secret(secret);
    }
    if is_azure {
        subject = subject.refusing(is_no_blob_name);
    }
    if let Some(base) = &arguments.seed_json {
        let writer = JsonWriter::new(store, http, base).expect("the URL of a bucket");
        subject = subject.seeded_by(Arc::new(writer));
    }
    subject
}

#[tokio::main]
#[allow(clippy::print_stdout)] // conformance.py reads it
async fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let failed = failures(|| async { subject(&arguments) }).await;
    for (name, _) in CASES {
        let outcome = if failed.contains(name) { "failed" } else { "passed" };
        println!("{outcome} {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
