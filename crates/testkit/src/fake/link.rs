//! The emulated link: a round trip before each answer, and bandwidth shared by all connections.
//!
//! Each direction is a clock that runs ahead: sending n bytes moves it by n / bandwidth, and the
//! sender waits until it is reached. The clock keeps its own time, so timers that fire late cost
//! no bandwidth.

use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How far a direction may lag behind the wall clock and still catch up.
const CATCH_UP: Duration = Duration::from_millis(5);
/// Bytes sent in one step where there is no limit.
const UNLIMITED_CHUNK: usize = 4 << 20;

/// The physics of the way to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkOptions {
    /// Round trip before the first byte of each answer.
    pub latency: Duration,
    /// The handshake: it begins when the connection is accepted, so those of several go on side by
    /// side, and no request is taken for sent before it is over.
    pub connect_latency: Duration,
    /// Towards the client, in bits per second; `None` for no limit.
    pub bits_per_s_down: Option<f64>,
    /// From the client, in bits per second; `None` for no limit.
    pub bits_per_s_up: Option<f64>,
}

#[derive(Debug)]
struct Direction {
    bytes_per_s: f64,
    free_at: Mutex<Instant>,
    chunk: usize,
}

impl Direction {
    fn new(bits_per_s: f64) -> Self {
        let bytes_per_s = bits_per_s / 8.0;
        // Two milliseconds of bytes a step keep the sharing fair and the timers few.
        let chunk = ((bytes_per_s * 0.002) as usize).clamp(2 << 10, 1 << 20);
        Direction { bytes_per_s, free_at: Mutex::new(Instant::now()), chunk }
    }

    /// Books `bytes` and tells when the last of them has passed.
    fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut free_at = self.free_at.lock().expect("no holder of this lock panics");
        let start = (*free_at).max(now - CATCH_UP);
        *free_at = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free_at
    }

    async fn pass(&self, bytes: u64) {
        let now = Instant::now();
        let through = self.book(bytes, now);
        if through > now {
            sleep_until(through).await;
        }
    }
}

/// The emulated link of one server.
#[derive(Debug)]
pub struct Link {
    /// Its round trips.
    pub options: LinkOptions,
    down: Option<Direction>,
    up: Option<Direction>,
}

impl Link {
    /// Builds a link.
    pub fn new(options: LinkOptions) -> Self {
        Link {
            options,
            down: options.bits_per_s_down.map(Direction::new),
            up: options.bits_per_s_up.map(Direction::new),
        }
    }

    /// How long the first request of a connection would still have waited for the handshake that
    /// began when it was `accepted`, of which the first bytes came in at `came`.
    pub fn handshake_left(&self, accepted: Instant, came: Instant) -> Duration {
        (accepted + self.options.connect_latency).saturating_duration_since(came)
    }

    /// Waits until `bytes` have passed towards the client.
    pub async fn send(&self, bytes: u64) {
        if let Some(down) = &self.down {
            down.pass(bytes).await;
        }
    }

    /// Waits until `bytes` have passed from the client.
    pub async fn receive(&self, bytes: u64) {
        if let Some(up) = &self.up {
            up.pass(bytes).await;
        }
    }

    /// Most bytes to send in one step.
    pub fn chunk_out(&self) -> usize {
        self.down.as_ref().map_or(UNLIMITED_CHUNK, |down| down.chunk)
    }

    /// Most bytes to receive in one step.
    pub fn chunk_in(&self) -> usize {
        self.up.as_ref().map_or(usize::MAX, |up| up.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_begins_with_its_connection() {
        let ms = Duration::from_millis;
        let link = Link::new(LinkOptions { connect_latency: ms(30), ..LinkOptions::default() });
        let accepted = Instant::now();
        let left = |came: u64| link.handshake_left(accepted, accepted + ms(came));
        assert_eq!([left(0), left(20), left(50)], [ms(30), ms(10), ms(0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn shared_bandwidth_is_the_sum_of_all_senders() {
        let link = std::sync::Arc::new(Link::new(LinkOptions {
            bits_per_s_down: Some(8e6),
            ..LinkOptions::default()
        }));
        let begin = Instant::now();
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let link = link.clone();
                tokio::spawn(async move {
                    for _ in 0..100 {
                        link.send(2500).await;
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        let took = begin.elapsed().as_secs_f64();
        assert!((0.98..1.02).contains(&took), "a megabyte at a megabyte a second took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn directions_are_apart_and_no_limit_is_no_wait() {
        let link = Link::new(LinkOptions { bits_per_s_up: Some(8000.0), ..LinkOptions::default() });
        let begin = Instant::now();
        link.send(1 << 30).await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        link.receive(1000).await;
        assert!(begin.elapsed() >= Duration::from_millis(990));
    }
}
