use super::*;
use penstock_testkit::parquet::footer;
use proptest::prelude::*;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

#[test]
fn a_file_of_duckdb_is_understood() {
    // COPY (SELECT i AS a, i::VARCHAR AS b FROM range(4096) t(i)) TO ... (ROW_GROUP_SIZE 2048)
    let file = include_bytes!("two_row_groups.parquet");
    let layout = Layout::parse(file).unwrap();
    let chunks: Vec<_> = layout.row_groups.concat();
    assert_eq!(layout.row_groups.len(), 2);
    assert_eq!(chunks.len(), 4);
    assert_eq!(chunks[0].start, 4, "the first chunk follows the magic");
    assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start), "{chunks:?}");
    assert_eq!(layout.touched(range(chunks[3].start, chunks[3].start + 1)), Some((1, 1..=1)));
}

#[test]
fn a_read_names_a_row_group_and_columns() {
    let layout = Layout::new(vec![
        vec![range(4, 10), range(10, 30), range(30, 40)],
        vec![range(40, 50), range(50, 60), range(60, 90)],
    ]);
    assert_eq!(layout.touched(range(10, 40)), Some((0, 1..=2)));
    assert_eq!(layout.touched(range(55, 56)), Some((1, 1..=1)));
    assert_eq!(layout.touched(range(35, 45)), None, "a read of the file's bytes");
    assert_eq!(layout.touched(range(70, 91)), None, "a read of the footer is none of a column");
}

#[test]
fn a_footer_that_is_not_understood_is_looked_at_once() {
    let mut tail = footer(&[vec![range(4, 10)]]);
    tail[..8].fill(0xff);
    assert_eq!(Layout::parse(&tail), None);
    assert_eq!(Layout::parse_once(&tail), Some(Layout::new(Vec::new())));
    assert_eq!(Layout::parse_once(&tail[1..]), None, "not all of it is here");
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
        prop_assert_eq!(Layout::parse(&tail), Some(Layout::new(row_groups)));
        prop_assert_eq!(Layout::parse(&tail[1..]), None);
    }

    /// Whatever the bytes say: an answer, no panic, no endless work.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut tail = bytes;
        let length = tail.len() as u32;
        tail.extend(length.to_le_bytes());
        tail.extend(b"PAR1");
        let _ = Layout::parse(&tail);
    }
}
