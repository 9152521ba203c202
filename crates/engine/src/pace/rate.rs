//! Measures what the link from one store brings, and decides how much of an object is worth
//! fetching with the request that opens it. Pure.
//!
//! The measure is the bytes of all bodies that came while any of them was waited for, over that
//! time. So requests that share the link are seen together, what lay in a socket before anybody
//! wanted it says nothing, and neither does a reader that takes its time. The times in which no
//! more than one body was waited for tell what a connection brings.

use std::time::Duration;

/// Shorter waits are the processor's, not the link's.
const WAIT_MIN: Duration = Duration::from_micros(100);
/// A longer wait counts before it is over.
const PERIOD_MAX: Duration = Duration::from_millis(100);
/// Fewer bytes say nothing.
const SEEN_BYTES_MIN: f64 = (128 << 10) as f64;
/// What was seen is halved at so many, which forgets what is long past.
const SEEN_BYTES_MAX: f64 = (4 << 20) as f64;
/// What one connection brought counts no more when so many bytes came since with others beside:
/// links change, and those see it.
const ALONE_BYTES_MAX: f64 = 16.0 * SEEN_BYTES_MAX;

/// So much is fetched with the request that opens an object, however slow the link: footers of
/// files up to 32 MiB are no longer (DuckDB asks for a thousandth of the file, and 16 KiB at
/// least).
const OPENING_BYTES_MIN: u64 = 32 << 10;
/// Bytes that take no longer than this are no reason for another request, however near the store.
const TIME_MIN: Duration = Duration::from_millis(4);

/// What comes from one store. Times count from any fixed moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Bodies that are waited for.
    waiting: u32,
    /// Of the present period, in which there always was one: its begin, the last time that bytes
    /// came, and how many did.
    since: Duration,
    last: Duration,
    come_bytes: u64,
    is_shared: bool,
    /// Of those that are over.
    all: Seen,
    /// Of those in which one body was waited for.
    alone: Seen,
    /// Bytes that came in others since the last of those.
    shared_bytes: f64,
}

/// Bytes, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    bytes: f64,
    ms: f64,
}

impl Seen {
    fn note(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes as f64;
        self.ms += took.as_secs_f64() * 1000.0;
        if self.bytes > SEEN_BYTES_MAX {
            self.ms *= SEEN_BYTES_MAX / 2.0 / self.bytes;
            self.bytes = SEEN_BYTES_MAX / 2.0;
        }
    }

    fn bytes_per_ms(&self) -> Option<f64> {
        (self.bytes >= SEEN_BYTES_MIN).then(|| self.bytes / self.ms.max(0.001))
    }
}

impl Rate {
    /// Somebody begins to wait for bytes of a body.
    pub fn waits(&mut self, now: Duration) {
        if self.waiting == 0 {
            self.begin(now);
        }
        self.waiting += 1;
        self.is_shared |= self.waiting > 1;
    }

    /// And does so no more: these have come, or none did.
    pub fn waited(&mut self, now: Duration, bytes: u64) {
        self.waiting = self.waiting.saturating_sub(1);
        self.come_bytes = self.come_bytes.saturating_add(bytes);
        if bytes > 0 {
            self.last = now;
        }
        // What nobody answered is no measure of the link.
        let took = self.last.saturating_sub(self.since);
        if self.waiting == 0 || took >= PERIOD_MAX {
            if took >= WAIT_MIN {
                self.all.note(self.come_bytes, took);
                if self.is_shared {
                    self.shared_bytes += self.come_bytes as f64;
                } else {
                    self.alone.note(self.come_bytes, took);
                    self.shared_bytes = 0.0;
                }
            }
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Duration) {
        (self.since, self.last, self.come_bytes) = (now, now, 0);
        self.is_shared = self.waiting > 1;
    }

    /// What comes in a millisecond, once that is known.
    pub fn bytes_per_ms(&self) -> Option<f64> {
        self.all.bytes_per_ms()
    }

    /// What one connection brings in a millisecond where it is alone, once that is known.
    pub fn alone_bytes_per_ms(&self) -> Option<f64> {
        self.alone.bytes_per_ms().filter(|_| self.shared_bytes <= ALONE_BYTES_MAX)
    }
}

/// How much of an object is fetched at most before it is known what is wanted of it: what the
/// setting allows, but no more than comes in one round trip, since what is missing then costs no
/// more than what would have come in vain. So many that are opened at once share the link.
pub(crate) fn opening_bytes(
    setting_bytes: u64,
    bytes_per_ms: Option<f64>,
    latency: Duration,
    openings: u64,
) -> u64 {
    let Some(bytes_per_ms) = bytes_per_ms else { return setting_bytes };
    let round_trip_ms = latency.max(TIME_MIN).as_secs_f64() * 1000.0;
    // A float to integer cast saturates.
    let share = (bytes_per_ms * round_trip_ms / openings.max(1) as f64) as u64;
    setting_bytes.min(share.max(OPENING_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTING: u64 = 256 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Bodies of this size, so many at once, over a link that brings so much; each is read in
    /// pieces of what comes in 2 ms.
    fn seen(bodies: u64, body_bytes: u64, at_once: u64, bytes_per_ms: u64) -> Rate {
        let (mut rate, mut now) = (Rate::default(), ms(1000));
        for _ in 0..bodies.div_ceil(at_once) {
            (0..at_once).for_each(|_| rate.waits(now));
            let mut left = body_bytes * at_once;
            while left > 0 {
                let piece = left.min(2 * bytes_per_ms);
                now += Duration::from_secs_f64(piece as f64 / bytes_per_ms as f64 / 1000.0);
                left -= piece;
                rate.waited(now, piece);
                rate.waits(now);
            }
            (0..at_once).for_each(|_| rate.waited(now, 0));
            now += ms(30);
        }
        rate
    }

    #[test]
    fn a_slow_link_brings_what_comes_in_a_round_trip_and_a_fast_one_all() {
        let slow = seen(1, 150 << 10, 1, 2_500).bytes_per_ms();
        assert!((2_490.0..2_510.0).contains(&slow.unwrap()), "{slow:?}");
        let window = |latency, openings| opening_bytes(SETTING, slow, ms(latency), openings);
        assert!((74_000..76_000).contains(&window(30, 1)), "{}", window(30, 1));
        assert!((37_000..38_000).contains(&window(30, 2)));
        assert_eq!((window(30, 8), window(0, 1)), (OPENING_BYTES_MIN, OPENING_BYTES_MIN));
        assert_eq!(window(500, 1), SETTING);
        assert_eq!(opening_bytes(SETTING, Some(125_000.0), ms(100), 8), SETTING);
        assert_eq!(opening_bytes(SETTING, Some(1e6), ms(0), 1), SETTING, "near and fast");
    }

    #[test]
    fn what_is_not_known_yet_is_as_the_setting_says() {
        let few = seen(4, 16 << 10, 4, 2_500).bytes_per_ms();
        assert_eq!((few, opening_bytes(SETTING, few, ms(30), 9)), (None, SETTING));
        assert!(seen(16, 16 << 10, 4, 2_500).bytes_per_ms().is_some());
    }

    #[test]
    fn a_connection_is_measured_where_no_other_is_waited_for() {
        let mut rate = seen(16, 256 << 10, 4, 40_000);
        assert_eq!(rate.alone_bytes_per_ms(), None);
        let mut now = ms(9_000);
        for _ in 0..4 {
            rate.waits(now);
            now += ms(10);
            rate.waited(now, 100_000);
        }
        let alone = rate.alone_bytes_per_ms().unwrap();
        assert!((9_900.0..10_100.0).contains(&alone), "{alone}");
        // Another one that begins meanwhile.
        for _ in 0..40 {
            rate.waits(now);
            rate.waits(now + ms(1));
            now += ms(10);
            rate.waited(now, 10_000);
            rate.waited(now, 10_000);
        }
        assert_eq!(rate.alone_bytes_per_ms(), Some(alone));
        // And after so much that came with others it is as good as unknown, until it is seen again.
        let mut shared_bytes = 0.0;
        while shared_bytes <= ALONE_BYTES_MAX {
            rate.waits(now);
            rate.waits(now + ms(1));
            now += ms(10);
            rate.waited(now, 500_000);
            rate.waited(now, 500_000);
            shared_bytes += 1e6;
        }
        assert_eq!(rate.alone_bytes_per_ms(), None);
        rate.waits(now);
        rate.waited(now + ms(10), 100_000);
        assert!(rate.alone_bytes_per_ms().is_some());
    }

    #[test]
    fn what_nobody_answers_does_not_count_nor_what_lay_ready() {
        let mut rate = seen(8, 64 << 10, 1, 50_000);
        let before = rate.bytes_per_ms();
        rate.waits(ms(5_000));
        rate.waited(ms(35_000), 0);
        rate.waits(ms(35_001));
        rate.waited(ms(35_001), 1 << 20);
        assert_eq!(rate.bytes_per_ms(), before);
    }

    #[test]
    fn a_link_that_changed_is_known_after_some_megabytes() {
        let mut rate = seen(64, 256 << 10, 4, 100_000);
        for step in 0..100 {
            rate.waits(ms(9_000 + step * 100));
            rate.waited(ms(9_000 + step * 100 + 90), 90 * 2_500);
        }
        let now = rate.bytes_per_ms().unwrap();
        assert!(now < 3_000.0, "{now}");
    }

    proptest! {
        /// However many share it, and however they are read: what they get together is the rate.
        #[test]
        fn those_who_share_a_link_see_what_it_brings(
            at_once in 1u64..32, body_kib in 32u64..1024, bytes_per_ms in 500u64..50_000,
        ) {
            let known = seen(64, body_kib << 10, at_once, bytes_per_ms).bytes_per_ms().unwrap();
            let share = known / bytes_per_ms as f64;
            prop_assert!((0.99..1.01).contains(&share), "{share}");
            let alone = seen(64, body_kib << 10, at_once, bytes_per_ms).alone_bytes_per_ms();
            prop_assert_eq!(alone.is_some(), at_once == 1);
            prop_assert!(alone.is_none_or(|alone| alone == known));
        }

        #[test]
        fn opening_costs_a_round_trip_of_the_link_at_most_and_never_passes_the_setting(
            setting in 0u64..64 << 20, rate in prop::option::of(0.0..1e7f64),
            latency_ms in 0u64..1000, openings in 0u64..100,
        ) {
            let window = opening_bytes(setting, rate, ms(latency_ms), openings);
            prop_assert!(window <= setting);
            match rate {
                None => prop_assert_eq!(window, setting),
                Some(rate) => {
                    let all = rate * ms(latency_ms).max(TIME_MIN).as_secs_f64() * 1000.0;
                    let most = (all as u64 / openings.max(1)).max(OPENING_BYTES_MIN);
                    prop_assert!(window <= most + 1);
                    prop_assert!(window >= setting.min(OPENING_BYTES_MIN));
                }
            }
        }

        #[test]
        fn a_faster_or_longer_link_never_brings_less(
            rate in 0.0..1e6f64, more in 0.0..1e6f64, latency_ms in 0u64..500,
            longer_ms in 0u64..500, openings in 1u64..64, others in 0u64..64,
        ) {
            let window = |rate, latency_ms, openings| {
                opening_bytes(SETTING, Some(rate), ms(latency_ms), openings)
            };
            let least = window(rate, latency_ms, openings + others);
            prop_assert!(least <= window(rate + more, latency_ms + longer_ms, openings));
        }

        #[test]
        fn any_times_are_survived(
            events in prop::collection::vec((any::<bool>(), any::<u64>(), any::<u32>()), 0..300),
        ) {
            let mut rate = Rate::default();
            for (waits, bytes, at) in events {
                let now = Duration::from_micros(u64::from(at));
                if waits { rate.waits(now) } else { rate.waited(now, bytes) }
                prop_assert!(rate.bytes_per_ms().is_none_or(f64::is_finite));
                prop_assert!(rate.alone_bytes_per_ms().is_none_or(f64::is_finite));
            }
        }
    }
}
