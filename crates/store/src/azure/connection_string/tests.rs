use super::*;
use proptest::prelude::*;

fn endpoint(text: &str) -> String {
    ConnectionString::parse(text).unwrap().endpoint.to_string()
}

#[test]
fn account_and_key_in_the_public_cloud() {
    let text = "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=a2V5;EndpointSuffix=core.windows.net";
    let parsed = ConnectionString::parse(text).unwrap();
    assert_eq!(parsed.endpoint.to_string(), "https://lake.blob.core.windows.net");
    assert_eq!(parsed.account.as_deref(), Some("lake"));
    assert_eq!(parsed.auth, StringAuth::Key(Secret::new("a2V5")));
}

#[test]
fn forms_and_their_endpoints() {
    for (text, shown) in [
        ("AccountName=a;AccountKey=a2V5", "https://a.blob.core.windows.net"),
        (" accountname = a ; ACCOUNTKEY=a2V5;;", "https://a.blob.core.windows.net"),
        (
            "AccountName=a;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn",
            "https://a.blob.core.chinacloudapi.cn",
        ),
        (
            "AccountName=a;DefaultEndpointsProtocol=http;AccountKey=a2V5",
            "http://a.blob.core.windows.net",
        ),
        (
            "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/dev;",
            "http://127.0.0.1:10000/dev",
        ),
        (
            "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=?sv=1&sig=x%3D",
            "https://a.blob.core.windows.net",
        ),
        (
            "DfsEndpoint=https://a.dfs.core.windows.net/;SharedAccessSignature=sig=x",
            "https://a.blob.core.windows.net",
        ),
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10000/devstoreaccount1"),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
            "http://azurite:10000/devstoreaccount1",
        ),
        ("AccountName=a;QueueEndpoint=https://q/", "https://a.blob.core.windows.net"),
    ] {
        assert_eq!(endpoint(text), shown, "{text}");
    }
}

#[test]
fn sas_wins_over_key_and_loses_its_question_mark() {
    let text = "AccountName=a;AccountKey=a2V5;SharedAccessSignature=?sv=1&sig=x";
    let parsed = ConnectionString::parse(text).unwrap();
    assert_eq!(parsed.auth, StringAuth::Sas(Secret::new("sv=1&sig=x")));
    let parsed = ConnectionString::parse("AccountName=a").unwrap();
    assert_eq!(parsed.auth, StringAuth::Anonymous);
}

#[test]
fn errors_name_the_part_and_show_the_form() {
    for (text, part) in [
        ("", "it is empty"),
        ("AccountName=a;AccountKey", "part 2 (after AccountName) has no `=`"),
        ("AccountNam=a;AccountKey=a2V5", "did you mean AccountName?"),
        ("AccountName=a;AccountKey=not base64!", "AccountKey is not base64"),
        ("AccountName=a;AccountName=b", "AccountName stands there twice"),
        ("AccountName=;AccountKey=a2V5", "AccountName has no value"),
        ("AccountKey=a2V5", "neither AccountName nor BlobEndpoint"),
        ("AccountName=a b;AccountKey=a2V5", "AccountName may hold only"),
        ("BlobEndpoint=nonsense;AccountName=a", "BlobEndpoint is no http"),
        ("BlobEndpoint=https://a.blob.core.windows.net/?sig=x", "put it in SharedAccessSignature"),
        ("AccountName=a;DefaultEndpointsProtocol=ftp", "takes `https` or `http`"),
        ("AccountName=a;SharedAccessSignature=sv=1", "no `sig=` part"),
        ("UseDevelopmentStorage=maybe", "takes only `true`"),
        ("BlobEndpoint=http://127.0.0.1:1;AccountKey=a2V5", "no AccountName"),
    ] {
        let error = ConnectionString::parse(text).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains(part), "{text}: {error}");
        assert!(error.hint().unwrap().contains("AccountName=NAME"), "{error}");
    }
}

proptest! {
    /// Whatever a slip of the hand does to the string, no piece of the key gets into an error.
    #[test]
    fn no_error_repeats_a_piece_of_the_key(cut in 0usize..200, add in "[;= A-Za-z]{0,3}") {
        let key = "UXV1eFp5WndXdlZ1VXRUc1NyUnFRcFBvT25ObU1sTGtLakppSWhIZ0dmRmVFZERjQ2JCYUE9PQ==";
        let whole = format!("DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={key};X");
        let cut = cut.min(whole.len());
        let text = format!("{}{add}{}", &whole[..cut], &whole[cut..]);
        if let Err(error) = ConnectionString::parse(&text) {
            let shown = format!("{error} {error:?}");
            for piece in 0..key.len() - 8 {
                prop_assert!(!shown.contains(&key[piece..piece + 8]), "{}", shown);
            }
        }
    }

    #[test]
    fn any_text_ends_without_panic(text: String) {
        let _ = ConnectionString::parse(&text);
    }
}
