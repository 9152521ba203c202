//! The page holds every row of the table, and reads back as what was counted.

use super::*;
use crate::stats::Stats;
use penstock_base::metrics::GATEWAY;

fn page(telemetry: &Telemetry) -> String {
    telemetry.page(&Stats::default().snapshot())
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
        sent_bytes: 0,
        received_bytes: 0,
        new_connection: false,
        error: String::new(),
        span: None,
    }
}

#[test]
fn every_row_of_the_table_is_on_the_page_once_and_in_order() {
    let telemetry = Telemetry::new(UNIX_EPOCH);
    telemetry.request("GetObject", 200, Duration::from_millis(1), Duration::from_millis(2));
    telemetry.backend_request(&event("GET", 200));
    telemetry.backend_ready("lake", true);
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
    telemetry.backend_request(&event("PUT", 503));
    let page = page(&telemetry);
    for line in [
        "penstock_requests_total{operation=\"GetObject\",status=\"200\"} 2",
        "penstock_requests_total{operation=\"GetObject\",status=\"404\"} 1",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"0.25\"} 0",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"0.5\"} 3",
        "penstock_request_duration_seconds_bucket{operation=\"GetObject\",le=\"+Inf\"} 3",
        "penstock_request_duration_seconds_sum{operation=\"GetObject\"} 1.5",
        "penstock_requests_refused_total{reason=\"busy\"} 1",
        "penstock_backend_requests_total{method=\"PUT\",status=\"503\"} 1",
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
