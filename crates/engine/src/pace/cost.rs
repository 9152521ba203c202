//! Decides the fan-out that the documented cost of object stores calls for: a request costs the
//! time to its first byte, its bytes by the bandwidth of one connection, and a penalty for each
//! request beyond the first; all together get no more than the link carries. Pure; the numbers may
//! be learned (`learn`).

/// What reading from a store costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CostModel {
    /// Time to the first byte.
    pub first_byte_ms: f64,
    /// Bandwidth of one connection.
    pub bytes_per_ms: f64,
    /// What this reader gets of the link that all connections share; infinite where no limit of it
    /// was met.
    pub link_bytes_per_ms: f64,
    /// Penalty for each extra request.
    pub overhead_ms: f64,
}

/// A split has to promise at least this share of the time of one plain request: below it the model
/// is not exact enough to tell a gain from a loss.
pub(crate) const GAIN_MIN: f64 = 0.1;

/// How much more than the link carries is asked of connections that share it.
const LINK_MARGIN: f64 = 1.5;
/// What that may cost, as a share of the best time.
const COST_MAX: f64 = 0.03;

impl CostModel {
    /// What is documented of S3: some 30 ms to the first byte, 90 MB/s for one connection.
    pub const S3: CostModel = CostModel {
        first_byte_ms: 30.0,
        bytes_per_ms: 90_000.0,
        link_bytes_per_ms: f64::INFINITY,
        overhead_ms: 0.0,
    };

    /// Expected time of a read of `len` bytes in `fanout` requests at once.
    pub fn read_ms(&self, len: u64, fanout: u64) -> f64 {
        let by_connection = len as f64 / fanout as f64 / self.bytes_per_ms;
        let by_link = len as f64 / self.link_bytes_per_ms;
        self.first_byte_ms
            + by_connection.max(by_link)
            + self.overhead_ms * fanout.saturating_sub(1) as f64
    }

    /// The cheapest fan-out up to `limit`; one plain request unless the gain is clear.
    pub fn best_fanout(&self, len: u64, limit: u64) -> u64 {
        let plain = self.read_ms(len, 1);
        let (best, time) = (2..=limit)
            .map(|fanout| (fanout, self.read_ms(len, fanout)))
            .fold((1, plain), |best, next| if next.1 < best.1 { next } else { best });
        if time > plain * (1.0 - GAIN_MIN) {
            return 1;
        }
        // Connections seldom get the same: a few more than would just fill the link, where that
        // costs next to nothing, keep it full.
        let room = self.link_bytes_per_ms * LINK_MARGIN;
        (best + 1..=limit)
            .take_while(|fanout| {
                ((fanout - 1) as f64) * self.bytes_per_ms < room
                    && self.read_ms(len, *fanout) <= time * (1.0 + COST_MAX)
            })
            .last()
            .unwrap_or(best)
    }

    /// Bytes that arrive while another request would wait for its first one: to fetch a shorter gap
    /// between two spans costs less than to ask twice.
    pub fn gap_bytes(&self) -> u64 {
        // A float to integer cast saturates.
        (self.first_byte_ms * self.bytes_per_ms.min(self.link_bytes_per_ms)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> impl Strategy<Value = CostModel> {
        let link = prop_oneof![Just(f64::INFINITY), 100.0..1e7f64];
        (0.0..500.0f64, 100.0..1e6f64, link, 0.0..2000.0f64).prop_map(
            |(first_byte_ms, bytes_per_ms, link_bytes_per_ms, overhead_ms)| CostModel {
                first_byte_ms,
                bytes_per_ms,
                link_bytes_per_ms,
                overhead_ms,
            },
        )
    }

    #[test]
    fn the_seed_s_penalty_gives_its_own_advice() {
        // "Keep max_fanout=2 for production": 128 MiB reads with 500 ms for each extra request.
        let model = CostModel { overhead_ms: 500.0, ..CostModel::S3 };
        assert_eq!(model.best_fanout(128 << 20, 8), 2);
        assert_eq!(model.best_fanout(32 << 20, 8), 1);
    }

    #[test]
    fn a_gap_is_what_arrives_while_another_request_waits() {
        let unlimited = f64::INFINITY;
        for (first_byte_ms, bytes_per_ms, link_bytes_per_ms, expected) in [
            // What is documented of S3.
            (30.0, 90_000.0, unlimited, 2_700_000),
            // A link of 100 Mbit/s, which one connection would overfill.
            (30.0, 90_000.0, 12_500.0, 375_000),
            // A slow connection to a distant store.
            (100.0, 125.0, unlimited, 12_500),
            // The same machine.
            (0.2, 400_000.0, unlimited, 80_000),
            (0.0, 90_000.0, unlimited, 0),
        ] {
            let model =
                CostModel { first_byte_ms, bytes_per_ms, link_bytes_per_ms, overhead_ms: 50.0 };
            assert_eq!(model.gap_bytes(), expected, "{model:?}");
        }
    }

    proptest! {
        #[test]
        fn best_is_never_worse_than_plain_and_within_its_limit(
            model in model(), len in 0u64..1 << 34, limit in 1u64..64
        ) {
            let best = model.best_fanout(len, limit);
            prop_assert!((1..=limit).contains(&best));
            prop_assert!(model.read_ms(len, best) <= model.read_ms(len, 1));
        }

        #[test]
        fn no_request_is_sent_that_the_link_has_no_room_for(
            model in model(), len in 0u64..1 << 34, limit in 1u64..64
        ) {
            let best = model.best_fanout(len, limit);
            // One less would not fill it.
            let one_less = best.saturating_sub(1) as f64 * model.bytes_per_ms;
            prop_assert!(best == 1 || one_less < model.link_bytes_per_ms * LINK_MARGIN);
        }

        #[test]
        fn dearer_requests_never_ask_for_more_of_them(
            model in model(), len in 0u64..1 << 34, limit in 1u64..64, more in 0.0..500.0f64
        ) {
            let dearer = CostModel { overhead_ms: model.overhead_ms + more, ..model };
            prop_assert!(dearer.best_fanout(len, limit) <= model.best_fanout(len, limit));
        }

        /// So far it costs less to fetch what lies between than to ask twice, and no further.
        #[test]
        fn a_gap_costs_as_much_as_a_first_byte(model in model()) {
            let bytes_per_ms = model.bytes_per_ms.min(model.link_bytes_per_ms);
            let fetching_ms = |bytes: u64| bytes as f64 / bytes_per_ms;
            let gap_bytes = model.gap_bytes();
            // One byte of room for the rounding.
            prop_assert!(fetching_ms(gap_bytes.saturating_sub(1)) <= model.first_byte_ms);
            prop_assert!(fetching_ms(gap_bytes + 1) >= model.first_byte_ms);
        }

        #[test]
        fn a_farther_store_and_a_faster_connection_never_make_the_gap_shorter(
            model in model(), later_ms in 0.0..500.0f64, faster in 1.0..100.0f64
        ) {
            let farther = CostModel { first_byte_ms: model.first_byte_ms + later_ms, ..model };
            let quicker = CostModel { bytes_per_ms: model.bytes_per_ms * faster, ..model };
            let wider = CostModel { link_bytes_per_ms: model.link_bytes_per_ms * faster, ..model };
            for other in [farther, quicker, wider] {
                prop_assert!(other.gap_bytes() >= model.gap_bytes(), "{:?}", other);
            }
        }
    }
}
