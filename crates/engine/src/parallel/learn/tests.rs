//! The learner against stores made of three numbers.

use super::*;
use penstock_base::Settings;
use proptest::prelude::*;

/// A store with a link that all connections share.
#[derive(Clone, Copy, Debug)]
struct Link {
    first_byte_ms: f64,
    connection_bytes_per_ms: f64,
    link_bytes_per_ms: f64,
    overhead_ms: f64,
}

impl Link {
    fn read_ms(&self, len: u64, fanout: u64) -> f64 {
        let by_connection = len as f64 / fanout as f64 / self.connection_bytes_per_ms;
        let by_link = len as f64 / self.link_bytes_per_ms;
        self.first_byte_ms + by_connection.max(by_link) + self.overhead_ms * (fanout - 1) as f64
    }
}

fn policy() -> Policy {
    Policy::of(&Settings::default())
}

/// Total times of `reads` reads: plain, and as the learner chose.
fn run(learner: &mut Learner, link: &Link, len: u64, reads: u32) -> (f64, f64) {
    let policy = policy();
    let limit = policy.fanout_limit(len);
    let mut total = 0.0;
    for _ in 0..reads {
        let fanout = learner.choose(&policy, len, limit);
        let took = link.read_ms(len, fanout);
        learner.observe(&policy, len, fanout, took);
        total += took;
    }
    (link.read_ms(len, 1) * f64::from(reads), total)
}

fn near(link_bytes_per_ms: f64) -> Link {
    Link {
        first_byte_ms: 0.3,
        connection_bytes_per_ms: link_bytes_per_ms,
        link_bytes_per_ms,
        overhead_ms: 1.0,
    }
}

#[test]
fn a_distant_store_is_read_in_parts_from_the_first_read_on() {
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 50_000.0,
        link_bytes_per_ms: 1e6,
        overhead_ms: 5.0,
    };
    let mut learner = Learner::default();
    learner.observe_open(100.0);
    let policy = policy();
    assert!(learner.choose(&policy, 128 << 20, 4) > 1);
    let (plain, total) = run(&mut learner, &link, 128 << 20, 100);
    assert!(total < plain * 0.4, "{total} of {plain}");
}

#[test]
fn a_store_without_anything_to_gain_is_read_plainly() {
    let mut learner = Learner::default();
    learner.observe_open(0.4);
    let (plain, total) = run(&mut learner, &near(1e6), 64 << 20, 200);
    assert!(total < plain * 1.01, "{total} of {plain}");
}

#[test]
fn a_split_before_the_first_plain_read_is_judged_by_it() {
    // 32 MiB in 175 ms, or in 137 ms and a little with two requests: less than the setting's 50 ms.
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 450_000.0,
        link_bytes_per_ms: 2e6,
        overhead_ms: 5.0,
    };
    let mut learner = Learner::default();
    learner.observe_open(100.0);
    run(&mut learner, &link, 32 << 20, 3);
    assert_eq!(learner.choose(&policy(), 32 << 20, 2), 2);
}

#[test]
fn what_was_learned_fades_when_the_store_changes() {
    let mut learner = Learner::default();
    run(&mut learner, &near(1e5), 64 << 20, 100);
    let faster = Link { link_bytes_per_ms: 1e6, ..near(1e5) };
    run(&mut learner, &faster, 64 << 20, 100);
    let (plain, total) = run(&mut learner, &faster, 64 << 20, 100);
    assert!(total < plain * 0.5, "{total} of {plain}");
}

#[test]
fn without_learning_the_documented_cost_decides() {
    let policy = Policy { adaptive: false, overhead_ms: 500.0, ..policy() };
    let mut learner = Learner::default();
    learner.observe(&policy, 128 << 20, 1, 80.0);
    assert_eq!(learner.choose(&policy, 128 << 20, 4), 2);
    let fixed = Policy { auto: false, ..policy };
    assert_eq!(learner.choose(&fixed, 128 << 20, 4), 4);
}

#[test]
fn reads_from_memory_teach_nothing() {
    let mut learner = Learner::default();
    let before = learner.model(&policy());
    learner.observe(&policy(), 64 << 10, 1, 0.01);
    learner.observe_open(0.01);
    assert_eq!(learner.model(&policy()), before);
}

proptest! {
    /// Whatever the store is like: over a hundred reads it is not slower than plain reading but for
    /// what a few trials cost, and where a split gains much, much of that is had.
    #[test]
    fn never_loses_and_wins_where_there_is_something_to_win(
        first_byte_ms in 0.2..300.0f64,
        connection in 5_000.0..2e6f64,
        connections_in_link in 1.0..16.0f64,
        overhead_ms in 0.0..50.0f64,
        len in 17u64 << 20..512 << 20,
    ) {
        let link = Link {
            first_byte_ms,
            connection_bytes_per_ms: connection,
            link_bytes_per_ms: connection * connections_in_link,
            overhead_ms,
        };
        let mut learner = Learner::default();
        learner.observe_open(first_byte_ms);
        let (plain, total) = run(&mut learner, &link, len, 100);
        let limit = policy().fanout_limit(len);
        let worst = (1..=limit).map(|fanout| link.read_ms(len, fanout)).fold(0.0, f64::max);
        let trials = 4.0 * (worst - plain / 100.0);
        prop_assert!(total <= plain * 1.02 + trials, "{} of {}", total, plain);
        let best = (1..=limit).map(|fanout| link.read_ms(len, fanout)).fold(f64::MAX, f64::min);
        let gain = 1.0 - best / link.read_ms(len, 1);
        if gain > 0.4 {
            let most = plain * (1.0 - gain / 2.0);
            prop_assert!(total <= most, "{} of {}, gain {}", total, plain, gain);
        }
    }

    #[test]
    fn any_times_are_survived(
        times in prop::collection::vec((0u64..1 << 34, 1u64..64, 0.0..1e7f64), 0..200)
    ) {
        let mut learner = Learner::default();
        let policy = policy();
        for (len, fanout, took_ms) in times {
            let limit = policy.fanout_limit(len);
            prop_assert!((1..=limit).contains(&learner.choose(&policy, len, limit)));
            learner.observe(&policy, len, fanout, took_ms);
            let model = learner.model(&policy);
            prop_assert!(model.first_byte_ms >= 0.0 && model.first_byte_ms.is_finite());
            prop_assert!(model.bytes_per_ms > 0.0 && model.bytes_per_ms.is_finite());
            prop_assert!((0.0..=OVERHEAD_MAX_MS).contains(&model.overhead_ms));
        }
    }
}
