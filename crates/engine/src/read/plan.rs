//! Decides which bytes of a read come from memory, which from the store, and in how many requests.
//! Pure.

use crate::pace::policy::parts;
use penstock_base::ByteRange;

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

impl Span {
    fn is_missing(&self) -> bool {
        self.source == Source::Store
    }
}

/// Covers `range` with spans in order: held bytes where there are some, one request for each
/// stretch without. Stretches that lie nearer to each other than `gap_bytes` are one request, which
/// fetches again what is held between them; others are not, however few requests there may be at
/// once: to wait for one more costs less than the bytes between. `gap_bytes` is only asked for
/// where it matters.
pub(crate) fn plan(
    range: ByteRange,
    held: &[ByteRange],
    gap_bytes: impl FnOnce() -> u64,
) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let holding = held.iter().enumerate().filter(|(_, piece)| piece.start <= at);
        let (source, end) = match holding.max_by_key(|(_, piece)| piece.end) {
            Some((index, piece)) if piece.end > at => (Source::Held(index), piece.end),
            _ => {
                let next = held.iter().map(|piece| piece.start).filter(|start| *start > at).min();
                (Source::Store, next.unwrap_or(u64::MAX))
            }
        };
        let end = end.min(range.end);
        spans.push(Span { range: ByteRange { start: at, end }, source });
        at = end;
    }
    let missing = spans.iter().filter(|span| span.is_missing()).count() as u64;
    if missing > 1 { merged(spans, gap_bytes()) } else { spans }
}

/// Makes one request of those that lie near to each other.
fn merged(mut spans: Vec<Span>, gap_bytes: u64) -> Vec<Span> {
    loop {
        let missing: Vec<usize> =
            (0..spans.len()).filter(|&index| spans[index].is_missing()).collect();
        let gap = |pair: &[usize]| spans[pair[1]].range.start - spans[pair[0]].range.end;
        let Some(nearest) = missing.windows(2).min_by_key(|pair| gap(pair)) else { return spans };
        if gap(nearest) > gap_bytes {
            return spans;
        }
        let (first, last) = (nearest[0], nearest[1]);
        spans[first].range.end = spans[last].range.end;
        spans.drain(first + 1..=last);
    }
}

/// Bytes to be fetched, and in how many stretches.
pub(crate) fn missing(spans: &[Span]) -> (u64, u64) {
    let missing = spans.iter().filter(|span| span.is_missing());
    missing.fold((0, 0), |(bytes, count), span| (bytes + span.range.len(), count + 1))
}

/// Splits the requests until there are `count`, the longest ones most.
pub(crate) fn divide(spans: Vec<Span>, count: u64) -> Vec<Span> {
    let (_, stretches) = missing(&spans);
    if stretches == 0 || stretches >= count {
        return spans;
    }
    let mut shares: Vec<(u64, ByteRange)> =
        spans.iter().filter(|span| span.is_missing()).map(|span| (1, span.range)).collect();
    for _ in stretches..count {
        let longest = shares.iter_mut().max_by_key(|(parts, range)| range.len() / *parts);
        longest.expect("there is a stretch").0 += 1;
    }
    let mut shares = shares.into_iter();
    let mut divided = Vec::new();
    for span in spans {
        match span.source {
            Source::Held(_) => divided.push(span),
            Source::Store => {
                let (count, range) = shares.next().expect("each stretch has a share");
                let parts = parts(range, count).into_iter();
                divided.extend(parts.map(|range| Span { range, source: Source::Store }));
            }
        }
    }
    divided
}

/// The window worth fetching and keeping in place of `range`, if there is one: the whole of a small
/// object, the tail of a Parquet file whose end is read, the head of any other. A small Parquet
/// file of which some is held already was not worth fetching whole. What is missing of a small file
/// of text is fetched with its first read: it is read to its end.
pub(crate) fn widen(
    range: ByteRange,
    size: u64,
    window_bytes: u64,
    tail_first: bool,
    grid_bytes: u64,
    held: &[ByteRange],
) -> Option<ByteRange> {
    let window = opening_window(size, window_bytes, tail_first, grid_bytes)?;
    let wanted = !range.is_empty() && window.contains(&range);
    let is_whole = window.len() == size;
    let covers = |wanted: &ByteRange| held.iter().any(|piece| piece.contains(wanted));
    let known = match (is_whole, tail_first) {
        (true, true) => !held.is_empty(),
        (true, false) => covers(&window) || missing(&plan(window, held, || 0)).0 == 0,
        (false, _) => covers(&range),
    };
    (wanted && !known).then_some(window)
}

/// The bytes of an object of known size that are read first: the whole of a small one, the footer
/// of a Parquet file, the head of any other. `None` where `window_bytes` of 0 forbids it.
pub(crate) fn opening_window(
    size: u64,
    window_bytes: u64,
    tail_first: bool,
    grid_bytes: u64,
) -> Option<ByteRange> {
    if window_bytes == 0 || size == 0 {
        None
    } else if size <= window_bytes {
        Some(ByteRange { start: 0, end: size })
    } else if tail_first {
        Some(footer_window(size, grid_bytes))
    } else {
        Some(ByteRange { start: 0, end: window_bytes })
    }
}

/// The end of a Parquet file, with its footer most likely inside, for readers whose reads begin at
/// multiples of `grid_bytes`: what they had to fetch before it would be a request of its own.
pub(crate) fn footer_window(size: u64, grid_bytes: u64) -> ByteRange {
    let start = size.saturating_sub(footer_guess_bytes(size));
    ByteRange { start: start - start % grid_bytes, end: size }
}

/// Whether a read brings what is missing of a Parquet footer that begins before the `tail` which is
/// held. It need not go on behind where that begins: DuckDB's external file cache asks for no more
/// than it has not.
pub(crate) fn is_rest_of_footer(range: ByteRange, footer_start: u64, tail: ByteRange) -> bool {
    footer_start < tail.start && range.start <= footer_start && range.end >= tail.start
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

    fn store(start: u64, end: u64) -> Span {
        Span { range: range(start, end), source: Source::Store }
    }

    fn held(start: u64, end: u64, index: usize) -> Span {
        Span { range: range(start, end), source: Source::Held(index) }
    }

    #[test]
    fn ends_come_from_memory_and_the_middle_in_one_request() {
        let spans = plan(range(5, 95), &[range(0, 10), range(90, 100)], || 0);
        assert_eq!(spans, [held(5, 10, 0), store(10, 90), held(90, 95, 1)]);
    }

    #[test]
    fn near_stretches_are_one_request_and_far_ones_two() {
        let pieces = [range(10, 20), range(50, 80)];
        let spans = |gap| plan(range(0, 100), &pieces, || gap);
        let apart = [store(0, 10), held(10, 20, 0), store(20, 50), held(50, 80, 1), store(80, 100)];
        assert_eq!(spans(9), apart);
        assert_eq!(spans(10), [store(0, 50), held(50, 80, 1), store(80, 100)]);
        assert_eq!(spans(30), [store(0, 100)]);
        assert_eq!(spans(0), apart);
    }

    #[test]
    fn the_longest_stretches_are_split() {
        let mib = |n: u64| n << 20;
        let spans = vec![store(0, mib(1)), held(mib(1), mib(2), 0), store(mib(2), mib(8))];
        let divided = divide(spans.clone(), 4);
        let lens: Vec<u64> = divided.iter().map(|span| span.range.len() >> 20).collect();
        assert_eq!(lens, [1, 1, 2, 2, 2]);
        assert_eq!(divide(spans.clone(), 1), spans);
    }

    #[test]
    fn small_object_is_wanted_whole_and_large_parquet_by_its_tail() {
        let widen = |range, size, bytes, tail| widen(range, size, bytes, tail, 1, &[]);
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
    fn a_footer_begins_where_reads_do() {
        let (size, start) = (150 << 10, 134 << 10);
        assert_eq!(footer_window(size, 1), range(start, size));
        assert_eq!(footer_window(size, 4096), range(132 << 10, size));
        assert_eq!(footer_window(size, 1 << 20), range(0, size));
        assert_eq!(footer_window(9, 4096), range(0, 9));
    }

    #[test]
    fn a_footer_is_kept_that_is_longer_than_the_tail_which_is_held() {
        let tail = range(9000, 10_000);
        for read in [range(8000, 9992), range(8000, 9000), range(1, 10_000), range(8000, 9900)] {
            assert!(is_rest_of_footer(read, 8000, tail), "{read:?}");
        }
        for other in [range(8001, 9992), range(8000, 8999), range(9100, 9992)] {
            assert!(!is_rest_of_footer(other, 8000, tail), "{other:?}");
        }
        assert!(!is_rest_of_footer(range(8000, 10_000), 9000, tail), "all of it is held");
    }

    #[test]
    fn what_is_held_needs_no_window_and_of_small_objects_held_in_part_text_is_completed() {
        let widen = |range, size, bytes, tail, held: &_| widen(range, size, bytes, tail, 1, held);
        assert_eq!(widen(range(50, 60), 60, 100, true, &[range(40, 60)]), None);
        assert_eq!(widen(range(0, 10), 60, 100, false, &[range(0, 40)]), Some(range(0, 60)));
        for held in [&[range(0, 60)][..], &[range(0, 40), range(40, 60)]] {
            assert_eq!(widen(range(0, 10), 60, 100, false, held), None);
        }
        assert_eq!(widen(range(0, 10), 60, 100, true, &[range(40, 60)]), None);
        assert_eq!(widen(range(0, 10), 1000, 100, false, &[range(900, 1000)]), Some(range(0, 100)));
    }

    proptest! {
        #[test]
        fn every_byte_is_in_exactly_one_span(
            start in 0u64..500, len in 0u64..500,
            held in prop::collection::vec((0u64..1000, 0u64..300), 0..6),
            gap_bytes in 0u64..200, count in 0u64..12, scale in 0u32..20,
        ) {
            let range = |s: u64, l: u64| range(s << scale, (s + l) << scale);
            let wanted = range(start, len);
            let held: Vec<ByteRange> = held.iter().map(|(s, l)| range(*s, *l)).collect();
            let planned = plan(wanted, &held, || gap_bytes << scale);
            let (bytes, stretches) = missing(&planned);
            let spans = divide(planned, count);
            prop_assert_eq!(missing(&spans).0, bytes);
            prop_assert!(missing(&spans).1 <= count.max(stretches));
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
        }

        #[test]
        fn what_is_held_is_fetched_again_only_between_near_stretches(
            held in prop::collection::vec((0u64..1000, 1u64..300), 0..6), gap_bytes in 0u64..100,
        ) {
            let held: Vec<ByteRange> = held.iter().map(|(s, l)| range(*s, s + l)).collect();
            for span in plan(range(0, 1200), &held, || gap_bytes) {
                let is_held = |at: u64| held.iter().any(|held| held.start <= at && at < held.end);
                let mut run = 0;
                for at in span.range.start..span.range.end {
                    run = if span.source == Source::Store && is_held(at) { run + 1 } else { 0 };
                    prop_assert!(run <= gap_bytes);
                }
            }
        }

        #[test]
        fn a_window_covers_what_is_read(
            start in 0u64..1000, len in 1u64..1000, size in 1u64..2000,
            window in 0u64..500, tail_first: bool,
        ) {
            let wanted = range(start, start + len);
            if let Some(window) = widen(wanted, size, window, tail_first, 1, &[]) {
                prop_assert!(window.contains(&wanted));
                prop_assert!(window.end <= size);
            }
        }
    }
}
