//! For tests of what hands out shares: callers that wait for theirs.

use futures_util::future::BoxFuture;
use std::task::{Context, Poll, Waker};

/// Asks all who wait; those that get their share are done.
pub(crate) fn serve<T>(waiting: &mut Vec<BoxFuture<'_, T>>, served: &mut Vec<T>) {
    let mut context = Context::from_waker(Waker::noop());
    waiting.retain_mut(|asked| match asked.as_mut().poll(&mut context) {
        Poll::Ready(share) => {
            served.push(share);
            false
        }
        Poll::Pending => true,
    });
}
