//! Thousands of network faults, from seeds, over real sockets: S3, Google, Azure, an account with
//! a hierarchical namespace, and plain HTTP; reads, writes, lists, copies, removals.
//!
//! Each operation ends in the right bytes or an error, in time, with nothing left behind. A world
//! is one server, one engine and a row of operations that a seed decides.
//! `PENSTOCK_FAULTS_SEED=N cargo test -p penstock-engine --test faults` runs one world again and
//! shows its operations; `PENSTOCK_FAULTS_WORLDS=N` runs so many in place of the usual number.

#![allow(clippy::unwrap_used)]

mod bytes;
mod dice;
mod operation;
mod plan;
mod world;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Outcome, World};

/// Worlds of a run; their seeds count from 0.
const WORLDS: u64 = 160;
/// Worlds at once: most of their time they wait.
const WORKERS: usize = 12;
/// Fewest faults that a run of all worlds injects.
const FAULTS_MIN: u64 = 10_000;
/// Fewest of each kind.
const OF_EACH_KIND_MIN: u64 = 25;

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Shown also where the harness hides what tests print: the count is a result.
fn say(text: &str) {
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn every_operation_ends_right_or_in_an_error_whatever_the_network_does() {
    if let Some(seed) = number_of("PENSTOCK_FAULTS_SEED") {
        let outcome = World::new(seed, true).run();
        return say(&format!("seed {seed} passes: {outcome:?}"));
    }
    let worlds = number_of("PENSTOCK_FAULTS_WORLDS").unwrap_or(WORLDS);
    let begun = Instant::now();
    // The first one makes what all of them share: the threads of the runtime.
    let mut first = World::new(0, false).run();
    let before = descriptors();
    let (next, sum) = (AtomicU64::new(1), Mutex::new(Outcome::default()));
    std::thread::scope(|threads| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= worlds {
                    return;
                }
                match catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
                    Ok(outcome) => sum.lock().unwrap().add(outcome),
                    Err(_) => panic!(
                        "seed {seed} fails; PENSTOCK_FAULTS_SEED={seed} cargo test \
                         -p penstock-engine --test faults runs it again"
                    ),
                }
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| threads.spawn(work)).collect();
        for worker in workers {
            worker.join().expect("no seed fails");
        }
    });
    first.add(sum.into_inner().unwrap());
    report(&first, worlds, begun.elapsed());
    assert_no_descriptor_is_left(before);
    assert_thorough(&first, worlds);
}

fn report(sum: &Outcome, worlds: u64, took: Duration) {
    let kinds: Vec<String> =
        sum.injected.iter().map(|(name, count)| format!("{name} {count}")).collect();
    say(&format!(
        "{} faults injected in {} operations of {worlds} worlds in {:.0} s: {} succeeded, {} ended \
         in an error, the longest took {:.1} s\n{}",
        sum.faults(),
        sum.operations,
        took.as_secs_f64(),
        sum.operations - sum.errors,
        sum.errors,
        sum.longest.as_secs_f64(),
        kinds.join(", "),
    ));
}

/// Sockets close a moment after their owners are gone.
fn assert_no_descriptor_is_left(before: usize) {
    let until = Instant::now() + Duration::from_secs(10);
    while descriptors() > before && Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(descriptors() <= before, "{} descriptors, {before} before", descriptors());
}

/// That it was no idle talk: enough faults were injected, of every kind, at every door.
fn assert_thorough(sum: &Outcome, worlds: u64) {
    if worlds < WORLDS {
        return;
    }
    assert!(sum.faults() >= FAULTS_MIN, "only {} faults were injected", sum.faults());
    let missing: BTreeMap<_, _> = plan::KINDS
        .iter()
        .map(|kind| (*kind, sum.injected.get(kind).copied().unwrap_or_default()))
        .filter(|(_, count)| *count < OF_EACH_KIND_MIN)
        .collect();
    assert!(missing.is_empty(), "too few of some kinds: {missing:?}");
    let share = sum.errors as f64 / sum.operations as f64;
    assert!((0.02..0.6).contains(&share), "{share:.2} of the operations ended in an error");
}
