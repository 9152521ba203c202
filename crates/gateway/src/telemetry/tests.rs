//! The page holds every row of the table, and reads back as what was counted.

use super::*;
use crate::stats::Stats;
use penstock_base::metrics::GATEWAY;
use penstock_store::{Again, RequestEvent};

fn page(telemetry: &Telemetry) -> String {
    telemetry.page(&Metrics::default(), &Stats::default().snapshot())
}

fn event(method: &'static str, status: u16) -> RequestEvent {
    RequestEvent {
        method,
        url: "https://secret.example/place".to_string(),
        range: String::new(),
        status,
        started: UNIX_EPOCH,
        first_byte: Duration::ZERO,
        total: Duration::from_millis(7),
        sent_bytes: 3,
        received_bytes: 5,
        new_connection: false,
        error: String::new(),
        fault: None,
        span: None,
        reason: None,
        headers: None,
    }
}

#[test]
fn every_row_of_the_table_is_on_the_page_once_and_in_order() {
    let telemetry = Telemetry::new(UNIX_EPOCH);
    telemetry.request("GetObject", 200, Duration::from_millis(1), Duration::from_millis(2));
    telemetry.back_end("lake").request(&event("GET", 200));
    telemetry.looked("lake", Found { is_there: true, words: "" });
    let page = page(&telemetry);
    let types: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let names: Vec<&str> = GATEWAY.iter().map(|metric| metric.name).collect();
    assert_eq!(types, names);
    for metric in GATEWAY {
        let label = metric.labels.first().map(|label| format!("{{{label}=\"")).unwrap_or_default();
        let begin = match metric.shape {
            table::Shape::Histogram => format!("{}_count{label}", metric.name),
            _ => format!("{}{label}", metric.name),
        };
        assert!(page.lines().any(|line| line.starts_with(&begin)), "{begin}");
    }
    assert!(!page.contains("secret.example"), "where the back end is stays out");
}

#[test]
fn counts_appear_with_their_labels() {
    let telemetry = Telemetry::new(UNIX_EPOCH);
    for status in [200, 200, 404] {
        let half = Duration::from_millis(500);
        telemetry.request("GetObject", status, Duration::ZERO, half);
    }
    telemetry.refused(Refused::Busy);
    let back_end = telemetry.back_end("b");
    for (method, status) in [("PUT", 503), ("PUT", 503), ("GET", 0), ("BREW", 999)] {
        back_end.request(&event(method, status));
    }
    telemetry.back_end("a").request(&event("PUT", 201));
    telemetry.back_end("b").wait_begins();
    back_end.wait_begins();
    back_end.wait_ended(Duration::from_millis(250));
    for (times, why) in (1..).zip([Again::Failed, Again::Late, Again::Slow]) {
        (0..times).for_each(|_| back_end.sent_again(why));
    }
    let page = page(&telemetry);
    for line in [
        "penstock_requests_total{operation=\"GetObject\",status=\"200\"} 2",
        "penstock_requests_total{operation=\"GetObject\",status=\"404\"} 1",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"0.25\"} 0",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"0.5\"} 3",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"+Inf\"} 3",
        "penstock_request_duration_seconds_sum{operation=\"GetObject\"} 1.5",
        "penstock_requests_refused_total{reason=\"busy\"} 1",
        "penstock_backend_requests_total{backend=\"b\",method=\"PUT\",status=\"503\"} 2",
        "penstock_backend_requests_total{backend=\"b\",method=\"GET\",status=\"0\"} 1",
        "penstock_backend_requests_total{backend=\"b\",method=\"OTHER\",status=\"999\"} 1",
        "penstock_backend_requests_total{backend=\"a\",method=\"PUT\",status=\"201\"} 1",
        "penstock_backend_duration_seconds_count{backend=\"b\",method=\"PUT\"} 2",
        "penstock_backend_duration_seconds_sum{backend=\"b\",method=\"PUT\"} 0.014",
        "penstock_backend_sent_bytes_total{backend=\"b\"} 12",
        "penstock_backend_received_bytes_total{backend=\"a\"} 5",
        "penstock_backend_connections_awaited{backend=\"b\"} 1",
        "penstock_backend_connections_awaited{backend=\"a\"} 0",
        "penstock_backend_retries_total{backend=\"b\"} 1",
        "penstock_backend_retries_total{backend=\"a\"} 0",
        "penstock_backend_hedges_total{backend=\"b\",reason=\"late\"} 2",
        "penstock_backend_hedges_total{backend=\"b\",reason=\"slow\"} 3",
        "penstock_backend_connection_wait_seconds_count{backend=\"b\"} 1",
        "penstock_backend_connection_wait_seconds_sum{backend=\"b\"} 0.25",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}

#[test]
fn reasons_of_refusals_are_counted_under_their_own_names() {
    let telemetry = Telemetry::new(UNIX_EPOCH);
    for (index, (reason, _)) in Refused::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index, "{reason:?}");
        (0..=index).for_each(|_| telemetry.refused(reason));
    }
    let page = page(&telemetry);
    for (index, (_, label)) in Refused::ALL.iter().enumerate() {
        let begin = "penstock_requests_refused_total{reason=";
        let line = format!("{begin}\"{label}\"}} {}", index + 1);
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}

#[test]
fn what_the_engine_counted_is_told_under_the_names_of_the_page() {
    let engine = Metrics::default();
    for (amount, metric) in (1..).zip([
        Metric::CacheMemoryHits,
        Metric::CacheDiskHits,
        Metric::CacheMemoryBytesRead,
        Metric::CacheDiskBytesRead,
        Metric::CacheDiskBlocksFailed,
        Metric::CacheDiskBlocksCorrupt,
        Metric::CacheDiskBytesSkipped,
        Metric::ReadAheadHits,
        Metric::ReadAheadBytes,
        Metric::ReadAheadWastedBytes,
    ]) {
        engine.add(metric, amount);
    }
    let page = Telemetry::new(UNIX_EPOCH).page(&engine, &Stats::default().snapshot());
    for line in [
        "penstock_cache_hits_total{cache=\"memory\"} 1",
        "penstock_cache_hits_total{cache=\"disk\"} 2",
        "penstock_cache_read_bytes_total{cache=\"memory\"} 3",
        "penstock_cache_read_bytes_total{cache=\"disk\"} 4",
        "penstock_cache_disk_blocks_lost_total{reason=\"refused\"} 5",
        "penstock_cache_disk_blocks_lost_total{reason=\"corrupt\"} 6",
        "penstock_cache_disk_skipped_bytes_total 7",
        "penstock_read_ahead_hits_total 8",
        "penstock_read_ahead_bytes_total 9",
        "penstock_read_ahead_wasted_bytes_total 10",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}
