//! The exam with every kind of credential, and credentials that are refused.

use crate::support::{TOKEN, body, fake, get, none, open, told};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_base::{Kind, Retry};
use penstock_store::{GetRange, Store};
use penstock_testkit::conform::store::{Subject, is_no_blob_name};
use penstock_testkit::fake::options::{AZURE_ACCOUNT, AZURE_ACCOUNT_KEY};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use penstock_testkit::store_conformance;
use std::sync::Arc;

/// An account signature with all rights, made here so that the store's own code proves nothing.
pub fn sas() -> String {
    let (rights, end, version) = ("racwdl", "2099-01-01T00:00:00Z", "2022-11-02");
    let text = format!("{AZURE_ACCOUNT}\n{rights}\nb\nsco\n\n{end}\n\n\n{version}\n\n");
    let key = STANDARD.decode(AZURE_ACCOUNT_KEY).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let signature = STANDARD.encode(ring::hmac::sign(&key, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("?sv={version}&ss=b&srt=sco&sp={rights}&se={end}&sig={signature}")
}

fn subject(fake: FakeHandle, options: &[(&str, &str)]) -> Subject {
    let store: Arc<dyn Store> = Arc::new(open(&fake, options));
    Subject::new(store)
        .with_secret(AZURE_ACCOUNT_KEY)
        .with_secret(TOKEN)
        .refusing(is_no_blob_name)
        .keeping(fake)
}

async fn shared_key() -> Subject {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = fake.connection_string();
    subject(fake, &[("connection_string", &string)])
}

async fn signature() -> Subject {
    let sas = sas();
    let signed = sas.split("sig=").nth(1).unwrap().to_string();
    subject(FakeAzure::start(FakeOptions::azure()).unwrap(), &[("sas_token", &sas)])
        .with_secret(signed)
}

async fn bearer() -> Subject {
    let options = FakeOptions { bearer_token: Some(TOKEN.into()), ..FakeOptions::azure() };
    let fake = FakeAzure::start(options).unwrap();
    subject(fake, &[("provider", "access_token"), ("access_token", TOKEN)])
}

/// An account that keeps versions is no other store to whoever does not ask for them.
async fn versioned() -> Subject {
    let fake = FakeAzure::start(FakeOptions::azure_versioned()).unwrap();
    subject(fake, &[("account_key", AZURE_ACCOUNT_KEY)])
}

/// An account with a hierarchical namespace lists in another order, and is no other store either.
async fn hierarchical() -> Subject {
    let fake = FakeAzure::start(FakeOptions::azure_hierarchical()).unwrap();
    subject(fake, &[("account_key", AZURE_ACCOUNT_KEY)])
}

store_conformance!(hierarchical_conformance, hierarchical);

async fn anonymous() -> Subject {
    let options = FakeOptions { anonymous: true, ..FakeOptions::azure() };
    subject(FakeAzure::start(options).unwrap(), &[])
}

store_conformance!(shared_key_conformance, shared_key);

store_conformance!(signature_conformance, signature);

store_conformance!(bearer_conformance, bearer);

store_conformance!(anonymous_conformance, anonymous);

store_conformance!(versioned_conformance, versioned);

#[tokio::test]
async fn wrong_key_shows_the_secret_to_try() {
    let (fake, _) = fake();
    let wrong = STANDARD.encode("another key");
    let store = open(&fake, &[("account_key", &wrong), ("secret_name", "lake")]);
    let error = store.stat("k").await.unwrap_err();
    told(&error, Kind::Denied, &["secret 'lake'", "CREATE SECRET (TYPE azure", "az://exam/"]);
    assert_eq!(error.retry(), Retry::Never);
    let unnamed = open(&fake, &[("account_key", &wrong)]);
    told(&unnamed.stat("k").await.unwrap_err(), Kind::Denied, &["AccountKey of the settings"]);
    let store = open(&fake, &[]);
    let error = store.put("k", body("x"), &none()).await.unwrap_err();
    told(&error, Kind::Denied, &["carried no credentials", "credential_chain"]);
}

#[tokio::test]
async fn a_clock_off_by_an_hour_is_told_by_how_much() {
    let options = FakeOptions { clock_offset_s: 3600, ..FakeOptions::azure() };
    let fake = FakeAzure::start(options).unwrap();
    let store = open(&fake, &[("account_key", AZURE_ACCOUNT_KEY)]);
    let error = get(&store, "k", GetRange::All).await.unwrap_err();
    let minutes = ["59 min", "60 min"].iter().any(|text| error.to_string().contains(text));
    assert!(minutes, "{error}");
    told(&error, Kind::Denied, &["clock", "behind"]);
}
