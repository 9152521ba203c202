//! Uses the wait for a distant store: the pages of a large buffer are touched while its first byte
//! is on its way. Fresh memory costs a fault for each page; afterwards the bytes would wait for it.

use futures_util::future::{Either, select};
use penstock_base::Result;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// Stores that answer sooner leave no time for it.
const LATENCY_MIN: Duration = Duration::from_millis(5);
/// Smaller buffers have few pages.
const BYTES_MIN: usize = 1 << 20;
/// Bytes between two looks at what has arrived.
const STEP_BYTES: usize = 1 << 20;
/// The usual size of a page.
const PAGE_BYTES: usize = 4096;
/// The shortest time for which a timer sleeps; meanwhile sockets are looked at.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits for `answer`, and touches the pages of `buf` meanwhile if that is worth it; what the
/// buffer held is lost.
pub(super) async fn while_waiting<T>(
    answer: impl Future<Output = Result<T>>,
    buf: &mut [u8],
    latency: Duration,
) -> Result<T> {
    if buf.len() < BYTES_MIN || latency < LATENCY_MIN {
        return answer.await;
    }
    let touching = async {
        for step in buf.chunks_mut(STEP_BYTES) {
            // Requests go out first.
            sleep(PAUSE).await;
            step.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0);
        }
    };
    match select(pin!(answer), pin!(touching)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), answer)) => answer.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_are_touched_as_far_as_the_wait_goes() {
        let far = Duration::from_millis(100);
        for (wait_ms, latency, touched) in [(50, far, 4), (2, far, 1), (50, Duration::ZERO, 0)] {
            let mut buf = vec![7; 4 << 20];
            let answer = async {
                sleep(Duration::from_micros(wait_ms * 1000 + 500)).await;
                Ok(wait_ms)
            };
            assert_eq!(while_waiting(answer, &mut buf, latency).await.unwrap(), wait_ms);
            let pages = buf.chunks(PAGE_BYTES).filter(|page| page[0] == 0).count();
            assert!(pages * PAGE_BYTES >= touched << 20, "{pages} pages in {wait_ms} ms");
            assert!(touched > 0 || pages == 0);
        }
    }
}
