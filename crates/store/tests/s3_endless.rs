//! Lists of S3 that name the same next page again and again.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use common::{KEY, Script, client, read_request, xml};
use penstock_base::Kind;
use penstock_store::streaming::UploadsRequest;
use penstock_store::{Account as _, S3Account, StoreOptions, UploadId};
use tokio::io::AsyncWriteExt;

/// A service that passes over the marker tells the same page for ever; what was read until then is
/// not all there is.
#[tokio::test]
async fn lists_of_uploads_and_parts_that_do_not_go_on_are_errors() {
    let script = Script::start(|_, mut stream| async move {
        while let Some((head, _)) = read_request(&mut stream).await {
            let body = match head.contains("uploadId=") {
                true => {
                    "<ListPartsResult><Part><PartNumber>1</PartNumber><ETag>a</ETag><Size>1</Size>\
                     </Part><IsTruncated>true</IsTruncated>\
                     <NextPartNumberMarker>1</NextPartNumberMarker></ListPartsResult>"
                }
                false => {
                    "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>1</UploadId></Upload>\
                     <IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>\
                     <NextUploadIdMarker>1</NextUploadIdMarker></ListMultipartUploadsResult>"
                }
            };
            if stream.write_all(xml("200 OK", body).as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let endpoint = script.address.to_string();
    let options = [("endpoint", endpoint.as_str()), ("use_ssl", "false")];
    let options = StoreOptions::new(options.iter().chain(KEY).copied()).unwrap();
    let account = S3Account::new(&client().0, "s3://", &options).unwrap();
    let store = account.open("bucket").await.unwrap();
    let mut request = UploadsRequest { max: 10, ..UploadsRequest::default() };
    let first = store.list_uploads(&request).await.unwrap();
    assert_eq!(first.uploads.len(), 1);
    request.token = first.next;
    for error in [
        store.list_uploads(&request).await.unwrap_err(),
        store.list_parts("k", &UploadId("1".to_string())).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.message().contains("same one again"), "{error}");
        assert!(error.object().is_some() && error.hint().is_some(), "{error}");
    }
}
