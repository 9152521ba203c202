//! A request on its way out whose body is still coming in.

use crate::http::connection::{SLICES_MAX, Stream};
use crate::{Inflow, RequestFault};
use bytes::{Buf as _, Bytes};
use penstock_base::{Error, Kind, Result};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Bytes that are taken from the sender before the socket has taken those before. Little enough to
/// be in the processor's cache when they are sent, and to leave the sender's buffer free again.
const AHEAD_BYTES_MAX: usize = 128 << 10;
/// The same of all bodies together, as long as each has the least.
const AHEAD_BYTES_ALL: usize = 8 << 20;
const AHEAD_BYTES_MIN: usize = 16 << 10;

/// Bodies that are on their way out at this moment.
static FLOWS: AtomicUsize = AtomicUsize::new(0);

/// What is taken of each of so many bodies before the socket has taken what was there.
fn ahead_bytes(flows: usize) -> usize {
    (AHEAD_BYTES_ALL / flows.max(1)).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
}

/// What ended a request before its answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The body's sender.
    Body(Error),
    /// The connection.
    Connection(io::Error),
}

/// Why a request had no answer, and whose doing that was.
#[derive(Debug)]
pub(crate) struct FlowError {
    pub error: Error,
    pub fault: RequestFault,
}

/// Head and pieces that are still to be written.
#[derive(Debug)]
pub(crate) struct Flowing {
    pub pieces: VecDeque<Bytes>,
    /// Everything is out.
    pub is_flushed: bool,
    held_bytes: usize,
    /// Bytes of the body that have not come in yet.
    missing_bytes: u64,
    has_ended: bool,
}

impl Flowing {
    pub fn new(head: &[u8], size_bytes: u64) -> Self {
        FLOWS.fetch_add(1, Ordering::Relaxed);
        Flowing {
            pieces: VecDeque::from([Bytes::copy_from_slice(head)]),
            is_flushed: false,
            held_bytes: head.len(),
            missing_bytes: size_bytes,
            has_ended: false,
        }
    }

    /// Takes what has come in; `true` while more is to come.
    ///
    /// # Errors
    /// The sender's, and `Invalid` for more or fewer bytes than it announced.
    pub fn refill(&mut self, context: &mut Context<'_>, body: &mut dyn Inflow) -> Result<bool> {
        let most = ahead_bytes(FLOWS.load(Ordering::Relaxed));
        while !self.has_ended && self.held_bytes < most && self.pieces.len() < SLICES_MAX {
            match body.poll_piece(context) {
                Poll::Ready(Some(piece)) => self.take(piece?)?,
                Poll::Ready(None) if self.missing_bytes > 0 => {
                    return Err(wrong_size("ends before"));
                }
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending => break,
            }
        }
        Ok(!self.has_ended)
    }

    /// Whose doing it is if the connection fails now: while all that came in is out, the service
    /// may have waited for the sender for too long.
    pub fn fault(&self) -> RequestFault {
        match self.pieces.is_empty() && !self.has_ended {
            true => RequestFault::Body,
            false => RequestFault::Service,
        }
    }

    fn take(&mut self, piece: Bytes) -> Result<()> {
        let left = self.missing_bytes.checked_sub(piece.len() as u64);
        self.missing_bytes = left.ok_or_else(|| wrong_size("goes on past"))?;
        self.held_bytes += piece.len();
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
        Ok(())
    }

    pub fn poll_write(
        &self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        stream.poll_write(context, &slices[..count])
    }

    pub fn advance(&mut self, written: usize) {
        self.held_bytes -= written;
        let mut left = written;
        while let Some(piece) = self.pieces.front_mut() {
            if left < piece.len() {
                piece.advance(left);
                return;
            }
            left -= piece.len();
            self.pieces.pop_front();
        }
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        FLOWS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn wrong_size(how: &str) -> Error {
    Error::new(Kind::Invalid, format!("the body {how} the size that was announced"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::task::Waker;

    #[derive(Debug)]
    struct Pieces(VecDeque<Bytes>, u64);

    impl Inflow for Pieces {
        fn size_bytes(&self) -> u64 {
            self.1
        }

        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    /// Bytes that are taken of a body that is all there before any of it has left.
    fn taken_ahead() -> usize {
        let piece = vec![1; AHEAD_BYTES_MIN];
        let pieces: VecDeque<Bytes> = (0..SLICES_MAX).map(|_| piece.clone().into()).collect();
        let size = pieces.iter().map(|piece| piece.len() as u64).sum();
        let (mut body, mut flowing) = (Pieces(pieces, size), Flowing::new(b"", size));
        flowing.refill(&mut Context::from_waker(Waker::noop()), &mut body).unwrap();
        flowing.held_bytes
    }

    #[test]
    fn less_is_taken_ahead_while_many_bodies_are_on_their_way() {
        let others: Vec<_> =
            (0..AHEAD_BYTES_ALL / AHEAD_BYTES_MIN).map(|_| Flowing::new(b"", 0)).collect();
        assert_eq!(taken_ahead(), AHEAD_BYTES_MIN);
        drop(others);
        assert!(taken_ahead() > AHEAD_BYTES_MIN);
    }

    proptest! {
        #[test]
        fn what_all_have_ahead_stays_within_the_budget(flows in 1usize..100_000) {
            let each = ahead_bytes(flows);
            prop_assert!(each * flows <= AHEAD_BYTES_ALL || each == AHEAD_BYTES_MIN);
            prop_assert!((AHEAD_BYTES_MIN..=AHEAD_BYTES_MAX).contains(&each));
            prop_assert!(each >= ahead_bytes(flows + 1));
        }

        #[test]
        fn every_byte_goes_out_once_and_in_order(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..60),
            steps in prop::collection::vec(1usize..12, 1..20),
        ) {
            let expected = [b"head".to_vec(), pieces.concat()].concat();
            let size = pieces.concat().len() as u64;
            let mut body = Pieces(pieces.into_iter().map(Bytes::from).collect(), size);
            let mut flowing = Flowing::new(b"head", size);
            let (mut out, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
            let mut steps = steps.iter().cycle();
            loop {
                let more = flowing.refill(&mut context, &mut body).unwrap();
                if flowing.pieces.is_empty() {
                    prop_assert!(!more);
                    break;
                }
                let held: Vec<u8> = flowing.pieces.iter().flatten().copied().collect();
                let step = (*steps.next().unwrap()).min(held.len());
                out.extend_from_slice(&held[..step]);
                flowing.advance(step);
            }
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn a_body_of_another_size_is_an_error(have in 0usize..5, told in 0u64..5) {
            prop_assume!(have as u64 != told);
            let mut body = Pieces(VecDeque::from(vec![Bytes::from_static(b"x"); have]), told);
            let mut flowing = Flowing::new(b"", told);
            let mut context = Context::from_waker(Waker::noop());
            prop_assert!(flowing.refill(&mut context, &mut body).is_err());
        }
    }
}
