//! Requests of one read, so many of them at a time.

use futures_util::future::{ready, try_join_all};
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::Result;
use std::future::Future;

/// Carries all of them out; true when all gave that. The first error ends the others.
pub(super) async fn all<F: Future<Output = Result<bool>>>(
    requests: Vec<F>,
    at_once: usize,
) -> Result<bool> {
    if requests.len() <= at_once.max(1) {
        return try_join_all(requests).await.map(|done| done.into_iter().all(|it| it));
    }
    let running = stream::iter(requests).buffer_unordered(at_once.max(1));
    running.try_fold(true, |all, it| ready(Ok(all && it))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn no_more_run_at_once_than_may() {
        for (count, at_once) in [(0, 1), (1, 1), (9, 1), (9, 4), (3, 4), (3, 0)] {
            let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let request = |index: usize| {
                let (running, most) = (&running, &most);
                async move {
                    let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(now, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::Relaxed);
                    Ok(index != 2)
                }
            };
            let done = all((0..count).map(request).collect(), at_once).await.unwrap();
            assert_eq!(done, count <= 2, "{count} of {at_once}");
            assert_eq!(most.into_inner(), count.min(at_once.max(1)));
        }
    }
}
