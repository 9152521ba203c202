//! What is told when a request fails for good, and how long that takes.

use crate::support::{Bench, Fault, Scripted, pattern};
use penstock_base::{Error, Kind};
use penstock_engine::{Known, PutOptions};
use std::time::Duration;
use tokio::time::Instant;

const MIB: usize = 1 << 20;

/// Request of the store, its name in errors, and the object that errors name.
const VERBS: &[(&str, &str, &str)] = &[
    ("get", "GET", "mem://t/a.csv"),
    ("stat", "HEAD", "mem://t/a.csv"),
    ("list", "list", "mem://t/"),
    ("put", "PUT", "mem://t/new"),
    ("create", "create upload", "mem://t/new"),
    ("part", "upload part", "mem://t/new"),
    ("complete", "complete upload", "mem://t/new"),
    ("delete", "DELETE", "mem://t/a.csv"),
    ("batch", "delete", "mem://t/a.csv"),
    ("copy", "copy", "mem://t/new"),
];

async fn bench(faults: usize, verb: &'static str, fault: &Fault) -> Bench {
    let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "20000")]);
    for key in ["a.csv", "b.csv"] {
        bench.store.place(key, pattern(1000)).await;
    }
    for _ in 0..faults {
        bench.store.fail(verb, fault.clone());
    }
    bench
}

async fn write(bench: &Bench, bytes: usize) -> Result<(), Error> {
    let query = bench.query();
    let mut writer = query.create(&bench.at("new"), PutOptions::default())?;
    writer.write(&pattern(bytes)).await?;
    writer.finish().await.map(drop)
}

async fn run(bench: &Bench, verb: &str) -> Result<(), Error> {
    let query = bench.query();
    let (a, b) = (bench.at("a.csv"), bench.at("b.csv"));
    match verb {
        "get" => query.open(&a, &Known::NOTHING).await.map(drop),
        "stat" => query.stat(&a).await.map(drop),
        "list" => query.list(&bench.at("")).await.map(drop),
        "put" => write(bench, 10).await,
        "delete" => query.remove(&[a]).await,
        "batch" => query.remove(&[a, b]).await,
        "copy" => query.copy(&a, &bench.at("new"), PutOptions::default()).await.map(drop),
        _ => write(bench, 9 * MIB).await,
    }
}

fn assert_named(error: &Error, operation: &str, object: &str) {
    let text = error.to_string();
    assert!(text.starts_with(&format!("{operation} {object}: ")), "{text}");
    assert_eq!(error.object(), Some(object), "{text}");
}

#[tokio::test(start_paused = true)]
async fn every_failure_names_operation_and_object() {
    for (verb, operation, object) in VERBS {
        // The errors of this fault have no names of their own.
        let bench = bench(1000, verb, &Fault::LoseAnswer).await;
        let error = run(&bench, verb).await.expect_err(verb);
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert_named(&error, operation, object);
        assert!(error.to_string().contains("gave up after "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_names_operation_and_object() {
    for (verb, operation, object) in VERBS {
        // Requests whose time depends on the size are bounded by the store's stall timeout.
        if ["put", "part", "complete", "copy"].contains(verb) {
            continue;
        }
        let bench = bench(1, verb, &Fault::Hang).await;
        let error = run(&bench, verb).await.expect_err(verb);
        assert_named(&error, operation, object);
        assert!(error.to_string().contains("no answer before the deadline of requests"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_time_seldom_mends_is_told_within_seconds() {
    for (verb, operation, object) in VERBS {
        let bench = bench(1000, verb, &Fault::Refuse).await;
        let began = Instant::now();
        let error = run(&bench, verb).await.expect_err(verb);
        let took = began.elapsed();
        assert!(took > Duration::from_secs(2) && took <= Duration::from_secs(5), "{verb} {took:?}");
        assert_named(&error, operation, object);
        assert!(error.to_string().contains("gave up after 4 attempts"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_is_waited_for() {
    for (verb, ..) in VERBS {
        run(&bench(3, verb, &Fault::Refuse).await, verb).await.unwrap();
    }
}

/// Throttling before a restart does not use up the few attempts, nor do refused connections
/// shorten what throttling may take.
#[tokio::test(start_paused = true)]
async fn throttling_and_brief_faults_are_counted_apart() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", "x").await;
    for fault in [Fault::Throttle, Fault::Throttle, Fault::Refuse, Fault::Throttle, Fault::Refuse] {
        for _ in 0..3 {
            bench.store.fail("stat", fault.clone());
        }
    }
    run(&bench, "stat").await.unwrap();
    assert_eq!(bench.store.take_calls().len(), 16);
}
