//! The plain data that crosses: texts, pairs, and arrays of them.

use penstock_base::{Error, Kind, Result};

/// A borrowed UTF-8 text, not terminated; null with length 0 is the empty text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PsStr {
    /// First byte.
    pub data: *const u8,
    /// Bytes.
    pub len: usize,
}

/// A key and its value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PsPair {
    /// The key.
    pub key: PsStr,
    /// The value.
    pub value: PsStr,
}

impl PsStr {
    /// The empty text.
    pub const EMPTY: PsStr = PsStr { data: std::ptr::null(), len: 0 };

    /// Lends a text to the caller.
    pub fn lend(text: &str) -> Self {
        PsStr { data: text.as_ptr(), len: text.len() }
    }

    /// The text, checked.
    ///
    /// # Safety
    /// Unless `len` is 0, `data` points to `len` readable bytes that stay for `'a`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        if self.len == 0 {
            return Ok("");
        }
        if self.data.is_null() {
            return Err(Error::new(Kind::Internal, format!("{what} is null, with a length")));
        }
        if isize::try_from(self.len).is_err() {
            return Err(Error::new(Kind::Internal, format!("{what}: no text has so many bytes")));
        }
        // SAFETY: not null, and the caller vouches for `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.len) };
        std::str::from_utf8(bytes)
            .map_err(|_| Error::new(Kind::Invalid, format!("{what} is not valid UTF-8")))
    }
}

/// An array of the caller.
///
/// # Safety
/// Unless `count` is 0, `first` points to `count` readable elements that stay for `'a`.
pub unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(Error::new(Kind::Internal, format!("{what} is null, with a count")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::new(Kind::Internal, format!("{what}: no memory has {count} of them")));
    }
    // SAFETY: not null, and the caller vouches for `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Pairs of texts, copied.
///
/// # Safety
/// As [`array`] and [`PsStr::text`].
pub unsafe fn pairs(
    first: *const PsPair,
    count: usize,
    what: &str,
) -> Result<Vec<(String, String)>> {
    // SAFETY: passed on from the caller.
    let pairs = unsafe { array(first, count, what) }?;
    pairs
        .iter()
        .map(|pair| {
            // SAFETY: passed on from the caller.
            let key = unsafe { pair.key.text(what) }?;
            // SAFETY: passed on from the caller.
            let value = unsafe { pair.value.text(what) }
                .map_err(|_| Error::new(Kind::Invalid, format!("`{key}` is not valid UTF-8")))?;
            Ok((key.to_string(), value.to_string()))
        })
        .collect()
}

/// A handle of the caller.
///
/// # Safety
/// Unless null, `handle` came from this library and was not freed.
pub unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: passed on from the caller.
    unsafe { handle.as_ref() }
        .ok_or_else(|| Error::new(Kind::Internal, format!("the {what} handle is null")))
}

/// Gives a value to the caller, as a handle.
///
/// # Safety
/// `out` is null or writable.
pub unsafe fn give<T>(out: *mut *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Error::new(Kind::Internal, "the out-parameter is null"));
    }
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Takes a handle back and drops what it stands for; null is nothing to do.
///
/// # Safety
/// Unless null, `handle` came from this library and is used no more.
pub unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // SAFETY: it came from `give`, and the caller gives it up.
    let value = unsafe { Box::from_raw(handle) };
    // What a destructor has to say has no way out, and must not unwind into C++.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(value)));
}
