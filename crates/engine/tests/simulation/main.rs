//! The read path on a virtual clock, over stores made from seeds: plan, concurrency, memory, shared
//! flights, second requests and retries are the production code itself.
//!
//! `PENSTOCK_SIMULATION_SEED=N cargo test -p penstock-engine --test simulation` runs one seed again
//! and tells what it was; `PENSTOCK_SIMULATION_SEEDS=N` runs so many in place of 10,000.

#![allow(clippy::unwrap_used)]

mod scenario;
mod store;
mod throttled;

use scenario::{Outcome, Scenario, in_a_row, run, stream, with_small_ones};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Model;

const SEEDS: u64 = 10_000;

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// No deadlock, no starvation, memory and extra requests within their budgets, every byte right,
/// and nothing left behind; whatever the store, the settings, and who is stopped when.
#[test]
fn every_read_ends_with_the_right_bytes_whatever_the_seed() {
    if let Some(seed) = number_of("PENSTOCK_SIMULATION_SEED") {
        let scenario = Scenario::of(seed);
        let outcome = run(&scenario);
        panic!("seed {seed} passes: {scenario:#?}\n{outcome:#?}");
    }
    let seeds = number_of("PENSTOCK_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        let mut sum = Outcome::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return sum;
            }
            match catch_unwind(AssertUnwindSafe(|| run(&Scenario::of(seed)))) {
                Ok(outcome) => sum.add(&outcome),
                Err(_) => panic!(
                    "seed {seed} fails; PENSTOCK_SIMULATION_SEED={seed} cargo test \
                     -p penstock-engine --test simulation runs it again"
                ),
            }
        }
    };
    let mut sum = Outcome::default();
    std::thread::scope(|threads| {
        let workers = [threads.spawn(work), threads.spawn(work)];
        for worker in workers {
            sum.add(&worker.join().expect("no seed fails"));
        }
    });
    // That it was no idle talk: each mechanism was at work.
    assert!(sum.reads > seeds * 2 && sum.cancelled > seeds / 20, "{sum:?}");
    assert!(sum.shared > seeds / 10, "{sum:?}");
    assert!(sum.refused > seeds / 10 && sum.hedged > seeds / 100, "{sum:?}");
    // Where nothing was ahead the bound on what is sent is exact.
    assert!(sum.exact > seeds / 10 && sum.exact < seeds, "{sum:?}");
    assert!(sum.pages > seeds / 10 && sum.without_memory < sum.pages / 10, "{sum:?}");
}

/// Readers that want the same bytes at the same time get every byte from one request.
#[test]
fn each_byte_is_sent_once_to_readers_in_step() {
    for seed in 0..300 {
        let scenario = Scenario::in_step(seed);
        let outcome = run(&scenario);
        assert_eq!(outcome.sent_bytes, scenario.bytes_once(), "seed {seed}: {scenario:?}");
    }
}

/// Where a split gains, much of it is had; where it gains nothing, nothing is lost.
#[test]
fn reads_are_never_much_slower_than_plain_ones_and_much_faster_where_they_can_be() {
    for (latency_ms, connection, link, servers, gain) in [
        // A long way, and connections that are slow by themselves.
        (100.0, 20_000.0, 400_000.0, usize::MAX, 1.7),
        (30.0, 10_000.0, 400_000.0, usize::MAX, 2.0),
        // One connection fills the link.
        (100.0, 50_000.0, 50_000.0, usize::MAX, 0.97),
        (1.0, 400_000.0, 400_000.0, usize::MAX, 0.95),
        // A server that does one thing after the other.
        (20.0, 100_000.0, 100_000.0, 1, 0.93),
    ] {
        let model = Model { servers, ..Model::calm(latency_ms, connection, link) };
        let plain = stream(&model, &[("parallel_read_enabled", "false")]);
        let ours = stream(&model, &[]);
        let ratio = plain.as_secs_f64() / ours.as_secs_f64();
        assert!(ratio >= gain, "{ratio:.2} instead of {gain}: {model:?}");
    }
}

/// Six reads in a row do not wait for six first bytes, though no more is ahead than was read.
#[test]
fn reads_in_a_row_do_not_wait_for_each_first_byte() {
    for (latency_ms, connection, link, gain) in
        [(100.0, 5e4, 5e4, 1.45), (30.0, 1e5, 4e5, 1.25), (1.0, 1e5, 1e5, 0.99)]
    {
        let model = Model::calm(latency_ms, connection, link);
        let plain = in_a_row(&model, &[("parallel_read_enabled", "false")]);
        let ours = in_a_row(&model, &[]);
        let ratio = plain.as_secs_f64() / ours.as_secs_f64();
        assert!(ratio >= gain, "{ratio:.2} instead of {gain}: {model:?}");
    }
}

/// A body that trickles costs a request more and the patience to notice it, not the four seconds
/// that it would take.
#[test]
fn a_body_that_trickles_is_asked_for_again() {
    let calm = Model::calm(20.0, 50_000.0, 400_000.0);
    let (usual, none) = with_small_ones(&calm);
    let (ours, replaced) = with_small_ones(&Model { trickles: 0.08, ..calm });
    assert!(none == 0 && (1..=7).contains(&replaced), "{replaced} were replaced");
    // Two may come before it is known what is usual.
    let unjudged = Duration::from_secs(2 * 4);
    let allowed = usual + unjudged + Duration::from_millis(750) * u32::try_from(replaced).unwrap();
    assert!(ours < allowed, "{ours:?} in place of {usual:?}, {replaced} replaced");
}
