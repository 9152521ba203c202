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
/// What fills the link is on its way so many times.
const FILLS: u64 = 2;
/// What lies ready for readers that are done with their row groups is no more than this, but two
/// row groups at least: large ones would leave no room for what fills the link.
const READY_BYTES_MAX: u64 = 64 << 20;

/// The way from one store, as the requests of one scan see it.
#[derive(Debug)]
pub(crate) struct Flow {
    bytes_per_s: Mutex<f64>,
    /// Of all requests.
    come_bytes: AtomicU64,
}

/// What a scan has its bytes for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// One that was seen, or expected as long as there is none: with less than it is, the rate that
    /// a window shows makes the next one no larger.
    pub latency: Duration,
    /// Of the row group that is read now.
    pub unit_bytes: u64,
    /// Those who are busy with so much each, and take the next at once.
    pub readers: u64,
    /// What they wait for and fetch themselves: it is on its way already.
    pub on_demand_bytes: u64,
}

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Running {
    since: Instant,
    come_bytes: u64,
}

impl Running {
    /// For how long it has run.
    pub fn time(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Flow {
    /// Before anything is measured.
    pub fn new(bytes_per_s: f64) -> Self {
        Flow { bytes_per_s: Mutex::new(bytes_per_s.max(0.0)), come_bytes: AtomicU64::new(0) }
    }

    /// Takes note of bytes as they come; whether there should be a look.
    pub fn come(&self, bytes: u64) -> bool {
        let before = self.come_bytes.fetch_add(bytes, Ordering::Relaxed);
        before / COME_BYTES != (before + bytes) / COME_BYTES
    }

    /// A request begins.
    pub fn begin(&self) -> Running {
        Running { since: Instant::now(), come_bytes: self.come_bytes.load(Ordering::Relaxed) }
    }

    /// Its bytes have come.
    pub fn end(&self, running: &Running) {
        let time = running.since.elapsed();
        if time >= TIME_MIN {
            let come_bytes = self.come_bytes.load(Ordering::Relaxed) - running.come_bytes;
            let sample = come_bytes as f64 / time.as_secs_f64();
            let mut bytes_per_s = self.lock();
            // The most that was seen lately: most samples are of a link that was not full.
            *bytes_per_s = sample.max(*bytes_per_s * 0.98 + sample * 0.02);
        }
    }

    /// Bytes that fill the link while readers are busy with a unit each.
    pub fn window_bytes(&self, need: &Need) -> u64 {
        // A cast saturates.
        let once = (*self.lock() * need.latency.as_secs_f64()) as u64;
        let in_flight = once.saturating_mul(FILLS).saturating_sub(need.on_demand_bytes);
        // One unit more, so that a reader that was held up is not noticed.
        let unit_bytes = need.unit_bytes;
        let each = unit_bytes.saturating_mul(need.readers.saturating_add(1));
        let ready = each.min(READY_BYTES_MAX.max(unit_bytes.saturating_mul(2)));
        in_flight.saturating_add(ready)
    }

    fn lock(&self) -> MutexGuard<'_, f64> {
        self.bytes_per_s.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A link of 100 MB/s, 50 ms away, and a reader that keeps a window full on it.
    #[tokio::test(start_paused = true)]
    async fn the_window_grows_until_the_link_is_full_and_no_further() {
        const RATE: f64 = 100e6;
        const LATENCY: Duration = Duration::from_millis(50);
        const UNIT: u64 = 1 << 20;
        let flow = Flow::new(1e6);
        let need =
            |readers| Need { latency: LATENCY, unit_bytes: UNIT, readers, ..Need::default() };
        let mut window = flow.window_bytes(&need(1));
        let first = window;
        for _ in 0..40 {
            // All of a window at once: the last byte is there after the latency and its own time.
            let running: Vec<Running> = (0..window / UNIT).map(|_| flow.begin()).collect();
            tokio::time::sleep(LATENCY).await;
            for running in &running {
                tokio::time::sleep(Duration::from_secs_f64(UNIT as f64 / RATE)).await;
                flow.come(UNIT);
                flow.end(running);
            }
            window = flow.window_bytes(&need(1));
        }
        let full = (RATE * LATENCY.as_secs_f64()) as u64;
        assert!(first < 3 * UNIT, "{first}");
        assert!(window > full && window <= 2 * (full + UNIT), "{window} of {full}");
        let of_four = flow.window_bytes(&need(4));
        assert_eq!(of_four, window + 3 * UNIT, "each reader takes a unit at once");
    }

    proptest! {
        /// What readers fetch themselves is on the link already, and takes no place of what lies
        /// ready; whatever the row groups are, no more lies ready than is of use.
        #[test]
        fn on_demand_counts_as_on_its_way_and_what_lies_ready_is_bounded(
            rate in 0.0..1e11f64, ms in 0u64..1000, unit_bytes in 0u64..1 << 30,
            readers in 0u64..200, on_demand_bytes in 0u64..1 << 32,
        ) {
            let (latency, flow) = (Duration::from_millis(ms), Flow::new(rate));
            let need = Need { latency, unit_bytes, readers, ..Need::default() };
            let window = flow.window_bytes(&need);
            let with = flow.window_bytes(&Need { on_demand_bytes, ..need });
            let ready = flow.window_bytes(&Need { on_demand_bytes: u64::MAX, ..need });
            prop_assert!(with <= window && with >= ready);
            prop_assert!(with.saturating_add(on_demand_bytes) >= window);
            prop_assert!(ready <= (64 << 20).max(2 * unit_bytes));
            prop_assert!(readers == 0 || ready >= 2 * unit_bytes.min(32 << 20));
        }
    }
}
