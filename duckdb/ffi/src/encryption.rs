//! The treaty of the ciphers: bytes come from C++ and go back there. `crypto.rs` does the work.

use crate::abi::{array, free, give};
use crate::crypto::{self, BLOCK_BYTES, Cipher, Direction, Message, PIECE_BYTES, Sealing};
use crate::error::{PsError, guarded};
use penstock_base::{Error, Kind, Result};

/// Borrowed bytes; null with length 0 is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PsBytes {
    /// First byte.
    pub data: *const u8,
    /// Bytes.
    pub len: usize,
}

impl PsBytes {
    /// # Safety
    /// As [`array`].
    unsafe fn bytes<'a>(self, what: &str) -> Result<&'a [u8]> {
        // SAFETY: passed on from the caller.
        unsafe { array(self.data, self.len, what) }
    }
}

/// How a message is encrypted.
#[repr(C)]
#[derive(Debug)]
pub struct PsSealing {
    /// Galois counter mode, which has a tag; else counter mode, which has none.
    pub is_gcm: bool,
    /// Or decrypted.
    pub encrypts: bool,
    /// 16, 24 or 32 bytes.
    pub key: PsBytes,
    /// 16 bytes in counter mode, usually 12 in the other.
    pub nonce: PsBytes,
    /// What else the tag answers for.
    pub also: PsBytes,
}

/// One message that is being encrypted or decrypted.
#[derive(Debug)]
pub struct PsMessage(Message);

/// Bytes of the caller that are overwritten.
///
/// # Safety
/// Unless `len` is 0, `first` points to `len` writable bytes that nobody else uses during `'a`.
unsafe fn writable<'a>(first: *mut u8, len: usize, what: &str) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if first.is_null() {
        return Err(Error::new(Kind::Internal, format!("{what} is null, with a length")));
    }
    if isize::try_from(len).is_err() {
        return Err(Error::new(Kind::Internal, format!("{what}: no memory has {len} bytes")));
    }
    // SAFETY: not null, and the caller vouches for `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, len) })
}

/// # Safety
/// Unless null, `message` came from this library, was not freed, and nobody else uses it.
unsafe fn exclusive<'a>(message: *mut PsMessage) -> Result<&'a mut Message> {
    // SAFETY: passed on from the caller.
    let message = unsafe { message.as_mut() };
    let message = message.ok_or_else(|| Error::new(Kind::Internal, "the message is null"))?;
    Ok(&mut message.0)
}

/// See the header.
///
/// # Safety
/// `sealing` is readable with all its bytes, and the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_message_new(
    sealing: *const PsSealing,
    out: *mut *mut PsMessage,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let null = || Error::new(Kind::Internal, "what to do with the message is null");
            let sealing = sealing.as_ref().ok_or_else(null)?;
            let cipher = if sealing.is_gcm { Cipher::Gcm } else { Cipher::Ctr };
            let direction = if sealing.encrypts { Direction::Encrypt } else { Direction::Decrypt };
            let of = Sealing {
                key: sealing.key.bytes("the key")?,
                nonce: sealing.nonce.bytes("the nonce")?,
                also: sealing.also.bytes("the authenticated data")?,
            };
            give(out, PsMessage(Message::new(cipher, direction, of)?))
        })
    }
    .is_some()
}

/// Applies a message to bytes that lie elsewhere, or in the same place, or partly so.
///
/// # Safety
/// `from` and `to` are not null, and point to `len` bytes, readable and writable.
unsafe fn apply(message: &mut Message, from: *const u8, to: *mut u8, len: usize) -> Result<()> {
    // A copy from behind would overwrite what is still to be read: all of it goes at once then.
    let is_ahead = to.addr() > from.addr() && to.addr() - from.addr() < len;
    let step = if is_ahead { len } else { PIECE_BYTES };
    for at in (0..len).step_by(step) {
        let count = step.min(len - at);
        // SAFETY: both are within the bytes that the caller vouches for, which may overlap.
        let piece = unsafe {
            let (from, to) = (from.add(at), to.add(at));
            if !std::ptr::addr_eq(from, to) {
                std::ptr::copy(from, to, count);
            }
            std::slice::from_raw_parts_mut(to, count)
        };
        message.apply(piece)?;
    }
    Ok(())
}

/// See the header.
///
/// # Safety
/// `message` came from this library and nobody else uses it; unless `len` is 0, `from` and `to`
/// point to `len` bytes, readable and writable; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_message_apply(
    message: *mut PsMessage,
    from: *const u8,
    to: *mut u8,
    len: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let message = exclusive(message)?;
            // Both are looked at, and neither slice is kept: they may be the same bytes.
            if array(from, len, "the text")?.is_empty() || writable(to, len, "the room")?.is_empty()
            {
                return Ok(());
            }
            apply(message, from, to, len)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `message` came from this library and nobody else uses it; `tag` points to `len` writable bytes;
/// `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_message_tag(
    message: *mut PsMessage,
    tag: *mut u8,
    len: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let to = writable(tag, len, "the tag")?;
            if !(1..=BLOCK_BYTES).contains(&len) {
                return Err(Error::new(Kind::Internal, format!("no tag has {len} bytes")));
            }
            to.copy_from_slice(&exclusive(message)?.tag()?[..len]);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_message_tag`]; the tag is read only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_message_check_tag(
    message: *mut PsMessage,
    tag: PsBytes,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || exclusive(message)?.check_tag(tag.bytes("the tag")?)) }.is_some()
}

/// See the header.
///
/// # Safety
/// `message` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_message_free(message: *mut PsMessage) {
    // SAFETY: the caller vouches for it.
    unsafe { free(message) }
}

/// See the header.
///
/// # Safety
/// `to` points to `len` writable bytes; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_random(to: *mut u8, len: usize, error: *mut *mut PsError) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || crypto::fill_random(writable(to, len, "the room")?)) }.is_some()
}

/// See the header.
///
/// # Safety
/// `bytes` are readable, `digest` points to 32 writable bytes; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_sha256(
    bytes: PsBytes,
    digest: *mut u8,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let computed = crypto::sha256(bytes.bytes("the bytes")?);
            writable(digest, 32, "the digest")?.copy_from_slice(&computed);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `key` and `bytes` are readable, `digest` points to 32 writable bytes that are none of them;
/// `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_hmac_sha256(
    key: PsBytes,
    bytes: PsBytes,
    digest: *mut u8,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (key, bytes) = (key.bytes("the key")?, bytes.bytes("the bytes")?);
            let computed = crypto::hmac_sha256(key, bytes);
            writable(digest, 32, "the digest")?.copy_from_slice(&computed);
            Ok(())
        })
    }
    .is_some()
}
