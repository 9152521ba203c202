//! How many bytes have to be on their way to keep the link full.
//!
//! The rate is measured as BBR does it (Cardwell et al., "BBR: Congestion-Based Congestion
//! Control", ACM Queue 2016): what arrived in all while one request ran, over its time. While the
//! link is not full, more requests raise it; once it is, it stays. The latency is the least that
//! was seen, since on a full link requests wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// As many bytes are worth a look at what else should be on its way.
const COME_BYTES: u64 = 1 << 20;
/// Shorter times say more of the clock than of the link.
const TIME_MIN: Duration = Duration::from_millis(1);

/// The way from one store, as the requests of one scan see it.
#[derive(Debug)]
pub(crate) struct Flow {
    state: Mutex<State>,
    /// Of requests that run, too.
    come_bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    arrived_bytes: u64,
    bytes_per_s: f64,
    /// The least that was seen.
    latency: Option<Duration>,
}

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Running {
    since: Instant,
    arrived_bytes: u64,
}

impl Flow {
    /// Before anything is measured.
    pub fn new(bytes_per_s: f64) -> Self {
        let bytes_per_s = bytes_per_s.max(0.0);
        let state = Mutex::new(State { arrived_bytes: 0, bytes_per_s, latency: None });
        Flow { state, come_bytes: AtomicU64::new(0) }
    }

    /// Takes note of bytes as they come; whether there should be a look.
    pub fn come(&self, bytes: u64) -> bool {
        let before = self.come_bytes.fetch_add(bytes, Ordering::Relaxed);
        before / COME_BYTES != (before + bytes) / COME_BYTES
    }

    /// A request begins.
    pub fn begin(&self) -> Running {
        Running { since: Instant::now(), arrived_bytes: self.lock().arrived_bytes }
    }

    /// It brought so many bytes.
    pub fn end(&self, running: &Running, bytes: u64) {
        let mut state = self.lock();
        state.arrived_bytes += bytes;
        let time = running.since.elapsed();
        if time >= TIME_MIN {
            let sample = (state.arrived_bytes - running.arrived_bytes) as f64 / time.as_secs_f64();
            // The most that was seen lately: most samples are of a link that was not full.
            state.bytes_per_s = sample.max(state.bytes_per_s * 0.98 + sample * 0.02);
        }
    }

    /// The least latency that was seen, this one among them. What was only expected does not count:
    /// with less than it is, the rate that a window shows makes the next one no larger.
    pub fn latency(&self, seen: Option<Duration>) -> Option<Duration> {
        let mut state = self.lock();
        state.latency = state.latency.into_iter().chain(seen).min();
        state.latency
    }

    /// Bytes that fill the link while so many readers are busy with `unit_bytes` each, which they
    /// take at once.
    pub fn window_bytes(&self, latency: Duration, unit_bytes: u64, readers: u64) -> u64 {
        // Twice, and one unit more, so that a reader that was held up is not noticed; a cast
        // saturates.
        let in_flight = (self.lock().bytes_per_s * latency.as_secs_f64()) as u64;
        let taken = unit_bytes.saturating_mul(readers.saturating_add(1));
        in_flight.saturating_mul(2).saturating_add(taken)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of 100 MB/s, 50 ms away, and a reader that keeps a window full on it.
    #[tokio::test(start_paused = true)]
    async fn the_window_grows_until_the_link_is_full_and_no_further() {
        const RATE: f64 = 100e6;
        const LATENCY: Duration = Duration::from_millis(50);
        const UNIT: u64 = 1 << 20;
        let flow = Flow::new(1e6);
        assert_eq!(flow.latency(None), None);
        assert_eq!(flow.latency(Some(LATENCY)), Some(LATENCY));
        let mut window = flow.window_bytes(LATENCY, UNIT, 1);
        let first = window;
        for _ in 0..40 {
            // All of a window at once: the last byte is there after the latency and its own time.
            let running: Vec<Running> = (0..window / UNIT).map(|_| flow.begin()).collect();
            tokio::time::sleep(LATENCY).await;
            for running in &running {
                tokio::time::sleep(Duration::from_secs_f64(UNIT as f64 / RATE)).await;
                flow.end(running, UNIT);
            }
            window =
                flow.window_bytes(flow.latency(Some(Duration::from_secs(9))).unwrap(), UNIT, 1);
        }
        let full = (RATE * LATENCY.as_secs_f64()) as u64;
        assert!(first < 3 * UNIT, "{first}");
        assert!(window > full && window <= 2 * (full + UNIT), "{window} of {full}");
        let of_four = flow.window_bytes(LATENCY, UNIT, 4);
        assert_eq!(of_four, window + 3 * UNIT, "each reader takes a unit at once");
    }
}
