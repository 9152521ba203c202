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

fn plain(len: u64, took_ms: f64) -> Seen {
    Seen { len, fanout: 1, took_ms, load: None, is_cold: false }
}

/// A file whose further open files were read before.
const OPEN: FileState =
    FileState { open_fanout: u64::MAX, is_connected: true, bytes_read: 1 << 40 };
/// One of which only the reader's own is open, and was not read yet.
const OPENED: FileState = FileState { open_fanout: 1, is_connected: true, bytes_read: 0 };

fn policy() -> Policy {
    Policy::of(&Settings::default())
}

/// Total times of `reads` reads: plain, and as the learner chose.
fn run(learner: &mut Learner, link: &Link, len: u64, reads: u32) -> (f64, f64) {
    let policy = policy();
    let limit = policy.fanout_limit(len);
    let mut total = 0.0;
    for _ in 0..reads {
        let fanout = learner.choose_wrapped(&policy, len, limit, &OPEN);
        let took = link.read_ms(len, fanout);
        learner.observe(&policy, &Seen { len, fanout, took_ms: took, load: None, is_cold: false });
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
    assert!(learner.choose(&policy, 128 << 20, 4, 1.0) > 1);
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
    assert_eq!(learner.choose(&policy(), 32 << 20, 2, 1.0), 2);
}

/// A file that two threads read, each of its large reads as the learner chooses; how many were
/// split of those that follow the first plain one, the times of all, and of plain ones.
fn run_threads(link: &Link, len: u64, opened_ms: f64, reads: u32) -> (u32, f64, f64) {
    let (mut learner, policy) = (Learner::default(), policy());
    learner.observe_open(opened_ms);
    let mut read = |fanout: u64, is_cold: bool| {
        let took_ms = link.read_ms(len, fanout);
        learner.observe(&policy, &Seen { len, fanout, took_ms, load: None, is_cold });
        let limit = policy.fanout_limit(len);
        (learner.choose_wrapped(&policy, len, limit, &OPEN), took_ms)
    };
    // Both begin at once, so that both open the other files.
    read(2, true);
    let (mut fanout, mut total) = (read(2, true).0, 0.0);
    assert_eq!(fanout, 1, "the bandwidth is measured");
    let mut split = 0;
    for at in 0..reads {
        let (next, took_ms) = read(fanout, false);
        (fanout, total) = (next, total + took_ms);
        split += u32::from(at + 1 < reads && fanout > 1);
    }
    (split, total, link.read_ms(len, 1) * f64::from(reads))
}

#[test]
fn threads_whose_first_reads_are_all_cold_learn_what_a_split_gains() {
    // 32 MiB in 175 ms, or in 142 with two requests: less than the setting's 50 ms each.
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 450_000.0,
        link_bytes_per_ms: 2e6,
        overhead_ms: 5.0,
    };
    let (split, total, plain) = run_threads(&link, 32 << 20, 100.0, 30);
    assert!(split >= 28, "{split} of 29");
    assert!(total < plain * 0.85, "{total} of {plain}");
}

#[test]
fn a_split_that_gains_nothing_is_tried_a_few_times_and_no_more() {
    // One connection fills the link.
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 450_000.0,
        link_bytes_per_ms: 450_000.0,
        overhead_ms: 5.0,
    };
    let (split, total, plain) = run_threads(&link, 32 << 20, 100.0, 30);
    assert_eq!(split, TRIALS);
    assert!(total < plain * 1.005, "{total} of {plain}");
}

#[test]
fn nothing_is_tried_that_would_open_files_nor_where_nothing_is_learned() {
    let mut learner = Learner::default();
    learner.observe_open(100.0);
    let learned = policy();
    learner.observe(&learned, &plain(32 << 20, 175.0));
    let choose = |file: &FileState| learner.choose_wrapped(&learned, 32 << 20, 4, file);
    assert_eq!((choose(&OPENED), choose(&OPEN)), (1, TRIAL_FANOUT));
    for other in [
        Policy { adaptive: false, overhead_ms: 500.0, ..learned },
        Policy { auto: false, fanout_max: 1, ..learned },
    ] {
        let limit = other.fanout_limit(32 << 20);
        let expected = learner.choose(&other, 32 << 20, limit, 1.0);
        assert_eq!(learner.choose_wrapped(&other, 32 << 20, limit, &OPEN), expected);
        assert_eq!(expected, 1);
    }
}

/// A try that costs more than three reads would be a tenth of all, were it made as often as others.
#[test]
fn a_split_that_costs_many_reads_is_tried_less_often() {
    let link = Link {
        first_byte_ms: 0.2,
        connection_bytes_per_ms: 1_328_448.0,
        link_bytes_per_ms: 1_328_448.0,
        overhead_ms: 46.5,
    };
    let mut learner = Learner::default();
    learner.observe_open(link.first_byte_ms);
    let len = 17 << 20;
    let (_, first) = run(&mut learner, &link, len, 100);
    let (plain, later) = run(&mut learner, &link, len, 1000);
    assert!(first <= 1.25 * plain / 10.0, "{first} of {}", plain / 10.0);
    assert!(later <= 1.05 * plain, "{later} of {plain}");
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

/// Reads that others carried out, or that failed, are decided on and never seen.
#[test]
fn what_is_not_seen_changes_nothing() {
    let (mut learner, policy) = (Learner::new(100.0, 50_000.0), policy());
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 50_000.0,
        link_bytes_per_ms: 100_000.0,
        overhead_ms: 20.0,
    };
    run_measured(&mut learner, &link, 128 << 20, 40);
    let before = learner.model(&policy, 1.0);
    assert!(before.link_bytes_per_ms < 150_000.0, "{before:?}");
    for len in [32 << 20, 128 << 20].repeat(100) {
        learner.choose(&policy, len, 4, 1.0);
    }
    assert_eq!(learner.model(&policy, 1.0), before);
}

#[test]
fn without_learning_the_documented_cost_decides() {
    let policy = Policy { adaptive: false, overhead_ms: 500.0, ..policy() };
    let mut learner = Learner::default();
    learner.observe(&policy, &plain(128 << 20, 80.0));
    assert_eq!(learner.choose(&policy, 128 << 20, 4, 1.0), 2);
    let fixed = Policy { auto: false, ..policy };
    assert_eq!(learner.choose(&fixed, 128 << 20, 4, 1.0), 4);
}

#[test]
fn reads_from_memory_teach_nothing() {
    let mut learner = Learner::default();
    let before = learner.model(&policy(), 1.0);
    learner.observe(&policy(), &plain(64 << 10, 0.01));
    learner.observe_open(0.01);
    assert_eq!(learner.model(&policy(), 1.0), before);
}

/// Reads of a store of ours: the latency is measured, and so is what else is on its way.
fn run_measured(learner: &mut Learner, link: &Link, len: u64, reads: u32) -> f64 {
    let policy = policy();
    let mut total = 0.0;
    for _ in 0..reads {
        learner.know_first_byte(link.first_byte_ms);
        let fanout = learner.choose(&policy, len, policy.fanout_limit(len), 1.0);
        let took_ms = link.read_ms(len, fanout);
        let load = Some(Load { reads: 1.0, requests: fanout as f64 });
        learner.observe(&policy, &Seen { len, fanout, took_ms, load, is_cold: false });
        total += took_ms;
    }
    total
}

#[test]
fn readers_share_what_the_link_carries() {
    let (mut learner, policy) = (Learner::new(100.0, 50_000.0), policy());
    // Four connections fill the link, so one reader has four and four readers one each.
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 50_000.0,
        link_bytes_per_ms: 200_000.0,
        overhead_ms: 0.0,
    };
    let policy = Policy { fanout_max: 8, ..policy };
    for _ in 0..40 {
        learner.know_first_byte(100.0);
        let fanout = learner.choose(&policy, 128 << 20, 8, 1.0);
        let took_ms = link.read_ms(128 << 20, fanout);
        let load = Some(Load { reads: 1.0, requests: fanout as f64 });
        learner.observe(&policy, &Seen { len: 128 << 20, fanout, took_ms, load, is_cold: false });
    }
    let model = learner.model(&policy, 1.0);
    assert!((190_000.0..250_000.0).contains(&model.link_bytes_per_ms), "{model:?}");
    assert!((4..=7).contains(&model.best_fanout(128 << 20, 8)), "{model:?}");
    assert_eq!(learner.model(&policy, 4.0).best_fanout(128 << 20, 8), 1);
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
        let best = (1..=limit).map(|fanout| link.read_ms(len, fanout)).fold(f64::MAX, f64::min);
        let gain = 1.0 - best / link.read_ms(len, 1);
        let mut measured = Learner::new(30.0, 90_000.0);
        for total in [total, run_measured(&mut measured, &link, len, 100)] {
            prop_assert!(total <= plain * 1.02 + trials, "{} of {}", total, plain);
            let most = if gain > 0.4 { plain * (1.0 - gain / 2.0) } else { f64::MAX };
            prop_assert!(total <= most, "{} of {}, gain {}", total, plain, gain);
        }
    }

    #[test]
    fn any_times_are_survived(
        times in prop::collection::vec(
            (0u64..1 << 34, 1u64..64, 0.0..1e7f64, prop::option::of((1.0..99.0f64, 1.0..99.0f64))),
            0..200,
        )
    ) {
        let mut learner = Learner::default();
        let policy = policy();
        for (len, fanout, took_ms, load) in times {
            let load = load.map(|(reads, requests)| Load { reads, requests });
            let limit = policy.fanout_limit(len);
            prop_assert!((1..=limit).contains(&learner.choose(&policy, len, limit, 1.0)));
            learner.observe(&policy, &Seen { len, fanout, took_ms, load, is_cold: false });
            let model = learner.model(&policy, 1.0);
            prop_assert!(model.first_byte_ms >= 0.0 && model.first_byte_ms.is_finite());
            prop_assert!(model.bytes_per_ms > 0.0 && model.bytes_per_ms.is_finite());
            prop_assert!((0.0..=OVERHEAD_MAX_MS).contains(&model.overhead_ms));
        }
    }
}

/// Files that are read many times by splits whose connections the first one opened, and files that
/// are read once.
#[test]
fn the_first_split_of_a_file_says_nothing_unless_there_are_only_such() {
    let link = Link {
        first_byte_ms: 100.0,
        connection_bytes_per_ms: 250_000.0,
        link_bytes_per_ms: 1e6,
        overhead_ms: 10.0,
    };
    let (policy, len, opening_ms) = (policy(), 33 << 20, 200.0);
    for (reads_of_a_file, is_split) in [(8, true), (1, false)] {
        let mut learner = Learner::default();
        learner.observe_open(100.0);
        let mut split = 0;
        for _ in 0..40 {
            let (mut is_open, mut bytes_read) = (false, 0);
            for _ in 0..reads_of_a_file {
                let limit = policy.fanout_limit(len);
                let file = FileState { bytes_read, ..if is_open { OPEN } else { OPENED } };
                let fanout = learner.choose_wrapped(&policy, len, limit, &file);
                bytes_read += len;
                let is_cold = fanout > 1 && !is_open;
                is_open |= fanout > 1;
                split += u32::from(fanout > 1);
                let took_ms = link.read_ms(len, fanout) + if is_cold { opening_ms } else { 0.0 };
                learner.observe(&policy, &Seen { len, fanout, took_ms, load: None, is_cold });
            }
        }
        let part = f64::from(split) / f64::from(40 * reads_of_a_file);
        assert!((part > 0.8) == is_split && (part < 0.3) != is_split, "{part} of the reads split");
    }
}

/// Reads of one file by a reader that is new: how many parts each had, the time of all, and of
/// plain ones.
fn run_file(link: &Link, connect_ms: f64, file: FileState, lens: &[u64]) -> (Vec<u64>, f64, f64) {
    let (mut learner, policy, mut file) = (Learner::default(), policy(), file);
    if file.is_connected {
        learner.observe_open(connect_ms + link.first_byte_ms);
    }
    let (mut parts, mut total, mut plain) = (Vec::new(), 0.0, 0.0);
    for len in lens {
        let own_ms = if file.is_connected { 0.0 } else { connect_ms };
        let fanout = learner.choose_wrapped(&policy, *len, policy.fanout_limit(*len), &file);
        let is_cold = fanout > file.open_fanout;
        let waits_ms = if is_cold { connect_ms } else { own_ms };
        let took_ms = link.read_ms(*len, fanout) + waits_ms;
        learner.observe(&policy, &Seen { len: *len, fanout, took_ms, load: None, is_cold });
        file = FileState {
            open_fanout: file.open_fanout.max(fanout),
            is_connected: true,
            bytes_read: file.bytes_read + len,
        };
        (total, plain) = (total + took_ms, plain + link.read_ms(*len, 1) + own_ms);
        parts.push(fanout);
    }
    (parts, total, plain)
}

/// A store to which a connection takes longer than what it brings.
fn quick(first_byte_ms: f64) -> Link {
    Link {
        first_byte_ms,
        connection_bytes_per_ms: 400_000.0,
        link_bytes_per_ms: 2e6,
        overhead_ms: 1.0,
    }
}

#[test]
fn a_file_that_is_read_once_waits_for_no_further_connections() {
    for round_trip_ms in [10.0, 30.0, 100.0, 200.0] {
        // TCP, and TLS of today and of yesterday.
        for connect_trips in [1.0, 2.0, 3.0] {
            for lens in [&[46_000_000][..], &[32_000_000, 14_000_000], &[33 << 20, 1 << 20]] {
                let connect_ms = connect_trips * round_trip_ms;
                let (parts, total, plain) =
                    run_file(&quick(round_trip_ms), connect_ms, OPENED, lens);
                assert!(total <= plain, "{parts:?}: {total} of {plain}, {round_trip_ms} ms");
            }
        }
    }
}

#[test]
fn connections_are_opened_for_a_file_that_is_read_on() {
    let (parts, total, plain) = run_file(&quick(100.0), 100.0, OPENED, &[64 << 20; 30]);
    assert_eq!(parts[0], 1, "what one connection brings is not known");
    assert!(parts[4..].iter().all(|fanout| *fanout > 1), "{parts:?}");
    assert!(total < plain * 0.85, "{total} of {plain}");
}

#[test]
fn a_large_read_of_a_slow_connection_opens_others_at_once() {
    let link = Link { connection_bytes_per_ms: 50_000.0, ..quick(100.0) };
    let (parts, total, plain) = run_file(&link, 100.0, OPENED, &[256 << 20]);
    assert_eq!(parts, [4]);
    assert!(total < plain * 0.4, "{total} of {plain}");
}

#[test]
fn a_file_without_a_connection_is_split_at_its_first_read() {
    let link = Link { connection_bytes_per_ms: 90_000.0, ..quick(100.0) };
    let unconnected = FileState { is_connected: false, ..OPENED };
    let (parts, total, plain) = run_file(&link, 200.0, unconnected, &[46_000_000]);
    assert!(parts[0] > 1 && total < plain, "{parts:?}: {total} of {plain}");
}
