use super::*;
use penstock_testkit::parquet::footer;
use proptest::prelude::*;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

/// All of it has to be fetched.
fn layout(row_groups: Vec<Vec<ByteRange>>) -> Layout {
    Layout::new(row_groups, u64::MAX, u64::MAX)
}

#[test]
fn a_file_of_duckdb_is_understood() {
    // COPY (SELECT i AS a, i::VARCHAR AS b FROM range(4096) t(i)) TO ... (ROW_GROUP_SIZE 2048)
    let file = include_bytes!("two_row_groups.parquet");
    let tail = file.len() - 1024;
    let layout = Layout::parse_once(&file[tail..], tail as u64).unwrap();
    let chunks: Vec<_> = layout.row_groups.concat();
    assert_eq!(layout.row_groups.len(), 2);
    assert_eq!(chunks.len(), 4);
    assert_eq!(chunks[0].start, 4, "the first chunk follows the magic");
    assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start), "{chunks:?}");
    let last = range(chunks[3].start, chunks[3].start + 1);
    assert_eq!(layout.touched(last), [(1, 1..=1)]);
    let footer_start = footer_start(&file[tail..], tail as u64).unwrap();
    assert!(chunks[3].end <= footer_start && footer_start < file.len() as u64 - 8);
    assert_eq!(layout.footer_start, footer_start);
}

#[test]
fn a_read_names_row_groups_and_columns() {
    let row_groups = vec![
        vec![range(4, 10), range(10, 30), range(30, 40)],
        vec![range(40, 50), range(50, 60), range(60, 90)],
        vec![range(90, 93), range(93, 99)],
    ];
    let layout = Layout::new(row_groups.clone(), 95, 100);
    assert_eq!(layout.touched(range(10, 40)), [(0, 1..=2)]);
    assert_eq!(layout.touched(range(55, 56)), [(1, 1..=1)]);
    assert_eq!(layout.touched(range(35, 45)), [(0, 2..=2), (1, 0..=0)], "widened");
    let to_the_end = [(0, 2..=2), (1, 0..=2), (2, 0..=1)];
    assert_eq!(layout.touched(range(35, 95)), to_the_end);
    assert_eq!(layout.touched(range(35, 100)), to_the_end, "and what lies before the footer");
    assert_eq!(layout.touched(range(70, 101)), [], "a read of the footer is none of a column");
    assert_eq!(layout.touched(range(96, 99)), [], "this is here");
    assert_eq!(layout.row_group(2), [range(90, 93), range(93, 95)]);
}

#[test]
fn long_reads_over_row_groups_are_of_the_files_bytes() {
    let groups = |bytes: u64| vec![vec![range(0, bytes)], vec![range(bytes, 2 * bytes)]];
    let long = layout(groups(2 << 20));
    assert_eq!(long.touched(range(0, 4 << 20)), []);
    assert_eq!(long.touched(range(0, 3 << 20)), [(0, 0..=0), (1, 0..=0)]);
    let mixed = layout(vec![vec![range(50, 90)], vec![range(4, 50)]]);
    assert_eq!(mixed.touched(range(4, 50)), [(1, 0..=0)]);
    assert_eq!(mixed.touched(range(4, 60)), [], "out of order");
}

#[test]
fn a_footer_that_is_not_understood_is_looked_at_once() {
    let mut tail = footer(&[vec![range(4, 10)]]);
    tail[..8].fill(0xff);
    assert_eq!(Layout::parse_once(&tail, 10).map(|layout| layout.row_group_count()), Some(0));
    assert_eq!(Layout::parse_once(&tail[1..], 11), None, "not all of it is here");
    assert_eq!(footer_start(&tail[tail.len() - 8..], 10 + tail.len() as u64 - 8), Some(10));
    assert_eq!(footer_start(&tail[1..8], 11), None);
}

#[test]
fn of_a_file_that_is_here_nothing_is_left_to_fetch() {
    let tail = footer(&[vec![range(4, 10)], vec![range(10, 90)]]);
    assert_eq!(Layout::parse_once(&tail, 0).map(|layout| layout.row_group_count()), Some(0));
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        row_groups in prop::collection::vec(
            prop::collection::vec((4u64..1 << 40, 1u64..1 << 30), 0..20), 0..20),
    ) {
        let row_groups: Vec<Vec<ByteRange>> = row_groups
            .into_iter()
            .map(|chunks| chunks.into_iter().map(|(at, len)| range(at, at + len)).collect())
            .collect();
        let tail = footer(&row_groups);
        let known = Layout::parse_once(&tail, 1 << 50);
        prop_assert_eq!(known.map(|layout| layout.row_groups), Some(row_groups));
        prop_assert_eq!(Layout::parse_once(&tail[1..], 1 << 50), None);
    }

    /// Whatever the bytes say: an answer, no panic, no endless work.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut tail = bytes;
        let length = tail.len() as u32;
        tail.extend(length.to_le_bytes());
        tail.extend(b"PAR1");
        let _ = Layout::parse_once(&tail, 7);
    }
}
