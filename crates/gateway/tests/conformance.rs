//! The whole store exam, taken by our own S3 client over the gateway: what one says the other
//! understands, down to the errors.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::{ACCESS_KEY, SECRET_KEY, Server};
use penstock_store::{
    HttpClient, HttpOptions, Observer, RequestEvent, S3Store, Store, StoreOptions,
};
use penstock_testkit::conform::store::Subject;
use penstock_testkit::store_conformance;
use std::sync::Arc;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

/// Each case has a gateway of its own.
async fn gateway() -> Subject {
    let server = Server::start().await;
    let endpoint = server.address.to_string();
    let options = StoreOptions::new([
        ("key_id", ACCESS_KEY),
        ("secret", SECRET_KEY),
        ("region", "us-east-1"),
        ("endpoint", endpoint.as_str()),
        ("url_style", "path"),
        ("use_ssl", "false"),
    ])
    .unwrap();
    let client = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
    let store: Arc<dyn Store> = Arc::new(S3Store::open("s3", "lake", &options, &client).unwrap());
    Subject::new(store).with_secret(SECRET_KEY).refusing(is_no_file_name).keeping(server)
}

/// What no file can be called: a component of more than 255 bytes, or one with a NUL.
fn is_no_file_name(key: &str) -> bool {
    key.contains('\0') || key.split('/').any(|component| component.len() > 255)
}

store_conformance!(conformance, gateway);
