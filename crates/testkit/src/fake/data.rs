//! Bytes at rest: in memory or in files, in pieces that are cut without copying.

use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file that lives as long as something holds it, or the server ends.
#[derive(Debug)]
pub struct StoredFile {
    path: PathBuf,
    closing: Arc<AtomicBool>,
}

impl StoredFile {
    /// Takes charge of a file; once `closing` is set it is left in place.
    pub fn new(path: PathBuf, closing: Arc<AtomicBool>) -> Self {
        StoredFile { path, closing }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        if !self.closing.load(Ordering::Relaxed) {
            // A file that is gone already needs no removal.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One piece.
#[derive(Clone, Debug)]
pub enum Piece {
    /// In memory.
    Memory(Bytes),
    /// Part of a file.
    File {
        /// Which file.
        file: Arc<StoredFile>,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

impl Piece {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::File { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slice(&self, start: u64, end: u64) -> Piece {
        match self {
            Piece::Memory(bytes) => Piece::Memory(bytes.slice(start as usize..end as usize)),
            Piece::File { file, offset, .. } => {
                Piece::File { file: file.clone(), offset: offset + start, len: end - start }
            }
        }
    }
}

/// A sequence of bytes.
#[derive(Clone, Debug, Default)]
pub struct Data(pub Vec<Piece>);

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        Data(vec![Piece::Memory(bytes)])
    }
}

impl Data {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.0.iter().map(Piece::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes `start..end`, which must lie inside.
    pub fn slice(&self, start: u64, end: u64) -> Data {
        let mut pieces = Vec::new();
        let mut position = 0;
        for piece in &self.0 {
            let (from, to) = (start.max(position), end.min(position + piece.len()));
            if from < to {
                pieces.push(piece.slice(from - position, to - position));
            }
            position += piece.len();
        }
        Data(pieces)
    }

    /// These bytes followed by others.
    pub fn extend(&mut self, more: &Data) {
        self.0.extend(more.0.iter().cloned());
    }

    /// All bytes in memory, for checksums and small documents.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub async fn load(&self) -> io::Result<Vec<Bytes>> {
        let mut loaded = Vec::with_capacity(self.0.len());
        for piece in &self.0 {
            loaded.push(match piece {
                Piece::Memory(bytes) => bytes.clone(),
                Piece::File { file, offset, len } => {
                    read_file(file.clone(), *offset, *len as usize).await?
                }
            });
        }
        Ok(loaded)
    }
}

/// Reads part of a file on a thread where blocking is allowed.
///
/// # Errors
/// When the file cannot be read or is too short.
pub async fn read_file(file: Arc<StoredFile>, offset: u64, len: usize) -> io::Result<Bytes> {
    let read = move || {
        let mut bytes = vec![0; len];
        File::open(file.path())?.read_exact_at(&mut bytes, offset)?;
        Ok(Bytes::from(bytes))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slices_cross_pieces() {
        let whole = crate::ramp::ramp(1, 0, 100);
        let mut data = Data::from(whole.slice(..30));
        data.extend(&Data::from(whole.slice(30..31)));
        data.extend(&Data::from(whole.slice(31..)));
        for (start, end) in [(0, 100), (29, 32), (30, 31), (99, 100), (50, 50), (0, 1)] {
            let cut = data.slice(start, end).load().await.unwrap().concat();
            assert_eq!(cut, whole.slice(start as usize..end as usize), "{start}..{end}");
        }
    }
}
