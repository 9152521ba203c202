//! AES as DuckDB asks for it: GCM and CTR, a piece of a message at a time, with keys of 128, 192
//! and 256 bits; SHA-256 and its HMAC; random bytes. It decides how a message becomes another one,
//! and nothing of keys and nonces: DuckDB makes, keeps and stores them.
//!
//! The ciphers are RustCrypto's, by the instructions that the processor has. GCM is put together
//! here, since DuckDB hands a message over in pieces; `wide_hash.rs` hashes much of one faster.
//! docs/design/encryption.md says why.

use crate::wide_hash::{WIDE_BYTES, WideHash};
use aes::cipher::{BlockCipherEncrypt, InnerIvInit, StreamCipher, StreamCipherCoreWrapper};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc, Block};
use ctr::cipher::consts::U16;
use ctr::cipher::{BlockSizeUser, KeyInit};
use ctr::flavors::{Ctr32BE, Ctr128BE};
use ctr::{CtrCore, CtrFlavor};
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use penstock_base::{Error, Kind, Result};
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::OnceCell;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a block, and of a tag.
pub(crate) const BLOCK_BYTES: usize = 16;
/// What is encrypted and hashed in turn: it stays in the processor's first cache.
pub(crate) const PIECE_BYTES: usize = 4096;
/// More than that and the counter of GCM would begin anew.
const GCM_BYTES_MAX: u64 = (1 << 36) - 32;
/// The shortest tag that is believed (NIST SP 800-38D, section 5.2.1.2).
const CHECKED_BYTES_MIN: usize = 12;
/// DuckDB's own words, by which its tests and its users know the failure.
const TAGS_DIFFER: &str =
    "Computed AES tag differs from read AES tag, are you using the right key?";

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// With a tag that says whether the message is the one that was encrypted.
    Gcm,
    /// Without.
    Ctr,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

/// Which message: its key, its nonce, and what else its tag answers for.
#[derive(Clone, Copy)]
pub(crate) struct Sealing<'a> {
    pub key: &'a [u8],
    pub nonce: &'a [u8],
    pub also: &'a [u8],
}

/// One message that is being encrypted or decrypted. The key is wiped from memory with it.
pub(crate) struct Message {
    keystream: Box<dyn StreamCipher + Send>,
    direction: Direction,
    tag: Option<Tag>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("direction", &self.direction).finish_non_exhaustive()
    }
}

fn internal(message: impl Into<String>) -> Error {
    Error::new(Kind::Internal, message)
}

impl Message {
    /// Begins one; an error where AES has no such key, or the cipher no such nonce.
    pub(crate) fn new(cipher: Cipher, direction: Direction, of: Sealing<'_>) -> Result<Self> {
        match of.key.len() {
            16 => Self::with::<Aes128Enc>(cipher, direction, of),
            24 => Self::with::<Aes192Enc>(cipher, direction, of),
            32 => Self::with::<Aes256Enc>(cipher, direction, of),
            bytes => {
                let error = format!("AES has no key of {bytes} bytes, so nothing was encrypted");
                let hint = "Give a key of 16, 24 or 32 bytes";
                Err(Error::new(Kind::Invalid, error).with_hint(hint))
            }
        }
    }

    fn with<A>(cipher: Cipher, direction: Direction, of: Sealing<'_>) -> Result<Self>
    where
        A: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + 'static,
    {
        let aes = A::new_from_slice(of.key).map_err(|_| internal("the key has no such size"))?;
        match cipher {
            Cipher::Ctr => {
                let first: [u8; BLOCK_BYTES] = of.nonce.try_into().map_err(|_| {
                    internal(format!("AES-CTR has no nonce of {} bytes", of.nonce.len()))
                })?;
                let keystream = keystream::<A, Ctr128BE>(aes, &first);
                Ok(Message { keystream, direction, tag: None })
            }
            Cipher::Gcm => {
                let (tag, first) = Tag::new(&aes, of)?;
                let keystream = keystream::<A, Ctr32BE>(aes, &first);
                Ok(Message { keystream, direction, tag: Some(tag) })
            }
        }
    }

    /// The next bytes of the message, in place.
    pub(crate) fn apply(&mut self, bytes: &mut [u8]) -> Result<()> {
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if let (Some(tag), Direction::Decrypt) = (&mut self.tag, self.direction) {
                tag.add(piece)?;
            }
            let too_long = |_| internal("the message is longer than its counter counts");
            self.keystream.try_apply_keystream(piece).map_err(too_long)?;
            if let (Some(tag), Direction::Encrypt) = (&mut self.tag, self.direction) {
                tag.add(piece)?;
            }
        }
        Ok(())
    }

    /// Ends the message: its tag.
    pub(crate) fn tag(&mut self) -> Result<[u8; BLOCK_BYTES]> {
        let tag = self.tag.take();
        Ok(tag.ok_or_else(|| internal("the message has no tag, or has ended"))?.finish())
    }

    /// Ends the message: an error unless this is its tag, or the beginning of it.
    pub(crate) fn check_tag(&mut self, read: &[u8]) -> Result<()> {
        let computed = self.tag()?;
        let begin = computed.get(..read.len()).filter(|begin| begin.len() >= CHECKED_BYTES_MIN);
        let begin = begin.ok_or_else(|| internal("AES-GCM has no tag of that size"))?;
        // In a time that does not depend on where they differ.
        if bool::from(begin.ct_eq(read)) {
            return Ok(());
        }
        let hint = "If it is the right one, the file is damaged or was changed: restore it";
        Err(Error::new(Kind::Invalid, TAGS_DIFFER).with_hint(hint))
    }
}

/// What is laid over the bytes, from this value of the counter on.
fn keystream<A, F>(aes: A, first: &[u8; BLOCK_BYTES]) -> Box<dyn StreamCipher + Send>
where
    A: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send + 'static,
    F: CtrFlavor<U16, CtrNonce: Send> + Send + 'static,
{
    let core = CtrCore::<A, F>::inner_iv_init(aes, &Block::from(*first));
    Box::new(StreamCipherCoreWrapper::from_core(core))
}

/// A hash of GCM, and the bytes that do not fill a block yet.
struct Hash {
    key: Zeroizing<[u8; BLOCK_BYTES]>,
    sum: [u8; BLOCK_BYTES],
    narrow: GHash,
    /// Made when there is enough for it.
    wide: OnceCell<Option<WideHash>>,
    rest: [u8; BLOCK_BYTES],
    rest_bytes: usize,
}

impl Hash {
    fn new(key: &[u8; BLOCK_BYTES]) -> Self {
        Hash {
            key: Zeroizing::new(*key),
            sum: [0; BLOCK_BYTES],
            narrow: GHash::new(&Block::from(*key)),
            wide: OnceCell::new(),
            rest: [0; BLOCK_BYTES],
            rest_bytes: 0,
        }
    }

    fn add(&mut self, mut bytes: &[u8]) {
        if self.rest_bytes > 0 {
            let missing = (BLOCK_BYTES - self.rest_bytes).min(bytes.len());
            let (front, behind) = bytes.split_at(missing);
            self.rest[self.rest_bytes..][..missing].copy_from_slice(front);
            self.rest_bytes += missing;
            bytes = behind;
            if self.rest_bytes < BLOCK_BYTES {
                return;
            }
            self.pad();
        }
        if bytes.len() >= WIDE_BYTES
            && let Some(wide) = self.wide.get_or_init(|| WideHash::new(&self.key))
        {
            bytes = wide.add(&mut self.sum, bytes);
        }
        let (whole, rest) = Block::slice_as_chunks(bytes);
        self.add_blocks(whole);
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_bytes = rest.len();
    }

    fn add_blocks(&mut self, blocks: &[Block]) {
        let Some((first, others)) = blocks.split_first() else { return };
        // The sum goes into the first block: a hash that has seen nothing goes on from there.
        let mut joined = *first;
        joined.iter_mut().zip(self.sum).for_each(|(byte, sum)| *byte ^= sum);
        let mut hash = self.narrow.clone();
        hash.update(&[joined]);
        hash.update(others);
        self.sum = hash.finalize().into();
    }

    /// Fills the block that was begun with zeros.
    fn pad(&mut self) {
        if self.rest_bytes > 0 {
            self.rest[self.rest_bytes..].fill(0);
            self.add_blocks(&[Block::from(self.rest)]);
            self.rest_bytes = 0;
        }
    }

    /// Adds the lengths, in bits, and ends.
    fn finish(mut self, first_bytes: u64, second_bytes: u64) -> [u8; BLOCK_BYTES] {
        self.pad();
        let bits = u128::from(first_bytes * 8) << 64 | u128::from(second_bytes * 8);
        self.add_blocks(&[Block::from(bits.to_be_bytes())]);
        self.sum
    }
}

/// The tag of a message so far.
struct Tag {
    hash: Hash,
    /// Laid over the hash, so that the tag does not show it.
    mask: Zeroizing<[u8; BLOCK_BYTES]>,
    also_bytes: u64,
    bytes: u64,
}

impl Tag {
    /// The tag, and the counter of the first block.
    fn new<A>(aes: &A, of: Sealing<'_>) -> Result<(Self, [u8; BLOCK_BYTES])>
    where
        A: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
    {
        let encrypted = |bytes: [u8; BLOCK_BYTES]| {
            let mut block = Block::from(bytes);
            aes.encrypt_block(&mut block);
            Zeroizing::new(<[u8; BLOCK_BYTES]>::from(block))
        };
        let key = encrypted([0; BLOCK_BYTES]);
        let mut counter = [0; BLOCK_BYTES];
        match of.nonce.len() {
            0 => return Err(internal("AES-GCM has no nonce of 0 bytes")),
            12 => {
                counter[..12].copy_from_slice(of.nonce);
                counter[15] = 1;
            }
            bytes => {
                let mut hash = Hash::new(&key);
                hash.add(of.nonce);
                counter = hash.finish(0, bytes as u64);
            }
        }
        let mask = encrypted(counter);
        let (_, last) = counter.split_at_mut(12);
        let next = u32::from_be_bytes([last[0], last[1], last[2], last[3]]).wrapping_add(1);
        last.copy_from_slice(&next.to_be_bytes());
        let mut hash = Hash::new(&key);
        hash.add(of.also);
        hash.pad();
        Ok((Tag { hash, mask, also_bytes: of.also.len() as u64, bytes: 0 }, counter))
    }

    fn add(&mut self, encrypted: &[u8]) -> Result<()> {
        self.bytes += encrypted.len() as u64;
        if self.bytes > GCM_BYTES_MAX {
            return Err(internal("AES-GCM has no message of more than 64 GiB"));
        }
        self.hash.add(encrypted);
        Ok(())
    }

    fn finish(self) -> [u8; BLOCK_BYTES] {
        let mut tag = self.hash.finish(self.also_bytes, self.bytes);
        tag.iter_mut().zip(self.mask.iter()).for_each(|(byte, mask)| *byte ^= mask);
        tag
    }
}

/// Bytes of the system's generator.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| {
        let error = Error::new(Kind::Unavailable, "the system gave no random bytes");
        error.with_hint("Look whether getrandom(2) is forbidden to this process, then try again")
    })
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    sized(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// HMAC by SHA-256.
pub(crate) fn hmac_sha256(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    sized(ring::hmac::sign(&key, bytes).as_ref())
}

fn sized(digest: &[u8]) -> [u8; 32] {
    digest.try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_hash_is_the_narrow_one_on_this_processor_too() {
        let mut bytes = vec![0; 3000];
        fill_random(&mut bytes).expect("random bytes");
        for key in [[0; 16], [0xff; 16], [1; 16], [0x80; 16]].iter().chain(bytes.as_chunks().0) {
            for len in [128, 144, 256, 1000, 1024, 3000] {
                let (mut narrow, mut wide) = (Hash::new(key), Hash::new(key));
                assert!(narrow.wide.set(None).is_ok(), "it was not asked for yet");
                for _ in 0..2 {
                    narrow.add(&bytes[..len]);
                    wide.add(&bytes[..len]);
                }
                let sums = [narrow, wide].map(|hash| hash.finish(7, len as u64));
                assert_eq!(sums[0], sums[1], "{len} bytes, key {key:?}");
            }
        }
    }
}
