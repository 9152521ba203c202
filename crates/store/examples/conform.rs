//! Runs the store conformance suite against a running service, by hand:
//!
//! ```text
//! cargo run -p penstock-store --example conform -- s3://bucket/ endpoint=127.0.0.1:7070 \
//!     use_ssl=false key_id=K secret=S
//! ```
//!
//! The bucket must exist. Prints the names of failed cases and ends with 1 if there are any.

use penstock_store::{HttpClient, HttpOptions, Observer, RequestEvent, StoreOptions, open};
use penstock_testkit::conform::store::{Subject, failures};
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

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(url) = arguments.next() else {
        eprintln!("usage: conform URL [option=value ...]");
        return ExitCode::from(2);
    };
    let pairs: Vec<(String, String)> = arguments
        .filter_map(|pair| pair.split_once('=').map(|(k, v)| (k.to_string(), v.to_string())))
        .collect();
    let options = match StoreOptions::new(pairs.iter().map(|(k, v)| (k, v))) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let secret = options.get("secret").unwrap_or("-").to_string();
    let failed = failures(|| async {
        let http = HttpClient::new(HttpOptions::default(), Arc::new(Log)).expect("a client");
        let (store, _) = open(&url, &options, &http).expect("the URL opens");
        Subject::new(store).with_secret(secret.clone())
    })
    .await;
    if failed.is_empty() {
        eprintln!("all cases passed");
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
