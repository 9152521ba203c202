//! The whole store exam, taken by our own S3 client over the gateway: what one says the other
//! understands, down to the errors.

use crate::common::{ACCESS_KEY, Lane, SECRET_KEY, Server};
use penstock_store::{
    HttpClient, HttpOptions, Observer, RequestEvent, S3Store, Store, StoreOptions,
};
use penstock_testkit::conform::store::{Subject, is_no_blob_name};
use penstock_testkit::store_conformance;
use std::sync::Arc;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

/// Each case has a gateway of its own.
async fn local() -> Subject {
    subject(Server::start().await).refusing(is_no_file_name)
}

/// What a completion or a copy comes to stands in a body that began before.
async fn late() -> Subject {
    let server = Server::on_with(Lane::Local, |options| options.serve.completion_quiet_ms = 0);
    subject(server.await).refusing(is_no_file_name)
}

async fn memory() -> Subject {
    subject(Server::on(Lane::Memory).await)
}

async fn azure() -> Subject {
    subject(Server::on(Lane::Azure).await).refusing(is_no_blob_name)
}

async fn s3() -> Subject {
    subject(Server::on(Lane::S3).await)
}

/// By a client that claims what Google has, and no more: no condition on writes but that there is
/// nothing yet, and none on removals.
async fn google() -> Subject {
    opened("gs", Server::on(Lane::Google).await)
}

fn subject(server: Server) -> Subject {
    opened("s3", server)
}

fn opened(scheme: &str, server: Server) -> Subject {
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
    let store: Arc<dyn Store> = Arc::new(S3Store::open(scheme, "lake", &options, &client).unwrap());
    Subject::new(store).with_secret(SECRET_KEY).keeping(server)
}

/// What no file can be called: a component of more than 255 bytes, or one with a NUL.
fn is_no_file_name(key: &str) -> bool {
    key.contains('\0') || key.split('/').any(|component| component.len() > 255)
}

store_conformance!(on_local, local);
store_conformance!(on_local_late, late);
store_conformance!(on_memory, memory);
store_conformance!(on_azure, azure);
store_conformance!(on_s3, s3);
store_conformance!(on_google, google);
