//! Decides which bytes of a read come from memory, which from the store, and in how many requests.
//! Pure.

use crate::parallel::Policy;
use penstock_base::ByteRange;
use penstock_store::Profile;

/// Where a span's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The held piece of this index.
    Held(usize),
    /// One request to the store.
    Store,
}

/// What is fetched, or copied, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub range: ByteRange,
    pub source: Source,
}

/// How a large read may be split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    /// No span is smaller than this.
    pub span_bytes_min: u64,
    /// Most requests at once for one read.
    pub fanout_max: u64,
}

impl Split {
    /// A second connection pays when the time to the first byte is small beside the time that the
    /// bytes take: a span lasts at least eight times the former, and is worth the CPU of another
    /// request, which is the chunk size of the settings.
    pub fn for_profile(profile: &Profile, policy: &Policy) -> Self {
        let wait_bytes = profile.first_byte_ms / 1000.0 * profile.connection_bytes_per_s;
        // A float to integer cast saturates, and a negative profile counts as 0.
        let span_bytes_min = ((wait_bytes * 8.0) as u64).max(policy.chunk_bytes);
        let fanout_max = if policy.enabled { policy.fanout_max } else { 1 };
        Split { span_bytes_min: span_bytes_min.max(policy.min_bytes / 2), fanout_max }
    }
}

/// Covers `range` with spans in order: held bytes at its ends, requests for what lies between.
pub(crate) fn plan(range: ByteRange, held: &[ByteRange], split: &Split) -> Vec<Span> {
    let mut head = Vec::new();
    let mut tail = Vec::new();
    let mut rest = range;
    while let Some((index, piece)) = holding(held, rest.start).filter(|_| !rest.is_empty()) {
        let end = piece.end.min(rest.end);
        let range = ByteRange { start: rest.start, end };
        head.push(Span { range, source: Source::Held(index) });
        rest.start = end;
    }
    while let Some((index, piece)) =
        (!rest.is_empty()).then(|| holding(held, rest.end - 1)).flatten()
    {
        let start = piece.start.max(rest.start);
        let range = ByteRange { start, end: rest.end };
        tail.push(Span { range, source: Source::Held(index) });
        rest.end = start;
    }
    head.extend(requests(rest, split));
    head.extend(tail.into_iter().rev());
    head
}

fn holding(held: &[ByteRange], offset: u64) -> Option<(usize, &ByteRange)> {
    held.iter().enumerate().find(|(_, piece)| piece.start <= offset && offset < piece.end)
}

fn requests(range: ByteRange, split: &Split) -> Vec<Span> {
    if range.is_empty() {
        return Vec::new();
    }
    let count = (range.len() / split.span_bytes_min.max(1)).clamp(1, split.fanout_max.max(1));
    let each = range.len().div_ceil(count);
    (0..count)
        .map(|index| ByteRange {
            start: range.start + index * each,
            end: (range.start + (index + 1) * each).min(range.end),
        })
        .filter(|range| !range.is_empty())
        .map(|range| Span { range, source: Source::Store })
        .collect()
}

/// The window worth fetching and keeping in place of `range`, if there is one: the whole of a small
/// object, the tail of a Parquet file whose end is read, the head of any other. A small object of
/// which some is held already was not worth fetching whole.
pub(crate) fn widen(
    range: ByteRange,
    size: u64,
    window_bytes: u64,
    tail_first: bool,
    held: &[ByteRange],
) -> Option<ByteRange> {
    let window = opening_window(size, window_bytes, tail_first)?;
    let wanted = !range.is_empty() && window.contains(&range);
    let is_whole = window.len() == size;
    let known = held.iter().any(|piece| piece.contains(&range)) || (is_whole && !held.is_empty());
    (wanted && !known).then_some(window)
}

/// The bytes of an object of known size that are read first: the whole of a small one, the footer
/// of a Parquet file, the head of any other. `None` where `window_bytes` of 0 forbids it.
pub(crate) fn opening_window(size: u64, window_bytes: u64, tail_first: bool) -> Option<ByteRange> {
    if window_bytes == 0 || size == 0 {
        None
    } else if size <= window_bytes {
        Some(ByteRange { start: 0, end: size })
    } else if tail_first {
        Some(footer_window(size))
    } else {
        Some(ByteRange { start: 0, end: window_bytes })
    }
}

/// The end of a Parquet file, with its footer most likely inside.
pub(crate) fn footer_window(size: u64) -> ByteRange {
    ByteRange { start: size - footer_guess_bytes(size).min(size), end: size }
}

/// How much of a Parquet file its readers ask for first: a footer takes about a thousandth of the
/// file. DuckDB reads that, rounded up to a power of two between 16 and 256 KiB; to fetch the same
/// makes its read a hit without fetching more.
fn footer_guess_bytes(size: u64) -> u64 {
    (size / 1000).next_power_of_two().clamp(16 << 10, 256 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn ends_come_from_memory_and_the_middle_in_one_request() {
        let split = Split { span_bytes_min: 1000, fanout_max: 4 };
        let spans = plan(range(5, 95), &[range(0, 10), range(90, 100)], &split);
        assert_eq!(
            spans,
            [
                Span { range: range(5, 10), source: Source::Held(0) },
                Span { range: range(10, 90), source: Source::Store },
                Span { range: range(90, 95), source: Source::Held(1) },
            ]
        );
    }

    #[test]
    fn the_settings_of_parallel_reads_bound_how_a_read_is_split() {
        let profile = Profile {
            first_byte_ms: 30.0,
            connection_bytes_per_s: 90e6,
            part_size_min_bytes: 0,
            part_size_max_bytes: 0,
            part_count_max: 0,
            parts_uniform: false,
            put_size_max_bytes: 0,
            delete_batch_max: 0,
        };
        let requests = |settings: &[(&str, &str)]| {
            let mut chosen = penstock_base::Settings::default();
            for (name, value) in settings {
                chosen.set(name, value).unwrap();
            }
            let split = Split::for_profile(&profile, &Policy::of(&chosen));
            plan(range(0, 256 << 20), &[], &split).len()
        };
        assert_eq!(requests(&[]), 4);
        assert_eq!(requests(&[("parallel_read_max_fanout", "8")]), 8);
        assert_eq!(requests(&[("parallel_read_chunk_size_bytes", "128MiB")]), 2);
        assert_eq!(requests(&[("parallel_read_recommended_preset_enabled", "true")]), 2);
        assert_eq!(requests(&[("parallel_read_min_bytes", "257MiB")]), 1);
        assert_eq!(requests(&[("parallel_read_enabled", "false")]), 1);
    }

    #[test]
    fn small_object_is_wanted_whole_and_large_parquet_by_its_tail() {
        let widen = |range, size, bytes, tail| widen(range, size, bytes, tail, &[]);
        assert_eq!(widen(range(40, 50), 60, 100, true), Some(range(0, 60)));
        let size = 80 << 20;
        let tail = range(size - (128 << 10), size);
        assert_eq!(widen(range(size - 8, size), size, 100, true), Some(tail));
        assert_eq!(widen(range(tail.start - 1, size), size, 100, true), None);
        assert_eq!(widen(range(size - 8, size), size, 0, true), None);
        assert_eq!(widen(range(0, 10), 1000, 100, false), Some(range(0, 100)));
        assert_eq!(widen(range(500, 510), 1000, 100, false), None);
    }

    #[test]
    fn what_is_held_needs_no_window_and_a_small_object_held_in_part_is_not_completed() {
        assert_eq!(widen(range(50, 60), 60, 100, true, &[range(40, 60)]), None);
        assert_eq!(widen(range(0, 10), 60, 100, true, &[range(40, 60)]), None);
        assert_eq!(widen(range(0, 10), 1000, 100, false, &[range(900, 1000)]), Some(range(0, 100)));
    }

    proptest! {
        #[test]
        fn every_byte_is_in_exactly_one_span(
            start in 0u64..500, len in 0u64..500,
            held in prop::collection::vec((0u64..1000, 0u64..300), 0..4),
            span_bytes_min in 0u64..200, fanout_max in 0u64..6,
        ) {
            let wanted = range(start, start + len);
            let held: Vec<ByteRange> = held.iter().map(|(s, l)| range(*s, s + l)).collect();
            let spans = plan(wanted, &held, &Split { span_bytes_min, fanout_max });
            let mut next = wanted.start;
            for span in &spans {
                prop_assert_eq!(span.range.start, next);
                prop_assert!(!span.range.is_empty());
                if let Source::Held(index) = span.source {
                    prop_assert!(held[index].contains(&span.range));
                }
                next = span.range.end;
            }
            prop_assert_eq!(next, wanted.end);
            let requests = spans.iter().filter(|span| span.source == Source::Store).count();
            prop_assert!(requests as u64 <= fanout_max.max(1));
        }

        #[test]
        fn a_window_covers_what_is_read(
            start in 0u64..1000, len in 1u64..1000, size in 1u64..2000,
            window in 0u64..500, tail_first: bool,
        ) {
            let wanted = range(start, start + len);
            if let Some(window) = widen(wanted, size, window, tail_first, &[]) {
                prop_assert!(window.contains(&wanted));
                prop_assert!(window.end <= size);
            }
        }
    }
}
