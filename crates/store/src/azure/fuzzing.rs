//! Bodies for a fuzzer: answers of Azure Blob, and what users and clients name things by.

use super::address::Address;
use super::block::Upload;
use super::connection_string::ConnectionString;
use super::hierarchy::Walk;
use super::hierarchy::fork::Sight;
use super::list::Token;
use super::{batch, list, metadata, versions};
use crate::{UploadId, encoded_word};

/// Lists of blobs, containers and blocks.
pub(crate) fn replies(input: &[u8]) {
    for start_after in [None, Some("a")] {
        if let Ok(listing) = list::parse(input) {
            let page = listing.flat(start_after);
            assert!(page.objects.len() <= input.len(), "more objects than bytes");
        }
        if let Ok(listing) = list::parse(input) {
            let mut walk = start_after.map_or(Walk::all("", None), |it| Walk::behind("", it, &[]));
            let looked: Vec<_> =
                walk.open(&listing).into_iter().map(|node| (node, Sight::default())).collect();
            if let Ok(names) = walk.take(listing, &looked) {
                let page = walk.page(Vec::new(), names, ("", None));
                assert!(page.objects.len() <= input.len(), "more objects than bytes");
            }
        }
    }
    drop(list::parse_containers(input));
    drop(versions::parse_page(input));
    for upload in Upload::found_in("c/k", input).unwrap_or_default() {
        drop(upload.blocks_in(input));
    }
}

/// The answer to a batch of two.
pub(crate) fn batch(input: &[u8]) {
    if let Ok(answers) = batch::parse("multipart/mixed; boundary=b", input, 2) {
        assert_eq!(answers.len(), 2, "an answer for each request");
    }
}

/// Addresses, connection strings, upload ids, and names and values of metadata.
pub(crate) fn ids(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    drop(Address::parse(&text));
    drop(ConnectionString::parse(&text));
    if let Ok(upload) = Upload::parse(&UploadId(text.to_string()), "c/k") {
        assert!(Upload::parse(&UploadId(text.to_string()), "c/other").is_err(), "another key's id");
        drop(upload.options());
    }
    metadata::decode_name(&text);
    encoded_word::decode(&text);
    assert_eq!(encoded_word::decode(&encoded_word::encode(&text)), text, "a value that changed");
}

/// Tokens of lists, which come back from clients.
pub(crate) fn tokens(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(token) = Token::parse(&text) {
        let told = token.text();
        let again = Token::parse(&told);
        assert!(again.is_ok_and(|again| again == token), "a token that changed: {told}");
        assert!(token.marker.len() <= text.len(), "a marker of more bytes than there are");
    }
    if let Ok(Some(mut walk)) = Walk::parse(&text, "") {
        let again = Walk::parse(&walk.text(), "");
        assert!(again.is_ok_and(|again| again == Some(walk.clone())), "a walk that changed");
        drop(walk.turn(false));
        drop(walk.take(list::Listing::default(), &[]));
    }
    let (marker, name) = text.split_once('\n').unwrap_or((&text, ""));
    for start_after in [None, Some(name.to_string())] {
        let token = Token { marker: marker.to_string(), start_after };
        let again = Token::parse(&token.text());
        assert!(again.is_ok_and(|again| again == token), "a token that is not read back");
    }
}
