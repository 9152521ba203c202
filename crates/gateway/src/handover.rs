//! Lets the kernel send files: their bytes go from the page cache to the socket and are never read.
//!
//! An answer's body passes the HTTP layer as pieces of bytes. For a piece of a file a *stand-in*
//! passes: so many bytes of one static buffer, known by their address. The connection sends the
//! file's bytes wherever it is given a stand-in. A connection answers one request at a time and in
//! order, so the oldest piece is the one that a stand-in stands for; where their sizes disagree the
//! connection ends.

use bytes::Bytes;
use penstock_store::FilePiece;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Largest piece.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Bodies below this are read: where one call sends head and body, a copy costs less.
pub const BODY_BYTES_MIN: u64 = 4 << 20;

/// Never written to and never sent, so it takes no memory.
static STAND_IN: [u8; PIECE_BYTES_MAX] = [0; PIECE_BYTES_MAX];

/// The pieces of files that one connection is to send.
#[derive(Debug, Default)]
pub struct Handover {
    pieces: Mutex<VecDeque<FilePiece>>,
}

fn is_stand_in(bytes: &[u8]) -> bool {
    STAND_IN.as_ptr_range().contains(&bytes.as_ptr())
}

impl Handover {
    fn pieces(&self) -> MutexGuard<'_, VecDeque<FilePiece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a piece of at most [`PIECE_BYTES_MAX`] bytes, to be sent where its stand-in is.
    pub fn stand_in(&self, piece: FilePiece) -> Bytes {
        let len = usize::try_from(piece.range.end - piece.range.start).unwrap_or(usize::MAX);
        self.pieces().push_back(piece);
        Bytes::from_static(&STAND_IN[..len])
    }

    /// Sends some of `slices`: bytes as they are, a piece of a file for a stand-in.
    ///
    /// # Errors
    /// The socket's, and `InvalidData` for a file that ended before its piece.
    pub fn poll_send(
        &self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let Some(first) = slices.iter().find(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        loop {
            ready!(stream.poll_write_ready(context))?;
            let sent = stream.try_io(Interest::WRITABLE, || match is_stand_in(first) {
                true => self.send_file(stream, first.len()),
                // The body follows at once: no packet of its own for the head.
                false => {
                    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                    Ok(rustix::net::send(&*stream, first, flags)?)
                }
            });
            match sent {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn send_file(&self, stream: &TcpStream, len: usize) -> Result<usize> {
        let mut pieces = self.pieces();
        let piece = pieces.front_mut();
        let piece = piece.filter(|piece| piece.range.end - piece.range.start == len as u64);
        let Some(piece) = piece else {
            return Err(Error::new(ErrorKind::InvalidData, "a stand-in without its piece"));
        };
        let sent = rustix::fs::sendfile(stream, &piece.file, Some(&mut piece.range.start), len)?;
        if sent == 0 {
            return Err(Error::new(ErrorKind::InvalidData, "the file was cut while it was sent"));
        }
        if piece.range.is_empty() {
            pieces.pop_front();
        }
        Ok(sent)
    }
}

/// Whether one of `slices` is a stand-in.
pub fn has_stand_in(slices: &[IoSlice<'_>]) -> bool {
    slices.iter().any(|slice| is_stand_in(slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::sync::Arc;
    use tokio::io::AsyncReadExt as _;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    fn file(content: &[u8]) -> Arc<rustix::fd::OwnedFd> {
        let path = std::env::temp_dir().join(format!("handover-{:x}", std::process::id()));
        let mut file = std::fs::File::options();
        let mut file = file.create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(content).unwrap();
        Arc::new(file.into())
    }

    /// Sends `parts` to their end, as an HTTP layer would.
    async fn send(handover: &Handover, stream: &mut TcpStream, parts: &[Bytes]) -> Result<()> {
        let mut left: VecDeque<Bytes> = parts.iter().cloned().collect();
        while let Some(front) = left.front_mut() {
            if front.is_empty() {
                left.pop_front();
                continue;
            }
            let slices: Vec<IoSlice<'_>> = left.iter().map(|part| IoSlice::new(part)).collect();
            let sent = std::future::poll_fn(|context| handover.poll_send(stream, context, &slices))
                .await?;
            left.front_mut().map(|front| front.split_to(sent)).unwrap();
        }
        Ok(())
    }

    #[tokio::test]
    async fn heads_and_pieces_come_in_order() {
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let (file, handover) = (file(&content), Handover::default());
        let piece = |range: std::ops::Range<u64>| FilePiece { file: file.clone(), range };
        let parts = [
            Bytes::from_static(b"head"),
            handover.stand_in(piece(7..1_000_000)),
            handover.stand_in(piece(1_000_000..2_000_000)),
            Bytes::from_static(b"next"),
            handover.stand_in(piece(2_999_999..3_000_000)),
        ];
        assert!(has_stand_in(&[IoSlice::new(b"head"), IoSlice::new(&parts[1])]));
        assert!(!has_stand_in(&[IoSlice::new(b"head")]));
        let (mut server, mut client) = pair().await;
        let expected = [b"head", &content[7..2_000_000], b"next", &content[2_999_999..]].concat();
        let received = tokio::spawn(async move {
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            received
        });
        send(&handover, &mut server, &parts).await.unwrap();
        drop(server);
        assert!(received.await.unwrap() == expected);
    }

    #[tokio::test]
    async fn a_file_that_was_cut_ends_the_connection() {
        let handover = Handover::default();
        let parts = [handover.stand_in(FilePiece { file: file(b"short"), range: 0..9 })];
        let (mut server, _client) = pair().await;
        let error = send(&handover, &mut server, &parts).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn sizes_that_disagree_end_the_connection() {
        let handover = Handover::default();
        let stand_in = handover.stand_in(FilePiece { file: file(b"0123456789"), range: 0..9 });
        let (mut server, _client) = pair().await;
        let error = send(&handover, &mut server, &[stand_in.slice(1..)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
