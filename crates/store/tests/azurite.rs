//! The Azure store passes the exam against Azurite, which somebody else wrote.
//!
//! Built only with the feature `azurite`; PENSTOCK_TEST_AZURITE then names the endpoint of a
//! running Azurite, such as `http://127.0.0.1:10000`.

#![allow(clippy::unwrap_used)] // also in what the tests share

use bytes::Bytes;
use penstock_store::{
    AzureStore, HttpClient, HttpOptions, ListRequest, Observer, PutOptions, RequestEvent, Store,
    StoreOptions,
};
use penstock_testkit::conform::store::{Subject, is_no_blob_name};
use penstock_testkit::store_conformance;
use std::sync::Arc;

/// Azurite's only account; public knowledge.
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

fn endpoint() -> String {
    std::env::var("PENSTOCK_TEST_AZURITE")
        .expect("PENSTOCK_TEST_AZURITE names the endpoint of a running Azurite")
}

fn open(container: &str, options: &[(&str, &str)]) -> AzureStore {
    let client = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
    let options = StoreOptions::new(options.iter().copied()).unwrap();
    AzureStore::open(&client, &format!("az://{container}"), &options).unwrap().0
}

async fn shared_key() -> Subject {
    let string = format!(
        "AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={}/devstoreaccount1",
        endpoint()
    );
    let store = open("exam", &[("connection_string", &string)]);
    store.create_container().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    Subject::new(store).with_secret(KEY).refusing(is_no_blob_name)
}

#[tokio::test]
async fn classes_are_tiers() {
    let store = shared_key().await.store;
    for (asked, told) in [("STANDARD_IA", "STANDARD_IA"), ("GLACIER_IR", "GLACIER_IR")] {
        let metadata = vec![("@storage-class".to_string(), asked.to_string())];
        let options = PutOptions { metadata, ..PutOptions::default() };
        store.put("tiers/put", Bytes::from_static(b"x").into(), &options).await.unwrap();
        store.copy("tiers/put", "tiers/copy", &options).await.unwrap();
        let upload = store.create_upload("tiers/up", &options).await.unwrap();
        let part = store.upload_part("tiers/up", &upload, 1, Bytes::from_static(b"x").into()).await;
        let parts = [part.unwrap()];
        store.complete_upload("tiers/up", &upload, &parts, &PutOptions::default()).await.unwrap();
        let request = ListRequest { prefix: "tiers/".into(), ..ListRequest::default() };
        let listed = store.list(request).await.unwrap().objects;
        assert_eq!(listed.len(), 3);
        for entry in listed {
            assert_eq!(entry.meta.storage_class.as_deref(), Some(told), "{}", entry.key);
            let meta = store.stat(&entry.key).await.unwrap();
            assert_eq!(meta.storage_class.as_deref(), Some(told), "{}", entry.key);
        }
    }
}

store_conformance!(shared_key_conformance, shared_key);
