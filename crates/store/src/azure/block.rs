//! Names of uploads and of their blocks. Pure.
//!
//! Azure has no upload ids: blocks belong to the blob, and whoever commits a list of block ids
//! decides. So each upload carries a random nonce in every block id, and two writers' blocks can
//! never mix. All ids have one length, as Azure demands. They also tell the storage class that was
//! asked for, so that a list of uploads does. An upload's id is all that there is of
//! it besides its blocks: nonce, what it began with, and a sum that ties it to its blob, so that
//! any process can go on with it and an id of something else is noticed.

use super::tier;
use crate::{PutOptions, UploadId, notes, xml};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use penstock_base::{Error, Kind, Result};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const NONCE_BYTES: usize = 16;
/// Nonce, one byte for the layout's version and the class, the part's number: 28 characters
/// without padding.
const ID_BYTES: usize = NONCE_BYTES + 1 + 4;
const LAYOUT: u8 = 1;
/// Where the class stands in the byte of a block id that has the layout.
const CLASS_SHIFT: u32 = 4;
/// The same in the id of an upload that was found by its blocks, which do not tell what it began
/// with.
const FOUND: u8 = 2;
/// The same in the id of an upload with a class, whose blocks tell it. Of one that older versions
/// began (with [`LAYOUT`]) the blocks tell none.
const CLASSED: u8 = 3;
/// Bytes of the sum at the end of an upload's id.
const SUM_BYTES: usize = 8;
/// The number in the id of the block that marks an upload as given up.
const GIVEN_UP: u32 = u32::MAX;

/// One upload: its nonce, and the options it began with, since Azure keeps nothing before the
/// commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    nonce: [u8; NONCE_BYTES],
    /// `None` for an upload that was found by its blocks.
    begun: Option<Begun>,
    /// The number of its storage class.
    class: u8,
    /// Container and key.
    place: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    #[serde(default, rename = "t", skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, rename = "m", skip_serializing_if = "Vec::is_empty")]
    metadata: Vec<(String, String)>,
}

/// The blocks of one upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Number and size of each part.
    pub parts: Vec<(u32, u64)>,
    /// The upload was given up.
    pub is_given_up: bool,
}

impl Upload {
    /// A new upload to a place, which is container and key.
    pub fn begin(place: &str, options: &PutOptions) -> Self {
        let begun = Begun {
            content_type: options.content_type.clone(),
            metadata: options.metadata.clone(),
        };
        let class = class_of(&begun);
        Upload {
            nonce: crate::random::bytes(),
            begun: Some(begun),
            class,
            place: place.to_string(),
        }
    }

    /// The text that names it: layout, nonce, the options where there are any, and the sum.
    pub fn id(&self) -> UploadId {
        let layout = match (&self.begun, self.class) {
            (None, _) => FOUND,
            (Some(_), 0) => LAYOUT,
            (Some(_), _) => CLASSED,
        };
        let mut bytes = vec![layout];
        bytes.extend(self.nonce);
        if let Some(begun) = self.begun.as_ref().filter(|begun| **begun != Begun::default()) {
            let begun = serde_json::to_vec(begun);
            bytes.extend(begun.expect("text and lists of text always serialise"));
        }
        if self.begun.is_none() && self.class > 0 {
            bytes.push(self.class);
        }
        bytes.extend(sum(&self.place, &bytes));
        UploadId(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads the text again.
    ///
    /// # Errors
    /// `NotFound` for what this store never gave out for this place.
    pub fn parse(id: &UploadId, place: &str) -> Result<Self> {
        let gone =
            || Error::new(Kind::NotFound, "no such upload").with_service_code("NoSuchUpload");
        let bytes = URL_SAFE_NO_PAD.decode(&id.0).map_err(|_| gone())?;
        let told_at = bytes.len().checked_sub(SUM_BYTES).ok_or_else(gone)?;
        let (told, told_sum) = bytes.split_at(told_at);
        if told.len() <= NONCE_BYTES
            || ![LAYOUT, FOUND, CLASSED].contains(&told[0])
            || sum(place, told) != *told_sum
        {
            return Err(gone());
        }
        let (nonce, begun) = told[1..].split_at(NONCE_BYTES);
        let (begun, class) = match begun {
            [] if told[0] == FOUND => (None, 0),
            [class] if told[0] == FOUND => (None, *class),
            _ if told[0] == FOUND => return Err(gone()),
            [] => (Some(Begun::default()), 0),
            json => {
                let begun: Begun = serde_json::from_slice(json).map_err(|_| gone())?;
                let class = if told[0] == CLASSED { class_of(&begun) } else { 0 };
                (Some(begun), class)
            }
        };
        let nonce = nonce.try_into().map_err(|_| gone())?;
        Ok(Upload { nonce, begun, class, place: place.to_string() })
    }

    /// The nonce as text, for the blob's metadata.
    pub fn nonce_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.nonce)
    }

    /// The metadata that it began with, as far as its id tells: of an upload that was found by its
    /// blocks the class.
    pub fn metadata(&self) -> Vec<(String, String)> {
        let found = || {
            let class = tier::class_at(self.class);
            class.map(|class| (notes::STORAGE_CLASS.to_string(), class.to_string()))
        };
        match &self.begun {
            Some(begun) => begun.metadata.clone(),
            None => found().into_iter().collect(),
        }
    }

    /// The options that it began with.
    ///
    /// # Errors
    /// `Unsupported` for an upload that was found by its blocks: completed, it would lose them.
    pub fn options(&self) -> Result<PutOptions> {
        let begun = self.begun.as_ref().ok_or_else(|| {
            let why = "a list of uploads does not tell what an upload began with";
            Error::new(Kind::Unsupported, why)
                .with_hint("Complete it with the id that it was created with, or abort it")
        })?;
        Ok(PutOptions {
            content_type: begun.content_type.clone(),
            metadata: begun.metadata.clone(),
            ..Default::default()
        })
    }

    /// The uploads of a place whose blocks the answer of Get Block List tells of. Those that were
    /// given up are left out.
    ///
    /// # Errors
    /// `Corrupt` for what is no such answer.
    pub fn found_in(place: &str, answer: &[u8]) -> Result<Vec<Upload>> {
        let (mut found, mut given_up) = (BTreeMap::new(), BTreeSet::new());
        xml::walk(answer, |element| {
            if element.path[0] != "BlockList" {
                return Err(xml::corrupt("the answer is no list of blocks"));
            }
            if element.is_at(&["UncommittedBlocks", "Block", "Name"])
                && let Some(BlockId { nonce, class, number }) = split_id(element.text)
            {
                if number == GIVEN_UP {
                    given_up.insert(nonce);
                } else {
                    found.insert(nonce, class);
                }
            }
            Ok(())
        })?;
        found.retain(|nonce, _| !given_up.contains(nonce));
        let upload =
            |(nonce, class)| Upload { nonce, begun: None, class, place: place.to_string() };
        Ok(found.into_iter().map(upload).collect())
    }

    /// The block id of a part, in base64.
    pub fn block_id(&self, part_number: u32) -> String {
        let mut bytes = [0; ID_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        bytes[NONCE_BYTES] = LAYOUT | (self.class << CLASS_SHIFT);
        bytes[NONCE_BYTES + 1..].copy_from_slice(&part_number.to_be_bytes());
        STANDARD.encode(bytes)
    }

    /// The number of a part from its block id; `None` for blocks of other uploads.
    pub fn part_number(&self, block_id: &str) -> Option<u32> {
        let id = split_id(block_id)?;
        (id.nonce == self.nonce).then_some(id.number)
    }

    /// The id of the block that marks this upload as given up.
    pub fn given_up_id(&self) -> String {
        self.block_id(GIVEN_UP)
    }

    /// The tag of a part: known from number and size alone, so that the block list tells it again.
    /// It has a dash, so that no client takes it for an MD5.
    pub fn part_tag(&self, part_number: u32, size_bytes: u64) -> String {
        let mut text = self.nonce.to_vec();
        text.extend(part_number.to_be_bytes());
        text.extend(size_bytes.to_be_bytes());
        let hash = digest(&SHA256, &text);
        let hex = crate::random::hex(&hash.as_ref()[..12]);
        format!("{hex}-{part_number}")
    }

    /// The parts of this upload that the answer of Get Block List tells of, by number.
    ///
    /// # Errors
    /// `Corrupt` for what is no such answer.
    pub fn blocks_in(&self, answer: &[u8]) -> Result<Blocks> {
        let mut blocks = Blocks::default();
        let (mut number, mut size) = (None, 0);
        xml::walk(answer, |element| {
            if element.path[0] != "BlockList" {
                return Err(xml::corrupt("the answer is no list of blocks"));
            }
            if element.is_at(&["UncommittedBlocks", "Block", "Name"]) {
                number = self.part_number(element.text);
            } else if element.is_at(&["UncommittedBlocks", "Block", "Size"]) {
                let told = element.text.trim().parse();
                size = told.map_err(|_| xml::corrupt("the size of a block is no number"))?;
            } else if element.is_at(&["UncommittedBlocks", "Block"]) {
                match number.take() {
                    Some(GIVEN_UP) => blocks.is_given_up = true,
                    Some(number) => blocks.parts.push((number, size)),
                    None => {}
                }
            }
            Ok(())
        })?;
        blocks.parts.sort_unstable();
        Ok(blocks)
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

/// The number of the class that an upload began with.
fn class_of(begun: &Begun) -> u8 {
    let pair = begun.metadata.iter().find(|pair| pair.0 == notes::STORAGE_CLASS);
    tier::number_of(pair.map(|pair| pair.1.as_str()))
}

/// What the id of a block tells.
struct BlockId {
    nonce: [u8; NONCE_BYTES],
    class: u8,
    number: u32,
}

/// Takes the id of a block apart; `None` for ids that are not of this layout.
fn split_id(block_id: &str) -> Option<BlockId> {
    let bytes: [u8; ID_BYTES] = STANDARD.decode(block_id.trim()).ok()?.try_into().ok()?;
    let (nonce, rest) = bytes.split_at(NONCE_BYTES);
    let (layout, number) = rest.split_first()?;
    let number = number.try_into().map(u32::from_be_bytes).ok()?;
    let class = layout >> CLASS_SHIFT;
    let is_ours = layout & ((1 << CLASS_SHIFT) - 1) == LAYOUT;
    is_ours.then_some(BlockId { nonce: nonce.try_into().ok()?, class, number })
}

/// Ties what an id tells to its place. No secret is in it: whoever may write to a place could as
/// well begin an upload there.
fn sum(place: &str, told: &[u8]) -> [u8; SUM_BYTES] {
    let text = [place.as_bytes(), &[0], told].concat();
    let hash = digest(&SHA256, &text);
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&hash.as_ref()[..SUM_BYTES]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn block_list_tells_of_our_parts_only() {
        let upload = Upload::begin("c/k", &PutOptions::default());
        let other = Upload::begin("c/k", &PutOptions::default());
        let block = |id: String| format!("<Block><Name>{id}</Name><Size>1</Size></Block>");
        let answer = format!(
            "<BlockList><CommittedBlocks>{}</CommittedBlocks><UncommittedBlocks>{}{}{}\
             </UncommittedBlocks></BlockList>",
            block(upload.block_id(9)),
            block(other.block_id(1)),
            block(upload.block_id(2)),
            block("bm90IG91cnM=".into()),
        );
        let blocks = upload.blocks_in(answer.as_bytes()).unwrap();
        assert_eq!(blocks, Blocks { parts: vec![(2, 1)], is_given_up: false });
        let found = Upload::found_in("c/k", answer.as_bytes()).unwrap();
        assert_eq!(found.len(), 2, "both uploads, and no foreign block");
        let again = Upload::parse(&found[0].id(), "c/k").unwrap();
        assert_eq!(again, found[0]);
        assert_eq!(again.options().unwrap_err().kind(), Kind::Unsupported);
        let marked = format!(
            "<BlockList><UncommittedBlocks>{}</UncommittedBlocks></BlockList>",
            block(upload.given_up_id()),
        );
        assert!(upload.blocks_in(marked.as_bytes()).unwrap().is_given_up);
        for page in ["<html>", "<html><body/></html>", "<Error><Code>x</Code></Error>"] {
            assert_eq!(upload.blocks_in(page.as_bytes()).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    /// So that a list of uploads tells it.
    #[test]
    fn blocks_tell_the_class_that_was_asked_for() {
        let pair = |class: &str| (notes::STORAGE_CLASS.to_string(), class.to_string());
        for class in ["STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "DEEP_ARCHIVE", "GLACIER"] {
            let options = PutOptions { metadata: vec![pair(class)], ..Default::default() };
            let upload = Upload::begin("c/k", &options);
            let block = upload.block_id(7);
            let answer = format!(
                "<BlockList><UncommittedBlocks><Block><Name>{block}</Name><Size>1</Size></Block>\
                 </UncommittedBlocks></BlockList>"
            );
            let found = Upload::found_in("c/k", answer.as_bytes()).unwrap();
            assert_eq!(found[0].metadata(), [pair(class)]);
            let again = Upload::parse(&found[0].id(), "c/k").unwrap();
            assert_eq!((again.metadata(), again.block_id(7)), (vec![pair(class)], block));
            assert_eq!(Upload::parse(&upload.id(), "c/k").unwrap(), upload);
        }
    }

    /// Older versions staged blocks that tell no class, and a commit has to name those.
    #[test]
    fn an_upload_that_an_older_version_began_goes_on_under_its_own_block_ids() {
        let class = (notes::STORAGE_CLASS.to_string(), "STANDARD_IA".to_string());
        let options = PutOptions { metadata: vec![class.clone()], ..Default::default() };
        let now = Upload::begin("c/k", &options);
        let mut told = URL_SAFE_NO_PAD.decode(now.id().0).unwrap();
        told.truncate(told.len() - SUM_BYTES);
        assert_eq!(std::mem::replace(&mut told[0], LAYOUT), CLASSED);
        told.extend(sum("c/k", &told));
        let old = Upload::parse(&UploadId(URL_SAFE_NO_PAD.encode(told)), "c/k").unwrap();
        assert_eq!(old.options().unwrap().metadata, [class]);
        let layout = |upload: &Upload| STANDARD.decode(upload.block_id(1)).unwrap()[NONCE_BYTES];
        assert_eq!((layout(&old), layout(&now)), (LAYOUT, LAYOUT | 1 << CLASS_SHIFT));
        assert_eq!(Upload::parse(&old.id(), "c/k").unwrap(), old);
    }

    proptest! {
        #[test]
        fn ids_have_one_length_and_never_meet(a in 1u32..50_001, b in 1u32..50_001) {
            let begin = || Upload::begin("c/k", &PutOptions::default());
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
            let upload = Upload::begin("c/k", &options);
            let elsewhere = Upload::parse(&upload.id(), "c/other");
            prop_assert_eq!(elsewhere.unwrap_err().kind(), Kind::NotFound);
            prop_assert_eq!(Upload::parse(&upload.id(), "c/k").unwrap(), upload);
        }

        #[test]
        fn foreign_ids_are_not_found(id: String) {
            if let Err(error) = Upload::parse(&UploadId(id), "c/k") {
                prop_assert_eq!(error.kind(), Kind::NotFound);
            }
        }
    }
}
