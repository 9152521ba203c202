//! Decides whether a body comes so slowly that the rest of it is better asked for again, on another
//! connection. Pure.
//!
//! A connection can be stuck on a bad path or a bad server while others to the same store are fine.
//! So the measure is what connections of this store bring, as seen lately, and only the time counts
//! in which somebody waited for bytes. On a full link all are slow, and none of them is replaced.

/// What a connection brings is measured over so many bytes at most.
const STRETCH_BYTES: u64 = 8 << 20;
/// Fewer say nothing.
const STRETCH_BYTES_MIN: u64 = 256 << 10;
/// A body is judged only after it was waited for so long.
const PATIENCE_MS: f64 = 500.0;
/// A trickle brings no more than one part in so many of what others do.
const PARTS: f64 = 8.0;
/// What is left must take so many times longer than asking again.
const GAIN: f64 = 4.0;
/// Stretches to have seen before any is judged.
const SEEN_MIN: u32 = 16;
/// What each stretch leaves of those before it.
const FADE: f64 = 0.95;

/// What connections of one store bring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usual {
    bytes: f64,
    waited_ms: f64,
    seen: u32,
}

impl Usual {
    fn note(&mut self, bytes: u64, waited_ms: f64) {
        self.bytes = self.bytes * FADE + bytes as f64;
        self.waited_ms = self.waited_ms * FADE + waited_ms;
        self.seen = self.seen.saturating_add(1);
    }

    fn bytes_per_ms(&self) -> f64 {
        self.bytes / self.waited_ms.max(0.001)
    }
}

/// The part of a body that is being measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch {
    bytes: u64,
    waited_ms: f64,
}

impl Stretch {
    /// Bytes came after so long a wait. Whether it is time to look at them; at the body's end it
    /// always is.
    pub fn arrived(&mut self, bytes: u64, waited_ms: f64) -> bool {
        self.bytes += bytes;
        self.waited_ms += waited_ms.max(0.0);
        self.bytes >= STRETCH_BYTES || self.waited_ms >= PATIENCE_MS
    }

    /// Whether it is a trickle beside what is usual; begins the next stretch. `left` bytes of the
    /// body are still to come, and asking again takes so long to its first byte.
    pub fn judge(&mut self, usual: &mut Usual, left: u64, first_byte_ms: f64) -> bool {
        let Stretch { bytes, waited_ms } = std::mem::take(self);
        let (rate, others) = (bytes as f64 / waited_ms.max(0.001), usual.bytes_per_ms());
        let is_trickle = usual.seen >= SEEN_MIN
            && waited_ms >= PATIENCE_MS
            && rate * PARTS < others
            && left as f64 > rate * GAIN * (first_byte_ms + left as f64 / others);
        if !is_trickle && (bytes >= STRETCH_BYTES_MIN || waited_ms >= PATIENCE_MS) {
            usual.note(bytes, waited_ms);
        }
        is_trickle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usual(bytes_per_ms: u64) -> Usual {
        let mut usual = Usual::default();
        for _ in 0..SEEN_MIN {
            usual.note(bytes_per_ms * 100, 100.0);
        }
        usual
    }

    #[test]
    fn a_body_far_below_the_others_is_replaced_and_the_others_stay_the_measure() {
        let mut known = usual(50_000);
        let mut slow = Stretch::default();
        assert!(!slow.arrived(20_000, 400.0), "too early to tell");
        assert!(slow.arrived(20_000, 200.0));
        assert!(slow.judge(&mut known, 10 << 20, 30.0));
        assert!((known.bytes_per_ms() - 50_000.0).abs() < 1.0);
        let mut nearly_done = Stretch { bytes: 200_000, waited_ms: 600.0 };
        assert!(!nearly_done.judge(&mut usual(50_000), 30_000, 30.0), "not worth a request");
        let mut first = Stretch { bytes: 40_000, waited_ms: 600.0 };
        assert!(!first.judge(&mut Usual::default(), 10 << 20, 30.0), "nothing to compare with");
    }

    proptest! {
        /// However slow the link: where all connections bring the same, none is replaced.
        #[test]
        fn on_a_link_that_is_slow_for_all_none_is_replaced(
            bytes_per_ms in 1u64..100_000, factors in prop::collection::vec(0.5..2.0f64, 1..200),
        ) {
            let mut known = Usual::default();
            let mut stretch = Stretch::default();
            for factor in factors {
                let waited_ms = 100.0 * factor;
                if stretch.arrived(bytes_per_ms * 100, waited_ms) {
                    prop_assert!(!stretch.judge(&mut known, 1 << 30, 100.0));
                }
            }
        }

        #[test]
        fn any_times_are_survived(
            times in prop::collection::vec((0u64..1 << 40, any::<f64>()), 0..99),
        ) {
            let mut known = Usual::default();
            let mut stretch = Stretch::default();
            for (bytes, ms) in times {
                if stretch.arrived(bytes, ms) {
                    stretch.judge(&mut known, bytes, ms);
                }
            }
        }
    }
}
