//! Names of uploads and of their blocks. Pure.
//!
//! Azure has no upload ids: blocks belong to the blob, and whoever commits a list of block ids
//! decides. So each upload carries a random nonce in every block id, and two writers' blocks can
//! never mix. All ids have one length, as Azure demands.

use crate::{PutOptions, UploadId, xml};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use penstock_base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

const NONCE_BYTES: usize = 16;
/// Nonce, one byte for the layout's version, the part's number: 28 characters without padding.
const ID_BYTES: usize = NONCE_BYTES + 1 + 4;
const LAYOUT: u8 = 1;

/// One upload: its nonce, and the options it began with, since Azure keeps nothing before the
/// commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    nonce: [u8; NONCE_BYTES],
    begun: Begun,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    #[serde(default, rename = "t", skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, rename = "m", skip_serializing_if = "Vec::is_empty")]
    metadata: Vec<(String, String)>,
}

impl Upload {
    /// A new upload.
    pub fn begin(options: &PutOptions) -> Self {
        let begun = Begun {
            content_type: options.content_type.clone(),
            metadata: options.metadata.clone(),
        };
        Upload { nonce: crate::random::bytes(), begun }
    }

    /// The text that names it: the nonce, and the options where there are any.
    pub fn id(&self) -> UploadId {
        let nonce = self.nonce_text();
        if self.begun == Begun::default() {
            return UploadId(nonce);
        }
        let begun =
            serde_json::to_vec(&self.begun).expect("text and lists of text always serialise");
        UploadId(format!("{nonce}.{}", URL_SAFE_NO_PAD.encode(begun)))
    }

    /// Reads the text again.
    ///
    /// # Errors
    /// `NotFound` for what this store never gave out.
    pub fn parse(id: &UploadId) -> Result<Self> {
        let gone = || Error::new(Kind::NotFound, "no such upload");
        let (nonce, begun) = id.0.split_once('.').unwrap_or((&id.0, ""));
        let decoded = URL_SAFE_NO_PAD.decode(nonce).map_err(|_| gone())?;
        let nonce = decoded.try_into().map_err(|_| gone())?;
        let begun = match begun {
            "" => Begun::default(),
            text => {
                let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| gone())?;
                serde_json::from_slice(&json).map_err(|_| gone())?
            }
        };
        Ok(Upload { nonce, begun })
    }

    /// The nonce as text, for the blob's metadata.
    pub fn nonce_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.nonce)
    }

    /// The options that it began with.
    pub fn options(&self) -> PutOptions {
        PutOptions {
            content_type: self.begun.content_type.clone(),
            metadata: self.begun.metadata.clone(),
            ..Default::default()
        }
    }

    /// The block id of a part, in base64.
    pub fn block_id(&self, part_number: u32) -> String {
        let mut bytes = [0; ID_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        bytes[NONCE_BYTES] = LAYOUT;
        bytes[NONCE_BYTES + 1..].copy_from_slice(&part_number.to_be_bytes());
        STANDARD.encode(bytes)
    }

    /// The number of a part from its block id; `None` for blocks of other uploads.
    pub fn part_number(&self, block_id: &str) -> Option<u32> {
        let bytes: [u8; ID_BYTES] = STANDARD.decode(block_id.trim()).ok()?.try_into().ok()?;
        let (start, number) = bytes.split_at(NONCE_BYTES + 1);
        let ours = start[..NONCE_BYTES] == self.nonce && start[NONCE_BYTES] == LAYOUT;
        ours.then(|| number.try_into().map(u32::from_be_bytes).ok())?
    }

    /// The parts of this upload that the answer of Get Block List tells of.
    ///
    /// # Errors
    /// `Corrupt` for what is no such answer.
    pub fn parts_in(&self, answer: &[u8]) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        xml::walk(answer, |element| {
            if element.path[0] != "BlockList" {
                return Err(xml::corrupt("the answer is no list of blocks"));
            }
            if element.is_at(&["UncommittedBlocks", "Block", "Name"]) {
                numbers.extend(self.part_number(element.text));
            }
            Ok(())
        })?;
        Ok(numbers)
    }

    /// The body of Put Block List. Only unfinished blocks are named, so that a commit whose answer
    /// was lost is refused the second time, and the blob stays the version it is.
    pub fn block_list(&self, part_numbers: impl Iterator<Item = u32>) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for number in part_numbers {
            xml.push_str("<Uncommitted>");
            xml.push_str(&self.block_id(number));
            xml.push_str("</Uncommitted>");
        }
        xml.push_str("</BlockList>");
        xml
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn block_list_tells_of_our_parts_only() {
        let upload = Upload::begin(&PutOptions::default());
        let other = Upload::begin(&PutOptions::default());
        let block = |id: String| format!("<Block><Name>{id}</Name><Size>1</Size></Block>");
        let answer = format!(
            "<BlockList><CommittedBlocks>{}</CommittedBlocks><UncommittedBlocks>{}{}{}\
             </UncommittedBlocks></BlockList>",
            block(upload.block_id(9)),
            block(other.block_id(1)),
            block(upload.block_id(2)),
            block("bm90IG91cnM=".into()),
        );
        assert_eq!(upload.parts_in(answer.as_bytes()).unwrap(), [2]);
        for page in ["<html>", "<html><body/></html>", "<Error><Code>x</Code></Error>"] {
            assert_eq!(upload.parts_in(page.as_bytes()).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    proptest! {
        #[test]
        fn ids_have_one_length_and_never_meet(a in 1u32..50_001, b in 1u32..50_001) {
            let begin = || Upload::begin(&PutOptions::default());
            let (one, two) = (begin(), begin());
            let id = one.block_id(a);
            prop_assert_eq!(id.len(), 28);
            prop_assert!(!id.contains('='));
            prop_assert_eq!(one.part_number(&id), Some(a));
            prop_assert_eq!(two.part_number(&id), None);
            prop_assert_eq!(id == one.block_id(b), a == b);
            prop_assert_ne!(id, two.block_id(a));
        }

        #[test]
        fn an_upload_comes_back_from_its_id(
            content_type in prop::option::of(".{0,20}"),
            metadata in prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
        ) {
            let options = PutOptions { content_type, metadata, ..Default::default() };
            let upload = Upload::begin(&options);
            prop_assert_eq!(Upload::parse(&upload.id()).unwrap(), upload);
        }

        #[test]
        fn foreign_ids_are_not_found(id: String) {
            if let Err(error) = Upload::parse(&UploadId(id)) {
                prop_assert_eq!(error.kind(), Kind::NotFound);
            }
        }
    }
}
