//! What a statement's profile says of it: the values, and the box that shows them. Pure, but for
//! the treaty's functions at the end.

use crate::abi::handle;
use crate::error::quiet;
use crate::query::PsQuery;
use crate::rows::PsRows;
use penstock_base::{Metric, Metrics, micros};
use penstock_engine::{Query, TrafficSoFar};
use std::ptr::null_mut;
use std::time::Duration;

/// How a value that no counter has is made.
#[derive(Clone, Copy)]
enum Source {
    /// Bytes in a second.
    Rate(&'static [Metric], fn(&TrafficSoFar) -> Duration),
    Micros(fn(&TrafficSoFar) -> Duration),
    Text(fn(&TrafficSoFar) -> &str),
}

/// A value of a profile.
#[derive(Clone, Copy)]
enum Value {
    /// With the name, unit and meaning of the counter.
    Counter(Metric),
    /// Name, unit, source and meaning.
    Made(&'static str, &'static str, Source, &'static str),
}

use Source::{Micros, Rate, Text};
use Value::{Counter, Made};

impl Value {
    /// Name, unit and meaning.
    fn described(self) -> [&'static str; 3] {
        match self {
            Counter(metric) => {
                let (_, name, unit, doc) = Metric::ALL[metric as usize];
                [name, unit, doc]
            }
            Made(name, unit, _, doc) => [name, unit, doc],
        }
    }

    fn name(self) -> &'static str {
        self.described()[0]
    }

    /// How DuckDB calls its type.
    fn kind(self) -> &'static str {
        if matches!(self, Made(_, _, Text(_), _)) { "string" } else { "uint64" }
    }
}

/// Every value, in the order in which profiles have them.
const VALUES: &[Value] = &[
    Counter(Metric::Requests),
    Counter(Metric::RequestsGet),
    Counter(Metric::RequestsHead),
    Counter(Metric::RequestsPut),
    Counter(Metric::RequestsPost),
    Counter(Metric::RequestsDelete),
    Counter(Metric::Retries),
    Counter(Metric::Errors),
    Counter(Metric::BytesRead),
    Counter(Metric::BytesWritten),
    Made(
        "bytes_per_second",
        "bytes per second",
        Rate(&[Metric::BytesRead, Metric::BytesWritten], |traffic| traffic.requests_busy),
        "Body bytes, over the time in which at least one request was under way.",
    ),
    Made(
        "slowest_request_us",
        "microseconds",
        Micros(|traffic| traffic.slowest_request),
        "The longest request, from sending it to its last byte.",
    ),
    Made(
        "slowest_request_url",
        "",
        Text(|traffic| &traffic.slowest_url),
        "The URL of the longest request.",
    ),
    Counter(Metric::CacheBytesRead),
    Counter(Metric::ReadAheadHitBytes),
    Counter(Metric::ReadAheadWastedBytes),
    Counter(Metric::WaitLinkMicros),
    Counter(Metric::WaitStoreMicros),
    Counter(Metric::WaitMemoryMicros),
    Made(
        "processor_time_us",
        "microseconds",
        Micros(|traffic| traffic.worked),
        "Time in which threads worked on the plan and waited for nothing of Penstock.",
    ),
    Counter(Metric::VolumeReads),
    Counter(Metric::VolumeBytesRead),
    Counter(Metric::VolumeReadMicros),
    Made(
        "volume_bytes_per_second",
        "bytes per second",
        Rate(&[Metric::VolumeBytesRead], |traffic| traffic.reads_busy),
        "Bytes read from volumes, over the time in which at least one such read was under way.",
    ),
    Made(
        "slowest_volume_read_us",
        "microseconds",
        Micros(|traffic| traffic.slowest_read),
        "The longest read of a volume.",
    ),
];

/// Without any of them a statement had nothing to do with us.
const USES: [Metric; 4] =
    [Metric::Requests, Metric::MetadataHits, Metric::CacheHits, Metric::VolumeReads];

/// The value as text; `None` where it is zero.
fn shown(value: Value, metrics: &Metrics, traffic: &TrafficSoFar) -> Option<String> {
    let number = match value {
        Counter(metric) => metrics.get(metric),
        Made(_, _, Micros(time), _) => micros(time(traffic)),
        Made(_, _, Rate(bytes, time), _) => {
            let bytes: u64 = bytes.iter().map(|metric| metrics.get(*metric)).sum();
            let seconds = time(traffic).as_secs_f64();
            // A cast saturates.
            if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
        }
        Made(_, _, Text(text), _) => {
            return Some(text(traffic).to_string()).filter(|text| !text.is_empty());
        }
    };
    (number > 0).then(|| number.to_string())
}

/// The values that are not zero; none where the statement had nothing to do with us.
fn values(metrics: &Metrics, traffic: &TrafficSoFar) -> Vec<(Value, String)> {
    if USES.iter().all(|metric| metrics.get(*metric) == 0) {
        return Vec::new();
    }
    let shown = |value: &Value| Some((*value, shown(*value, metrics, traffic)?));
    VALUES.iter().filter_map(shown).collect()
}

/// Most characters of a line in the box.
const WIDTH: usize = 44;

/// The values of a profile, by name.
struct Named<'a>(&'a [(Value, String)]);

impl Named<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(value, _)| value.name() == name).map(|(_, text)| text.clone())
    }

    fn number(&self, name: &str, show: impl Fn(u64) -> String) -> Option<String> {
        self.text(name)?.parse().ok().map(show)
    }

    /// A line of those that are there, if any is.
    fn line<const N: usize>(head: &str, parts: [Option<String>; N]) -> Option<String> {
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{head}{}", parts.join(", ")))
    }

    fn request_lines(&self) -> [Option<String>; 8] {
        let methods = ["GET", "HEAD", "PUT", "POST", "DELETE"].map(|method| {
            let name = format!("requests_{}", method.to_ascii_lowercase());
            self.number(&name, |count| format!("{method} {count}"))
        });
        let size_of = |name, head: &str| self.number(name, |it| format!("{head}{}", size(it)));
        let count_of = |name, head: &str| self.number(name, |it| format!("{head}{it}"));
        [
            Self::line("", [count_of("requests", "requests: ")]),
            Self::line("  ", methods),
            Self::line("", [count_of("retries", "retries: "), count_of("errors", "errors: ")]),
            Self::line(
                "",
                [size_of("bytes_read", "read: "), size_of("bytes_written", "written: ")],
            ),
            Self::line("rate: ", [self.number("bytes_per_second", rate)]),
            Self::line("slowest request: ", [self.number("slowest_request_us", millis)]),
            Self::line("  ", [self.text("slowest_request_url")]),
            Self::line("", [size_of("cache_bytes_read", "from caches of bytes: ")]),
        ]
    }

    fn other_lines(&self) -> [Option<String>; 9] {
        let size_of = |name, head: &str| self.number(name, |it| format!("{head}{}", size(it)));
        let time_of = |head, name| Self::line(head, [self.number(name, seconds)]);
        let ahead = [
            size_of("read_ahead_hit_bytes", "hit "),
            size_of("read_ahead_wasted_bytes", "wasted "),
        ];
        let reads = self.number("volume_reads", |count| format!("{count} reads"));
        [
            Self::line("read-ahead: ", ahead),
            Self::line("volumes: ", [reads, size_of("volume_bytes_read", "")]),
            Self::line("rate of volumes: ", [self.number("volume_bytes_per_second", rate)]),
            Self::line("slowest read: ", [self.number("slowest_volume_read_us", millis)]),
            time_of("waited for the link: ", "wait_link_time_us"),
            time_of("waited for the store: ", "wait_store_time_us"),
            time_of("waited for memory: ", "wait_memory_time_us"),
            time_of("waited for devices: ", "volume_read_time_us"),
            time_of("processor: ", "processor_time_us"),
        ]
    }
}

impl Named<'_> {
    /// The counts as the box of httpfs has them, zeros too: tools and people look for it. What read
    /// volumes alone has none.
    fn lines_of_httpfs(&self) -> [Option<String>; 3] {
        if self.text("requests").is_none() && self.text("volume_reads").is_some() {
            return [const { None }; 3];
        }
        let count = |name| self.text(name).unwrap_or_else(|| "0".to_string());
        let size_of = |name| self.number(name, size).unwrap_or_else(|| "0 bytes".to_string());
        [
            format!("HTTP Stats: in: {}, out: {}", size_of("bytes_read"), size_of("bytes_written")),
            format!(
                "  #HEAD: {}, #GET: {}, #PUT: {}",
                count("requests_head"),
                count("requests_get"),
                count("requests_put")
            ),
            format!("  #POST: {}, #DELETE: {}", count("requests_post"), count("requests_delete")),
        ]
        .map(Some)
    }
}

fn size(bytes: u64) -> String {
    const STEPS: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match STEPS.iter().find(|(_, step)| bytes >= *step) {
        Some((unit, step)) => format!("{:.1} {unit}", bytes as f64 / *step as f64),
        None => format!("{bytes} bytes"),
    }
}

fn rate(bytes_per_second: u64) -> String {
    format!("{:.1} MB/s", bytes_per_second as f64 / 1e6)
}

fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1e3)
}

fn seconds(micros: u64) -> String {
    format!("{:.3} s", micros as f64 / 1e6)
}

/// The box in EXPLAIN ANALYZE: as wide as those of DuckDB. Empty where there is nothing to show.
fn drawn(values: &[(Value, String)]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let named = Named(values);
    let bar = "─".repeat(WIDTH + 2);
    let mut text = format!("┌─{bar}─┐\n│┌{bar}┐│\n");
    let title = Some("Penstock".to_string());
    let lines = [title]
        .into_iter()
        .chain(named.request_lines())
        .chain(named.other_lines())
        .chain(named.lines_of_httpfs());
    for line in lines.flatten() {
        // A long URL takes several.
        let characters: Vec<char> = line.chars().collect();
        for part in characters.chunks(WIDTH) {
            let part: String = part.iter().collect();
            text.push_str(&format!("││ {part:WIDTH$} ││\n"));
        }
    }
    text + &format!("│└{bar}┘│\n└─{bar}─┘\n")
}

fn values_of(query: &Query) -> Vec<(Value, String)> {
    values(query.metrics(), &query.traffic())
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_profile(query: *const PsQuery) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(query) = (unsafe { handle(query, "query") }) else { return null_mut() };
    quiet(null_mut(), || {
        let values = values_of(&query.query).into_iter();
        PsRows::of_profile(values.map(|(value, text)| (value.name(), value.kind(), text))).give()
    })
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_box(query: *const PsQuery) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(query) = (unsafe { handle(query, "query") }) else { return null_mut() };
    quiet(null_mut(), || PsRows::of_text(drawn(&values_of(&query.query))).give())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_profile_values() -> *mut PsRows {
    quiet(null_mut(), || {
        let described = |value: &Value| {
            let [name, unit, doc] = value.described();
            [name, unit, value.kind(), doc]
        };
        PsRows::of_profile_values(VALUES.iter().map(described)).give()
    })
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_worked(query: *const PsQuery, micros: u64) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.has_worked(Duration::from_micros(micros)));
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_thread_waited_us() -> u64 {
    quiet(0, || micros(penstock_engine::thread_waited()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[(Metric, u64)]) -> Metrics {
        let metrics = Metrics::default();
        counts.iter().for_each(|(metric, amount)| metrics.add(*metric, *amount));
        metrics
    }

    #[test]
    fn what_is_zero_is_not_there() {
        let metrics = counted(&[(Metric::Requests, 2), (Metric::RequestsGet, 2)]);
        let values = values(&metrics, &TrafficSoFar::default());
        let named: Vec<_> = values.iter().map(|(value, text)| (value.name(), &text[..])).collect();
        assert_eq!(named, [("requests", "2"), ("requests_get", "2")]);
        let lines: Vec<String> = drawn(&values).lines().map(str::to_string).collect();
        let inside = |line: &String| line.trim_matches(['│', ' ']).to_string();
        let said: Vec<String> = lines[2..lines.len() - 2].iter().map(inside).collect();
        let own = ["Penstock", "requests: 2", "GET 2"];
        let of_httpfs = [
            "HTTP Stats: in: 0 bytes, out: 0 bytes",
            "#HEAD: 0, #GET: 2, #PUT: 0",
            "#POST: 0, #DELETE: 0",
        ];
        assert_eq!(said, [&own[..], &of_httpfs].concat());
        let of_volumes = counted(&[(Metric::VolumeReads, 2)]);
        let text = drawn(&super::values(&of_volumes, &TrafficSoFar::default()));
        assert!(text.contains("volumes: 2 reads") && !text.contains(" 0"), "{text}");
    }

    #[test]
    fn a_statement_that_used_nothing_of_ours_has_no_box() {
        let worked = TrafficSoFar { worked: Duration::from_secs(1), ..Default::default() };
        let values = values(&counted(&[(Metric::WaitMicros, 5)]), &worked);
        assert_eq!((values.len(), drawn(&values)), (0, String::new()));
    }

    /// A statement that did everything.
    fn busy() -> Vec<(Value, String)> {
        let mut counts: Vec<_> = Metric::ALL.iter().map(|row| (row.0, 1)).collect();
        counts.extend([(Metric::BytesRead, 3 << 20), (Metric::VolumeBytesRead, 1_999_999)]);
        let traffic = TrafficSoFar {
            requests_busy: Duration::from_secs(2),
            slowest_request: Duration::from_micros(1_234_567),
            slowest_url: format!("s3://bucket/{}ü.parquet", "long/".repeat(20)),
            reads_busy: Duration::from_millis(4),
            slowest_read: Duration::from_micros(250),
            worked: Duration::from_millis(1500),
        };
        values(&counted(&counts), &traffic)
    }

    #[test]
    fn every_value_is_shown_once_and_the_box_says_all_but_none_twice() {
        let values = busy();
        assert_eq!(values.len(), VALUES.len());
        let text = drawn(&values);
        for said in [
            "GET 1, HEAD 1, PUT 1, POST 1, DELETE 1",
            "retries: 1, errors: 1",
            "read: 3.0 MiB, written: 1 bytes",
            "rate: 1.6 MB/s",
            "slowest request: 1234.6 ms",
            "from caches of bytes: 1 bytes",
            "read-ahead: hit 1 bytes, wasted 1 bytes",
            "volumes: 1 reads, 1.9 MiB",
            "rate of volumes: 500.0 MB/s",
            "slowest read: 0.2 ms",
            "waited for the link: 0.000 s",
            "waited for the store: ",
            "waited for memory: ",
            "waited for devices: ",
            "processor: 1.500 s",
        ] {
            assert_eq!(text.matches(said).count(), 1, "{said} in\n{text}");
        }
    }

    #[test]
    fn lines_are_as_wide_as_the_box_and_a_long_url_is_whole() {
        let text = drawn(&busy());
        assert!(text.lines().all(|line| line.chars().count() == WIDTH + 6), "{text}");
        let joined: String = text.lines().map(|line| line.trim_matches(['│', ' '])).collect();
        assert!(joined.contains(&format!("s3://bucket/{}ü.parquet", "long/".repeat(20))), "{text}");
    }

    #[test]
    fn names_are_unique_and_each_has_a_sentence() {
        for (index, [name, _, doc]) in VALUES.iter().map(|value| value.described()).enumerate() {
            assert!(VALUES[..index].iter().all(|other| other.name() != name), "{name}");
            assert!(doc.ends_with('.'), "{name}");
        }
    }
}
