//! Stores on a fake service, what they send, and what their errors must say.

use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result};
use penstock_store::{
    AzureStore, GetRange, GetRequest, HttpClient, HttpOptions, Observer, Payload, PutOptions,
    RequestEvent, Store, StoreOptions,
};
use penstock_testkit::fake::options::{AZURE_ACCOUNT, AZURE_ACCOUNT_KEY};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::sync::{Arc, Mutex};

pub const TOKEN: &str = "token-that-nobody-may-print";

/// Keeps the URLs of all requests: what the client saw end, it has counted.
#[derive(Debug, Default)]
pub struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn request_finished(&self, event: RequestEvent) {
        self.0.lock().unwrap().push(format!("{} {}", event.method, event.url));
    }
}

impl Heard {
    /// The requests since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub fn open_heard(url: &str, options: &[(&str, &str)], heard: Arc<Heard>) -> Result<AzureStore> {
    let client = HttpClient::new(HttpOptions::default(), heard)?;
    let options = StoreOptions::new(options.iter().copied())?;
    AzureStore::open(&client, url, &options).map(|(store, _)| store)
}

pub fn open_url(url: &str, options: &[(&str, &str)]) -> Result<AzureStore> {
    open_heard(url, options, Arc::default())
}

/// A fake, a store on it, and what the store sends.
pub fn heard() -> (FakeHandle, AzureStore, Arc<Heard>) {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let heard: Arc<Heard> = Arc::default();
    let string = fake.connection_string();
    let store = open_heard("az://exam", &[("connection_string", &string)], heard.clone()).unwrap();
    (fake, store, heard)
}

pub fn open(fake: &FakeHandle, options: &[(&str, &str)]) -> AzureStore {
    let endpoint = fake.endpoint();
    let place = [("account_name", AZURE_ACCOUNT), ("endpoint", endpoint.as_str())];
    let options: Vec<_> = place.iter().chain(options).copied().collect();
    open_url("az://exam", &options).unwrap()
}

pub fn fake() -> (FakeHandle, AzureStore) {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let store = open(&fake, &[("account_key", AZURE_ACCOUNT_KEY)]);
    (fake, store)
}

pub fn none() -> PutOptions {
    PutOptions::default()
}

pub fn body(text: &'static str) -> Payload {
    Bytes::from_static(text.as_bytes()).into()
}

pub async fn get(store: &AzureStore, key: &str, range: GetRange) -> Result<Bytes> {
    let mut answer = store.get(key, GetRequest::from(range)).await?;
    answer.body.read_to_bytes(1 << 20).await
}

pub fn bounded(start: u64, end: u64) -> GetRange {
    GetRange::Bounded(ByteRange { start, end })
}

/// Asserts what an error says, and that it shows no credential.
pub fn told(error: &Error, kind: Kind, texts: &[&str]) {
    let shown = error.to_string();
    assert_eq!(error.kind(), kind, "{shown}");
    for text in texts {
        assert!(shown.contains(text), "`{text}` is missing in: {shown}");
    }
    assert!(error.object().is_some(), "no object is named: {shown}");
    for secret in [AZURE_ACCOUNT_KEY, TOKEN] {
        assert!(!format!("{shown} {error:?}").contains(secret), "{shown}");
    }
}
