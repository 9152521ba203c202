//! Shared access signatures in the forms in which people paste them, against a server that checks
//! each signature.

use crate::credentials::sas;
use crate::support::{Heard, body, none, open_heard, open_url};
use penstock_base::Kind;
use penstock_store::{Account as _, AzureAccount, HttpClient, HttpOptions, Store, StoreOptions};
use penstock_testkit::fake::options::AZURE_ACCOUNT;
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::sync::Arc;

fn fake() -> FakeHandle {
    FakeAzure::start(FakeOptions::azure()).unwrap()
}

/// The forms of a signature, without the URL before it.
fn forms() -> Vec<String> {
    let query = sas().trim_start_matches('?').to_string();
    let raw = query.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    vec![
        query.clone(),
        raw.clone(),
        format!("?{raw}"),
        format!("\"?{query}\"\n"),
        format!("SharedAccessSignature={raw}"),
        raw.replace('&', "&amp;"),
        raw.replace('+', " "),
        query.replace('%', "%25"),
    ]
}

async fn works(url: &str, options: &[(&str, &str)]) {
    let store = open_url(url, options).unwrap_or_else(|error| panic!("{url}: {error}"));
    store.put("k", body("x"), &none()).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(store.stat("k").await.unwrap().size_bytes, Some(1));
}

#[tokio::test]
async fn a_token_is_taken_in_every_form() {
    let fake = fake();
    let endpoint = fake.endpoint();
    let place = [("account_name", AZURE_ACCOUNT), ("endpoint", endpoint.as_str())];
    let whole = format!("{}/{AZURE_ACCOUNT}/exam{}", fake.endpoint(), sas());
    for form in forms().into_iter().chain([whole]) {
        works("az://exam", &[place[0], place[1], ("sas_token", &form)]).await;
    }
}

#[tokio::test]
async fn a_connection_string_is_taken_in_every_form() {
    let fake = fake();
    let endpoint = fake.endpoint();
    let place = [("account_name", AZURE_ACCOUNT), ("endpoint", endpoint.as_str())];
    let base = format!("{}/{AZURE_ACCOUNT}", fake.endpoint());
    for name in ["connection_string", "azure_storage_connection_string"] {
        for form in forms().into_iter().filter(|form| !form.starts_with("Shared")) {
            works("az://exam", &[place[0], place[1], (name, &form)]).await;
            let bare = form.trim().trim_matches('"').trim_start_matches('?').to_string();
            for path in ["", "/", "/exam", "/exam/some/blob"] {
                works("az://exam", &[(name, &format!("{base}{path}?{bare}"))]).await;
            }
        }
        let parts = |sas: &str| format!("BlobEndpoint={base};SharedAccessSignature={sas}");
        for form in forms().into_iter().filter(|form| !form.contains("&amp;")) {
            works("az://exam", &[(name, &parts(form.trim()))]).await;
        }
    }
}

#[tokio::test]
async fn a_signature_in_the_url_is_used_for_it() {
    let fake = fake();
    let wrong = fake.connection_string().replace("AccountKey=", "AccountKey=AAAA");
    for form in forms().into_iter().filter(|form| form.starts_with("sv") && !form.contains("&amp;"))
    {
        works(&format!("az://exam?{form}"), &[("connection_string", &wrong)]).await;
        works(&format!("az://exam/?{form}"), &[("connection_string", &wrong)]).await;
        works(&format!("az://exam/dir/part-?.csv?{form}"), &[("connection_string", &wrong)]).await;
    }
}

/// As tools that list a container write it.
#[tokio::test]
async fn what_a_pasted_url_asks_for_beside_goes_with_no_request() {
    let fake = fake();
    let wrong = fake.connection_string().replace("AccountKey=", "AccountKey=AAAA");
    let others = "restype=container&comp=list&prefix=a&include=metadata&timeout=9";
    let query = sas().trim_start_matches('?').to_string();
    let base = format!("{}/{AZURE_ACCOUNT}/exam", fake.endpoint());
    for signed in [format!("{others}&{query}"), format!("{query}&{others}")] {
        works("az://exam", &[("connection_string", &format!("{base}?{signed}"))]).await;
        for url in ["az://exam", "az://exam/", "az://exam/dir/k"] {
            works(&format!("{url}?{signed}"), &[("connection_string", &wrong)]).await;
        }
        let endpoint = fake.endpoint();
        let place = [("account_name", AZURE_ACCOUNT), ("endpoint", endpoint.as_str())];
        works("az://exam", &[place[0], place[1], ("sas_token", &signed)]).await;
    }
    let snapshot = format!("az://exam/k?snapshot=2026-01-01T00:00:00Z&{query}");
    let error = open_url(&snapshot, &[("connection_string", &wrong)]).unwrap_err();
    assert!(error.to_string().contains("snapshot"), "{error}");
}

/// As a gateway's back end has it.
#[tokio::test]
async fn an_account_takes_the_signature_of_its_url() {
    let fake = fake();
    let wrong = fake.connection_string().replace("AccountKey=", "AccountKey=AAAA");
    let options = StoreOptions::new([("connection_string", &wrong)]).unwrap();
    let client = HttpClient::new(HttpOptions::default(), Arc::<Heard>::default()).unwrap();
    let url = format!("az://{}", sas());
    let account = AzureAccount::new(&client, &url, &options).unwrap();
    account.create("made").await.unwrap();
    let found = account.list().await.unwrap();
    assert_eq!(found.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["made"]);
    let store = account.open("made").await.unwrap();
    store.put("k", body("x"), &none()).await.unwrap();
    assert_eq!(store.stat("k").await.unwrap().size_bytes, Some(1));
}

#[tokio::test]
async fn no_error_and_no_event_shows_a_signature() {
    let fake = fake();
    let string = fake.connection_string();
    let signed = "sv=2022-11-02&ss=b&srt=sco&sp=r&se=2099-01-01T00:00:00Z&sig=TUFSSw+/TUFSSw==";
    let shows = |text: &str| text.contains("TUFSS");
    for url in [format!("az://exam?{signed}"), format!("az://exam/k?{signed}")] {
        let heard: Arc<Heard> = Arc::default();
        let store = open_heard(&url, &[("connection_string", &string)], heard.clone()).unwrap();
        let error = store.stat("k").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{error}");
        assert!(!shows(&format!("{error} {error:?} {store:?}")), "{error:?}");
        assert!(heard.take().iter().all(|url| !shows(url)));
    }
    for (options, hint) in [
        (&[("sas_token", "sv=1&sp=r&se=TUFSSw")][..], "no `sig=` part"),
        (
            &[("sas_token", "https://other.blob.core.windows.net/c?sv=1&sig=TUFSSw")],
            "of account `other`",
        ),
        (&[("account_key", signed)], "sas_token"),
        (&[("connection_string", "TUFSSw")], "AccountKey=..."),
    ] {
        let url = format!("az://{AZURE_ACCOUNT}.blob.core.windows.net/exam");
        let error = open_url(&url, options).unwrap_err();
        assert!(error.to_string().contains(hint), "{error}");
        assert!(!shows(&format!("{error} {error:?}")), "{error:?}");
    }
    let joined = format!("az://exam/dir?{signed}/part-0.csv");
    let error = open_url(&joined, &[("connection_string", &string)]).unwrap_err();
    assert!(error.to_string().contains("SharedAccessSignature=..."), "{error}");
    assert!(!shows(&format!("{error:?}")), "{error:?}");
}
