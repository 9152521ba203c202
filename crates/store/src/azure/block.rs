//! Names of uploads and of their blocks. Pure.
//!
//! Azure has no upload ids: blocks belong to the blob, and whoever commits a list of block ids
//! decides. So each upload carries a random nonce in every block id, and two writers' blocks can
//! never mix. All ids have one length, as Azure demands. They also tell the storage class that was
//! asked for, so that a list of uploads does. An upload's id is all that there is of
//! it besides its blocks: nonce, what it began with, and a sum that ties it to its blob, so that
//! any process can go on with it and an id of something else is noticed.
//!
//! A part that is sent again is another block: its id and the part's tag carry a mark of the
//! sending, so that a tag names the bytes that were sent with it and no others. Uploads that older
//! versions began have one block for a part, whatever was sent; they go on so.

use super::tier;
use crate::sums::split_tag;
use crate::{Part, PutOptions, UploadId, notes, xml};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use penstock_base::{Error, Kind, Result};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const NONCE_BYTES: usize = 16;
/// The bytes of a nonce that are not 0 where blocks have marks: the ids of all blocks of a blob
/// have one length, those of its older versions and uploads too, so that a mark takes their place.
const MARKED_NONCE_BYTES: usize = 10;
/// Nonce, one byte for the layout's version and the class, the part's number: 28 characters
/// without padding. With a mark: nonce, number, half the mark, the byte, the other half.
const ID_BYTES: usize = NONCE_BYTES + 1 + 4;
const LAYOUT: u8 = 1;
/// The layout of block ids with a mark.
const LAYOUT_MARKED: u8 = 2;
/// Where the class stands in the byte of a block id that has the layout.
const CLASS_SHIFT: u32 = 4;
/// The same in the id of an upload that was found by its blocks, which do not tell what it began
/// with.
const FOUND: u8 = 2;
/// The same in the id of an upload with a class, whose blocks tell it. Of one that older versions
/// began (with [`LAYOUT`]) the blocks tell none.
const CLASSED: u8 = 3;
/// The same in the id of an upload whose blocks have marks, and tell the class.
const MARKED: u8 = 4;
/// The same of one that was found by its blocks.
const FOUND_MARKED: u8 = 5;
/// Bytes of the sum at the end of an upload's id.
const SUM_BYTES: usize = 8;
/// The number in the id of the block that marks an upload as given up.
const GIVEN_UP: u32 = u32::MAX;
/// The same where blocks have marks: their numbers have two bytes.
const GIVEN_UP_MARKED: u16 = u16::MAX;
/// Bits of a mark that are random; those above are milliseconds since 1970.
const MARK_RANDOM_BITS: u32 = 16;

/// What tells one sending of a part from another: its time, so that the newest of a part's blocks
/// is known, and random bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u64);

impl Mark {
    /// Another one each time, greater than those of earlier milliseconds.
    pub fn new() -> Self {
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let random = u16::from_be_bytes(crate::random::bytes());
        Mark(now_ms << MARK_RANDOM_BITS | u64::from(random))
    }
}

/// One upload: its nonce, and the options it began with, since Azure keeps nothing before the
/// commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    nonce: [u8; NONCE_BYTES],
    /// `None` for an upload that was found by its blocks.
    begun: Option<Begun>,
    /// The number of its storage class.
    class: u8,
    /// Whether its blocks have marks.
    has_marks: bool,
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
    /// By number, those of one number from the oldest to the newest.
    pub parts: Vec<Staged>,
    /// The upload was given up.
    pub is_given_up: bool,
}

/// A block that waits for its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Staged {
    pub number: u32,
    pub mark: Mark,
    pub size_bytes: u64,
}

impl Upload {
    /// A new upload to a place, which is container and key. Names of metadata are in lower case, as
    /// the service's are, and each is there once.
    pub fn begin(place: &str, options: &PutOptions) -> Self {
        let mut metadata: Vec<(String, String)> = Vec::new();
        for (name, value) in &options.metadata {
            let name = name.to_ascii_lowercase();
            if metadata.iter().all(|pair| pair.0 != name) {
                metadata.push((name, value.clone()));
            }
        }
        let begun = Begun { content_type: options.content_type.clone(), metadata };
        let class = class_of(&begun);
        let mut nonce = [0; NONCE_BYTES];
        let random: [u8; MARKED_NONCE_BYTES] = crate::random::bytes();
        nonce[..MARKED_NONCE_BYTES].copy_from_slice(&random);
        Upload { nonce, begun: Some(begun), class, has_marks: true, place: place.to_string() }
    }

    /// The text that names it: layout, nonce, the options where there are any, and the sum.
    pub fn id(&self) -> UploadId {
        let layout = match (&self.begun, self.class) {
            (None, _) if self.has_marks => FOUND_MARKED,
            (None, _) => FOUND,
            _ if self.has_marks => MARKED,
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
    /// `NotFound` for what this store never gave out for this place. Whoever may write there could
    /// make an id up: what they can say with it is what they could have begun an upload with.
    pub fn parse(id: &UploadId, place: &str) -> Result<Self> {
        let gone =
            || Error::new(Kind::NotFound, "no such upload").with_service_code("NoSuchUpload");
        let bytes = URL_SAFE_NO_PAD.decode(&id.0).map_err(|_| gone())?;
        let told_at = bytes.len().checked_sub(SUM_BYTES).ok_or_else(gone)?;
        let (told, told_sum) = bytes.split_at(told_at);
        if told.len() <= NONCE_BYTES
            || ![LAYOUT, FOUND, CLASSED, MARKED, FOUND_MARKED].contains(&told[0])
            || sum(place, told) != *told_sum
        {
            return Err(gone());
        }
        let (nonce, begun) = told[1..].split_at(NONCE_BYTES);
        let is_found = [FOUND, FOUND_MARKED].contains(&told[0]);
        let has_marks = [MARKED, FOUND_MARKED].contains(&told[0]);
        let (begun, class) = match begun {
            [] if is_found => (None, 0),
            [class] if is_found => (None, *class),
            _ if is_found => return Err(gone()),
            [] => (Some(Begun::default()), 0),
            json => {
                let begun: Begun = serde_json::from_slice(json).map_err(|_| gone())?;
                if !are_names(&begun.metadata) {
                    return Err(gone());
                }
                let class = if told[0] == LAYOUT { 0 } else { class_of(&begun) };
                (Some(begun), class)
            }
        };
        let nonce = nonce.try_into().map_err(|_| gone())?;
        Ok(Upload { nonce, begun, class, has_marks, place: place.to_string() })
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
                && let Some(BlockId { nonce, class, number, has_marks, .. }) =
                    split_id(element.text)
            {
                if number == GIVEN_UP {
                    given_up.insert((nonce, has_marks));
                } else {
                    found.insert((nonce, has_marks), class);
                }
            }
            Ok(())
        })?;
        found.retain(|of, _| !given_up.contains(of));
        let upload = |((nonce, has_marks), class)| Upload {
            nonce,
            begun: None,
            class,
            has_marks,
            place: place.to_string(),
        };
        Ok(found.into_iter().map(upload).collect())
    }

    /// The mark of a part that is to be sent; always the same where blocks have none.
    pub fn new_mark(&self) -> Mark {
        if self.has_marks { Mark::new() } else { Mark::default() }
    }

    /// The block id of a part, in base64.
    pub fn block_id(&self, part_number: u32, mark: Mark) -> String {
        let mut bytes = [0; ID_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce);
        let class = self.class << CLASS_SHIFT;
        if self.has_marks {
            let number = u16::try_from(part_number).unwrap_or(GIVEN_UP_MARKED);
            let mark = mark.0.to_be_bytes();
            bytes[MARKED_NONCE_BYTES..][..2].copy_from_slice(&number.to_be_bytes());
            bytes[MARKED_NONCE_BYTES + 2..NONCE_BYTES].copy_from_slice(&mark[..4]);
            bytes[NONCE_BYTES] = LAYOUT_MARKED | class;
            bytes[NONCE_BYTES + 1..].copy_from_slice(&mark[4..]);
        } else {
            bytes[NONCE_BYTES] = LAYOUT | class;
            bytes[NONCE_BYTES + 1..].copy_from_slice(&part_number.to_be_bytes());
        }
        STANDARD.encode(bytes)
    }

    /// What a block id tells, if the block is one of this upload.
    fn own(&self, block_id: &str) -> Option<BlockId> {
        let is_own = |id: &BlockId| id.nonce == self.nonce && id.has_marks == self.has_marks;
        split_id(block_id).filter(is_own)
    }

    /// The id of the block that marks this upload as given up.
    pub fn given_up_id(&self) -> String {
        self.block_id(GIVEN_UP, Mark::default())
    }

    /// The tag of a part: known from number, size and mark alone, so that the block list tells it
    /// again. It tells the mark. It has a dash, so that no client takes it for an MD5.
    pub fn part_tag(&self, part_number: u32, size_bytes: u64, mark: Mark) -> String {
        let mut text = self.nonce.to_vec();
        text.extend(part_number.to_be_bytes());
        text.extend(size_bytes.to_be_bytes());
        let (told, mark) = match self.has_marks {
            true => (8, crate::random::hex(&mark.0.to_be_bytes())),
            false => (12, String::new()),
        };
        text.extend(mark.as_bytes());
        let hash = digest(&SHA256, &text);
        let hex = crate::random::hex(&hash.as_ref()[..told]);
        format!("{mark}{hex}-{part_number}")
    }

    /// The mark that a part's tag tells; `None` for a tag that is none of such a part. Where blocks
    /// have no marks, every tag is taken: the number names the block.
    pub fn mark_of(&self, part: &Part) -> Option<Mark> {
        if !self.has_marks {
            return Some(Mark::default());
        }
        let (tag, _) = split_tag(&part.etag);
        let mark = tag.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).map(Mark)?;
        (tag == self.part_tag(part.number, part.size_bytes, mark)).then_some(mark)
    }

    /// The parts of this upload that the answer of Get Block List tells of, by number.
    ///
    /// # Errors
    /// `Corrupt` for what is no such answer.
    pub fn blocks_in(&self, answer: &[u8]) -> Result<Blocks> {
        let mut blocks = Blocks::default();
        let (mut own, mut size_bytes) = (None, 0);
        xml::walk(answer, |element| {
            if element.path[0] != "BlockList" {
                return Err(xml::corrupt("the answer is no list of blocks"));
            }
            if element.is_at(&["UncommittedBlocks", "Block", "Name"]) {
                own = self.own(element.text);
            } else if element.is_at(&["UncommittedBlocks", "Block", "Size"]) {
                let told = element.text.trim().parse();
                size_bytes = told.map_err(|_| xml::corrupt("the size of a block is no number"))?;
            } else if element.is_at(&["UncommittedBlocks", "Block"]) {
                match own.take() {
                    Some(BlockId { number: GIVEN_UP, .. }) => blocks.is_given_up = true,
                    Some(BlockId { number, mark, .. }) => {
                        blocks.parts.push(Staged { number, mark, size_bytes });
                    }
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
    pub fn block_list(&self, parts: impl Iterator<Item = (u32, Mark)>) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for (number, mark) in parts {
            xml.push_str("<Uncommitted>");
            xml.push_str(&self.block_id(number, mark));
            xml.push_str("</Uncommitted>");
        }
        xml.push_str("</BlockList>");
        xml
    }
}

/// Whether all names are as an upload begins with: the blob might have others under another name
/// than whoever judges them here sees.
fn are_names(metadata: &[(String, String)]) -> bool {
    metadata.iter().enumerate().all(|(at, (name, _))| {
        let is_first = metadata[..at].iter().all(|other| other.0 != *name);
        is_first && !name.bytes().any(|byte| byte.is_ascii_uppercase())
    })
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
    mark: Mark,
    has_marks: bool,
}

/// Takes the id of a block apart; `None` for ids that are not of these layouts.
fn split_id(block_id: &str) -> Option<BlockId> {
    let bytes: [u8; ID_BYTES] = STANDARD.decode(block_id.trim()).ok()?.try_into().ok()?;
    let (front, rest) = bytes.split_at(NONCE_BYTES);
    let (layout, rest) = rest.split_first()?;
    let class = layout >> CLASS_SHIFT;
    let mut nonce: [u8; NONCE_BYTES] = front.try_into().ok()?;
    match layout & ((1 << CLASS_SHIFT) - 1) {
        LAYOUT => {
            let number = rest.try_into().map(u32::from_be_bytes).ok()?;
            Some(BlockId { nonce, class, number, mark: Mark::default(), has_marks: false })
        }
        LAYOUT_MARKED => {
            let (number, mark) = front[MARKED_NONCE_BYTES..].split_at(2);
            let mark = Mark(u64::from_be_bytes([mark, rest].concat().try_into().ok()?));
            let number = match number.try_into().map(u16::from_be_bytes).ok()? {
                GIVEN_UP_MARKED => GIVEN_UP,
                number => number.into(),
            };
            nonce[MARKED_NONCE_BYTES..].fill(0);
            Some(BlockId { nonce, class, number, mark, has_marks: true })
        }
        _ => None,
    }
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
mod tests;
