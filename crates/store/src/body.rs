//! The bytes of an answer, read straight into the caller's buffer.

use bytes::Bytes;
use penstock_base::Result;

/// A body that is read once, front to back. Each byte is copied once: from the socket (or the TLS
/// buffer, or the page cache) into the buffer that the caller gave.
#[derive(Debug)]
pub enum Body {
    /// Bytes already in memory.
    Memory(Bytes),
}

impl Body {
    /// Reads up to `buf.len()` bytes; 0 at the end of the body.
    ///
    /// # Errors
    /// `Unavailable` (retry) when the connection breaks or stalls; `Corrupt` when it ends early.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        match self {
            Body::Memory(bytes) => {
                let taken = bytes.split_to(buf.len().min(bytes.len()));
                buf[..taken.len()].copy_from_slice(&taken);
                Ok(taken.len())
            }
        }
    }
}
