//! A span that comes in parts: some of it is asked for, some comes with another reader's request or
//! lies ready in another statement's window.

use super::lying::Found;
use super::{Landed, Part, Wanted, index};
use crate::read::debt::Debt;
use crate::read::kept::Kept;
use crate::read::ready::copy_held;
use crate::read::room::copy_into;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, try_join_all};
use penstock_base::{ByteRange, Metric, Result};
use std::sync::Arc;
use tokio::sync::oneshot;

impl<'a> Wanted<'a> {
    /// Leads and follows at once. Boxed: few reads meet another one.
    pub(super) fn share<'b>(
        self,
        first: Part<'b>,
        rest: impl Iterator<Item = Part<'b>> + Send + 'b,
        mut buf: &'b mut [u8],
    ) -> BoxFuture<'b, Result<()>>
    where
        'a: 'b,
    {
        let (mut parts, mut copies) = (Vec::new(), Vec::new());
        for one in std::iter::once(first).chain(rest) {
            let len = match &one {
                Part::Lead(leader) => leader.flight.range.len(),
                Part::Follow(range, ..) | Part::Copy(range, _) => range.len(),
            };
            let (part, behind) = std::mem::take(&mut buf).split_at_mut(index(len));
            buf = behind;
            match one {
                Part::Lead(leader) => parts.push(self.lead(leader, part, None).boxed()),
                Part::Follow(range, landed, debts) => {
                    parts.push(self.follow(range, landed, debts, part).boxed());
                }
                Part::Copy(range, found) => copies.push(self.copy(range, found, part).boxed()),
            }
        }
        // In this order they take their first steps: requests are sent before anything is copied.
        parts.append(&mut copies);
        try_join_all(parts).map(|done| done.map(|_| ())).boxed()
    }

    /// Copies what lies ready.
    async fn copy(self, range: ByteRange, found: Found, buf: &mut [u8]) -> Result<()> {
        copy_held(buf, range.start, &found.piece);
        self.query.scope.count(Metric::FlightsShared, 1);
        self.takes_part(found.debts(range), range);
        if self.debts.is_none() {
            // Of a block it would count as what came for it.
            self.progress.inspect(|progress| progress.copied(range.len()));
        }
        // They may be others than those of the statement that it came for.
        Kept::new(self.cached, self.query, range.start).all(buf).await;
        Ok(())
    }

    /// Takes note of bytes that came for others: they are not in vain, if these are not.
    fn takes_part(self, debts: Vec<Arc<Debt>>, range: ByteRange) {
        for debt in debts {
            match self.debts {
                Some(debts) => debts.add(debt),
                None => debt.used(range),
            }
        }
    }

    async fn follow(
        self,
        range: ByteRange,
        landed: oneshot::Receiver<Landed>,
        debts: Vec<Arc<Debt>>,
        buf: &mut [u8],
    ) -> Result<()> {
        let bytes = landed.await.map_or_else(|_| Bytes::new(), |landed| landed.bytes);
        let (shared, rest) = buf.split_at_mut(bytes.len());
        copy_into(shared, &bytes);
        self.query.scope.count(Metric::FlightsShared, u64::from(!bytes.is_empty()));
        let start = range.start + bytes.len() as u64;
        drop(bytes);
        self.takes_part(debts, ByteRange { end: start, ..range });
        if !rest.is_empty() {
            // The leader was stopped, or failed.
            self.fetch(rest, ByteRange { start, end: range.end }, None).await?;
        }
        Ok(())
    }
}
