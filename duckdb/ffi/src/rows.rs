//! Introspection tables: every cell is text.

use crate::abi::{PsStr, free};
use crate::their_words::reason;
use penstock_base::settings::moving::Difference;
use penstock_base::settings::theirs::{
    Meaning, TheirSetting, TheirType, hides_variables, variables,
};
use penstock_base::{DeviceMetric, Metric, Metrics};
use penstock_engine::device_meter::{Reading, readings as device_readings};
use penstock_engine::{CacheEntry, LoggedRequest, Statement};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A snapshot of a table.
#[derive(Debug)]
pub struct PsRows {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

const STATS: &[&str] = &["area", "name", "unit", "value", "description"];
/// Those of an engine, which has devices too: rows of a queue name its device and its number.
const ENGINE_STATS: &[&str] =
    &["area", "name", "unit", "value", "description", "device", "queue", "upto_us"];
/// Those of statements: what is 0 is left out.
const STATEMENT_STATS: &[&str] =
    &["statement", "started_us", "elapsed_us", "area", "name", "unit", "value", "description"];

const REQUESTS: &[&str] = &[
    "number",
    "statement",
    "cause",
    "attempt",
    "started_us",
    "method",
    "url",
    "range",
    "status",
    "first_byte_us",
    "duration_us",
    "sent_bytes",
    "received_bytes",
    "new_connection",
    "error",
    "request_url",
];

/// Those of DuckDB's log: the status's reason, and headers, a line for each.
const LOGGED: &[&str] = &[
    "number",
    "statement",
    "cause",
    "attempt",
    "started_us",
    "method",
    "url",
    "range",
    "status",
    "first_byte_us",
    "duration_us",
    "sent_bytes",
    "received_bytes",
    "new_connection",
    "error",
    "request_url",
    "reason",
    "sent_headers",
    "received_headers",
];

const THEIRS: &[&str] =
    &["name", "type", "has_default", "default", "meaning", "doc", "variables", "hides_variables"];

const CACHE: &[&str] = &["cache", "url", "object", "etag", "size_bytes", "cached_bytes", "blocks"];

fn their_row(row: &TheirSetting) -> Vec<String> {
    let their_type = match row.their_type {
        TheirType::Bool => "BOOLEAN",
        TheirType::Unsigned => "UBIGINT",
        TheirType::Signed => "BIGINT",
        TheirType::Integer => "INTEGER",
        TheirType::Float => "FLOAT",
        TheirType::Text => "VARCHAR",
        TheirType::Texts => "VARCHAR[]",
        TheirType::Map => "MAP",
    };
    let meaning = match row.meaning {
        Meaning::Option => "option",
        Meaning::Shim => "shim",
        Meaning::Ours(_) => "ours",
        Meaning::Fixed(..) => "fixed",
    };
    let has_default = row.default.is_some().to_string();
    let default = row.default.unwrap_or_default();
    let variables = variables(row.name).join(" ");
    let hides = hides_variables(row.name).to_string();
    let cells = [row.name, their_type, &has_default, default, meaning, row.doc, &variables, &hides];
    cells.map(str::to_string).to_vec()
}

const DIFFERENCES: &[&str] = &["area", "name", "finding", "cure"];

impl PsRows {
    /// What is told to whoever moves from httpfs, azure and aws.
    pub(crate) fn of_differences(found: Vec<Difference>) -> Self {
        let row = |it: Difference| vec![it.area.to_string(), it.name, it.finding, it.cure];
        PsRows { columns: DIFFERENCES, rows: found.into_iter().map(row).collect() }
    }

    /// The settings of httpfs, azure and aws.
    pub(crate) fn of_theirs(table: &[TheirSetting]) -> Self {
        PsRows { columns: THEIRS, rows: table.iter().map(their_row).collect() }
    }

    pub(crate) fn of_metrics(metrics: &Metrics) -> Self {
        PsRows { columns: STATS, rows: Metric::ALL.iter().map(|row| stat(metrics, row)).collect() }
    }

    /// What each of the last statements counted.
    pub(crate) fn of_statements(statements: &[Arc<Statement>]) -> Self {
        let rows = statements.iter().flat_map(|statement| {
            let counted = Metric::ALL.iter().filter(|row| statement.metrics.get(row.0) > 0);
            counted.map(|row| {
                let mut cells = vec![
                    statement.number.to_string(),
                    epoch_us(statement.started).to_string(),
                    statement.elapsed().as_micros().to_string(),
                ];
                cells.extend(stat(&statement.metrics, row));
                cells
            })
        });
        PsRows { columns: STATEMENT_STATS, rows: rows.collect() }
    }

    /// All counters, those of devices at the end: first the sums over all queues, then each queue.
    pub(crate) fn of_engine(metrics: &Metrics) -> Self {
        let mut rows = PsRows::of_metrics(metrics).rows;
        rows.iter_mut().for_each(|row| row.resize(ENGINE_STATS.len(), String::new()));
        let (sum, queues) = device_readings();
        push_device(&mut rows, &sum, "", "");
        for queue in queues {
            let number = queue.queue.map_or("closed".to_string(), |number| number.to_string());
            push_device(&mut rows, &queue.reading, &queue.device, &number);
        }
        PsRows { columns: ENGINE_STATS, rows }
    }

    pub(crate) fn of_requests(requests: &[LoggedRequest]) -> Self {
        let row = |request: &LoggedRequest| {
            let (event, reason) = (&request.event, request.event.reason.as_ref());
            let statement = reason.map(|reason| reason.statement).filter(|number| *number > 0);
            vec![
                request.number.to_string(),
                statement.map_or_else(String::new, |number| number.to_string()),
                reason.map_or("", |reason| reason.cause).to_string(),
                reason.map_or_else(String::new, |reason| reason.attempt.to_string()),
                epoch_us(event.started).to_string(),
                event.method.to_string(),
                request.url().to_string(),
                event.range.clone(),
                event.status.to_string(),
                event.first_byte.as_micros().to_string(),
                event.total.as_micros().to_string(),
                event.sent_bytes.to_string(),
                event.received_bytes.to_string(),
                event.new_connection.to_string(),
                event.error.clone(),
                event.url.clone(),
            ]
        };
        PsRows { columns: REQUESTS, rows: requests.iter().map(row).collect() }
    }

    /// With what DuckDB's log has beside.
    pub(crate) fn of_logged(requests: &[LoggedRequest]) -> Self {
        let lines = |headers: &[(String, String)]| {
            headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>()
        };
        let mut rows = PsRows::of_requests(requests).rows;
        for (row, request) in rows.iter_mut().zip(requests) {
            row.push(reason(request.event.status).to_string());
            let headers = request.event.headers.as_deref();
            row.push(headers.map_or_else(String::new, |headers| lines(&headers.sent)));
            row.push(headers.map_or_else(String::new, |headers| lines(&headers.received)));
        }
        PsRows { columns: LOGGED, rows }
    }

    pub(crate) fn of_cache(entries: &[CacheEntry]) -> Self {
        let row = |entry: &CacheEntry| {
            vec![
                entry.cache.to_string(),
                entry.url.clone(),
                entry.object.clone(),
                entry.etag.clone(),
                entry.size_bytes.map_or_else(String::new, |size| size.to_string()),
                entry.cached_bytes.to_string(),
                entry.blocks.to_string(),
            ]
        };
        PsRows { columns: CACHE, rows: entries.iter().map(row).collect() }
    }

    pub(crate) fn of_text(text: String) -> Self {
        PsRows { columns: &["text"], rows: vec![vec![text]] }
    }

    /// The values of one profile.
    pub(crate) fn of_profile(
        values: impl Iterator<Item = (&'static str, &'static str, String)>,
    ) -> Self {
        let row = |(name, kind, value): (&str, &str, String)| vec![name.into(), kind.into(), value];
        PsRows { columns: &["name", "type", "value"], rows: values.map(row).collect() }
    }

    /// What values profiles may have: name, unit, type, meaning.
    pub(crate) fn of_profile_values(values: impl Iterator<Item = [&'static str; 4]>) -> Self {
        let columns = &["name", "unit", "type", "description"];
        PsRows { columns, rows: values.map(|row| row.map(String::from).into()).collect() }
    }

    pub(crate) fn of_names(names: Vec<String>) -> Self {
        PsRows { columns: &["name"], rows: names.into_iter().map(|name| vec![name]).collect() }
    }

    pub(crate) fn give(self) -> *mut PsRows {
        Box::into_raw(Box::new(self))
    }
}

/// One counter, as [`STATS`] has it.
fn stat(metrics: &Metrics, row: &(Metric, &str, &str, &str)) -> Vec<String> {
    let (metric, name, unit, doc) = *row;
    [metric.area(), name, unit, &*metrics.get(metric).to_string(), doc].map(String::from).into()
}

/// The rows of one device's queue, or of all.
fn push_device(rows: &mut Vec<Vec<String>>, reading: &Reading, device: &str, queue: &str) {
    for (metric, name, unit, doc) in DeviceMetric::ALL {
        let mut push = |value: u64, upto: String| {
            let area = metric.area();
            let texts = [area, name, unit, &*value.to_string(), doc, device, queue, &upto];
            rows.push(texts.map(str::to_string).to_vec());
        };
        if *metric != DeviceMetric::Latency {
            push(reading.get(*metric), String::new());
            continue;
        }
        for (bound, count) in reading.latency.buckets().filter(|(_, count)| *count > 0) {
            push(count, bound.map_or_else(String::new, |it| it.as_micros().to_string()));
        }
    }
}

/// Microseconds since the epoch; before it, negative.
pub(crate) fn epoch_us(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
    }
}

/// See the header.
///
/// # Safety
/// `rows` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rows_count(rows: *const PsRows) -> usize {
    // SAFETY: the caller vouches for it.
    unsafe { rows.as_ref() }.map_or(0, |rows| rows.rows.len())
}

/// See the header.
///
/// # Safety
/// `rows` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rows_column_count(rows: *const PsRows) -> usize {
    // SAFETY: the caller vouches for it.
    unsafe { rows.as_ref() }.map_or(0, |rows| rows.columns.len())
}

/// See the header.
///
/// # Safety
/// `rows` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rows_column_name(rows: *const PsRows, column: usize) -> PsStr {
    // SAFETY: the caller vouches for it.
    unsafe { rows.as_ref() }
        .and_then(|rows| rows.columns.get(column))
        .map_or(PsStr::EMPTY, |name| PsStr::lend(name))
}

/// See the header.
///
/// # Safety
/// `rows` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rows_cell(rows: *const PsRows, row: usize, column: usize) -> PsStr {
    // SAFETY: the caller vouches for it.
    unsafe { rows.as_ref() }
        .and_then(|rows| rows.rows.get(row)?.get(column))
        .map_or(PsStr::EMPTY, |cell| PsStr::lend(cell))
}

/// See the header.
///
/// # Safety
/// `rows` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rows_free(rows: *mut PsRows) {
    // SAFETY: the caller vouches for it.
    unsafe { free(rows) }
}
