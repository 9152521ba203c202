//! Decides whether an answer is late enough to ask for it a second time, and whether that may be
//! paid for. Pure.
//!
//! Late is what takes longer than the store's own 99th percentile of first bytes, as seen lately
//! ("The Tail at Scale", Dean and Barroso 2013). Each request pays 2 % of a second one, so never
//! more than 2 % are extra; little is saved up, so that a store in trouble is not asked twice for
//! everything. Off for stores that are near, and for a while where second requests did not win.

/// Requests that pay for one extra.
const REQUESTS_PER_EXTRA: u64 = 50;
/// Most extra requests that are saved up.
const SAVED_MAX: u64 = 8;
/// First bytes to have seen before the percentile counts.
const SEEN_MIN: u32 = 100;
/// Counts are halved at so many, which forgets what is long past.
const SEEN_MAX: u32 = 2048;
/// A store that answers sooner than this has no tail worth a second request.
const LATE_MIN_MS: f64 = 5.0;
/// Shortest time that is told from shorter ones.
const FIRST_MS: f64 = 0.1;
/// Steps to the double.
const STEPS: f64 = 4.0;
/// From 0.1 ms to half an hour.
const BUCKETS: usize = 98;
/// After so many second requests it is judged whether they win.
const JUDGED: u32 = 16;
/// Of them so many have to be first.
const WINS_MIN: u32 = 4;
/// Otherwise there are none for so many requests.
const QUIET: u64 = 2000;

/// First bytes of one store, and what may be spent on late ones.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    counts: [u32; BUCKETS],
    seen: u32,
    /// In requests; `REQUESTS_PER_EXTRA` of them are one extra.
    saved: u64,
    extras: u32,
    wins: u32,
    quiet: u64,
}

impl Default for Tail {
    fn default() -> Self {
        Tail { counts: [0; BUCKETS], seen: 0, saved: 0, extras: 0, wins: 0, quiet: 0 }
    }
}

impl Tail {
    /// A request is sent; after how many milliseconds its answer is late, if that may matter.
    pub fn sent(&mut self) -> Option<f64> {
        self.saved = (self.saved + 1).min(SAVED_MAX * REQUESTS_PER_EXTRA);
        self.quiet = self.quiet.saturating_sub(1);
        if self.seen < SEEN_MIN || self.quiet > 0 {
            return None;
        }
        Some(self.percentile(0.99)).filter(|late_ms| *late_ms >= LATE_MIN_MS)
    }

    /// The first byte of a request came after this time.
    pub fn answered(&mut self, took_ms: f64) {
        // A float to integer cast saturates.
        let bucket = ((took_ms.max(FIRST_MS) / FIRST_MS).log2() * STEPS) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.seen += 1;
        if self.seen >= SEEN_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.seen = self.counts.iter().sum();
        }
    }

    /// Takes what a second request costs, if there is so much.
    pub fn spend(&mut self) -> bool {
        let is_paid = self.saved >= REQUESTS_PER_EXTRA;
        if is_paid {
            self.saved -= REQUESTS_PER_EXTRA;
        }
        is_paid
    }

    /// A second request was sent; whether it was answered first.
    pub fn judged(&mut self, won: bool) {
        self.extras += 1;
        self.wins += u32::from(won);
        if self.extras == JUDGED {
            if self.wins < WINS_MIN {
                self.quiet = QUIET;
            }
            (self.extras, self.wins) = (0, 0);
        }
    }

    /// The time that this share of the answers did not pass, to a fifth exact.
    fn percentile(&self, share: f64) -> f64 {
        let wanted = (f64::from(self.seen) * share).ceil();
        let mut passed = 0;
        let bucket = self.counts.iter().position(|count| {
            passed += count;
            f64::from(passed) >= wanted
        });
        FIRST_MS * ((bucket.unwrap_or(BUCKETS) + 1) as f64 / STEPS).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(times: impl IntoIterator<Item = f64>) -> Tail {
        let mut tail = Tail::default();
        for ms in times {
            tail.answered(ms);
        }
        tail
    }

    #[test]
    fn late_is_what_passes_the_stores_own_percentile() {
        let mut tail = seen((0..200).map(|i| if i % 100 == 0 { 900.0 } else { 30.0 }));
        let late_ms = tail.sent().unwrap();
        assert!((30.0..36.0).contains(&late_ms), "{late_ms}");
        assert_eq!(seen([30.0; 99]).sent(), None, "too few");
        assert_eq!(seen([0.5; 500]).sent(), None, "near");
    }

    #[test]
    fn second_requests_that_never_win_end_for_a_while() {
        let mut tail = seen([30.0; 200]);
        for _ in 0..JUDGED {
            assert!(tail.sent().is_some());
            tail.judged(false);
        }
        assert_eq!(tail.sent(), None);
        for _ in 0..QUIET {
            tail.sent();
        }
        assert!(tail.sent().is_some());
    }

    proptest! {
        #[test]
        fn never_more_than_one_in_fifty_is_extra(
            late in prop::collection::vec(any::<bool>(), 0..2000),
        ) {
            let mut tail = Tail::default();
            let (mut sent, mut extra) = (0u64, 0u64);
            for late in late {
                tail.sent();
                sent += 1;
                extra += u64::from(late && tail.spend());
                prop_assert!(extra * REQUESTS_PER_EXTRA <= sent);
            }
        }

        #[test]
        fn percentiles_are_exact_to_a_fifth(
            mut times in prop::collection::vec(0.2..1e5f64, 1..500),
        ) {
            let tail = seen(times.iter().copied());
            times.sort_by(f64::total_cmp);
            for share in [0.5, 0.99] {
                let exact = times[(times.len() as f64 * share).ceil() as usize - 1];
                let told = tail.percentile(share);
                let is_exact = told >= exact * 0.999 && told <= exact * 1.2;
                prop_assert!(is_exact, "{} for {}", told, exact);
            }
        }

        #[test]
        fn any_times_are_survived(times in prop::collection::vec(any::<f64>(), 0..3000)) {
            let mut tail = seen(times);
            prop_assert!(tail.seen < SEEN_MAX);
            prop_assert!(tail.sent().is_none_or(f64::is_finite));
        }
    }
}
