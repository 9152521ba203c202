use super::*;
use crate::read::filters::{Range, Ranges};
use proptest::prelude::*;

/// COPY (SELECT i AS a, i::VARCHAR AS b FROM range(4096) t(i)) TO ... (ROW_GROUP_SIZE 2048)
const FILE: &[u8] = include_bytes!("../two_row_groups.parquet");

fn signed(value: i64) -> Option<Value> {
    Some(Value::Signed(value))
}

fn text(value: &str) -> Option<Value> {
    Some(Value::Text(value.as_bytes().into()))
}

fn filter(column: u32, order: Order, min: Option<Value>, max: Option<Value>) -> Filter {
    Filter { column, order, ranges: Ranges::new(vec![Range { min, max }]).unwrap() }
}

fn left_out(filters: Vec<Filter>) -> Vec<bool> {
    judge(FILE, &Filters::new(filters, None)).unwrap().left_out
}

#[test]
fn a_file_of_duckdb_tells_which_row_groups_a_filter_leaves_out() {
    let integers = |min, max| left_out(vec![filter(0, Order::Signed, min, max)]);
    assert_eq!(integers(signed(0), signed(2047)), [false, true]);
    assert_eq!(integers(signed(2048), None), [true, false]);
    assert_eq!(integers(None, signed(2048)), [false, false]);
    assert_eq!(integers(signed(9999), None), [true, true]);
    let rows = |min, max| left_out(vec![filter(99, Order::Rows, signed(min), signed(max))]);
    assert_eq!((rows(5, 2047), rows(2048, 2048)), (vec![false, true], vec![true, false]));
    // "0" to "999", and "2048" to "4095".
    let texts = |min, max| left_out(vec![filter(1, Order::Text, text(min), text(max))]);
    assert_eq!((texts("5", "6"), texts("", "/")), (vec![false, true], vec![true, true]));
    let both =
        vec![filter(0, Order::Signed, None, signed(2047)), filter(1, Order::Text, text("A"), None)];
    assert_eq!(left_out(both), [true, true]);
    assert_eq!(left_out(Vec::new()), [false, false]);
}

#[test]
fn what_is_not_of_the_column_is_no_bound() {
    assert_eq!(left_out(vec![filter(7, Order::Signed, signed(9999), None)]), [false, false]);
    assert_eq!(left_out(vec![filter(1, Order::Signed, signed(9999), None)]), [false, false]);
    // No unit is told of an integer.
    assert_eq!(left_out(vec![filter(0, Order::Micros, signed(9999), None)]), [false, false]);
}

#[test]
fn the_values_of_the_column_whose_bound_moves_are_kept() {
    let judged = judge(FILE, &Filters::new(Vec::new(), Some((0, Order::Signed)))).unwrap();
    let expected = [(0, 2047), (2048, 4095)];
    assert_eq!(judged.moving, expected.map(|(a, b)| Extent::Within(signed(a), signed(b))));
    let judged = judge(FILE, &Filters::new(Vec::new(), None)).unwrap();
    assert_eq!(judged.moving, []);
}

#[test]
fn values_are_read_as_their_type_has_them() {
    let four = |value: i32| value.to_le_bytes();
    let minus = (-1i32).to_le_bytes();
    assert_eq!(value(INT32, Order::Signed, None, &minus), signed(-1));
    let most = u64::from(u32::MAX);
    assert_eq!(value(INT32, Order::Unsigned, None, &minus), Some(Value::Unsigned(most)));
    assert_eq!(value(FLOAT, Order::Floating, None, &four(0)), Some(Value::Floating(0.0)));
    let endless = f64::INFINITY.to_le_bytes();
    assert_eq!(value(DOUBLE, Order::Floating, None, &endless), None);
    assert_eq!(value(INT64, Order::Micros, Some(1000), &7i64.to_le_bytes()), signed(7000));
    assert_eq!(value(INT64, Order::Micros, Some(1000), &i64::MAX.to_le_bytes()), None);
    assert_eq!(value(INT64, Order::Micros, None, &7i64.to_le_bytes()), None);
    assert_eq!(value(INT64, Order::Signed, None, &minus), None);
    assert_eq!(value(BYTE_ARRAY, Order::Text, None, &[b'x'; 257]), None);
    assert_eq!(value(INT32, Order::Text, None, &minus), None);
}

#[test]
fn a_row_group_of_nothing_but_null_has_no_value() {
    let chunk = |nulls, values| Chunk { kind: INT64, values, nulls, ..Chunk::default() };
    assert_eq!(chunk(Some(7), 7).extent(Order::Signed, None), Extent::Nothing);
    assert_eq!(chunk(Some(6), 7).extent(Order::Signed, None), Extent::UNKNOWN);
    assert_eq!(chunk(None, 0).extent(Order::Signed, None), Extent::UNKNOWN);
    assert_eq!(rows(5, 0), Extent::Nothing);
    assert_eq!((rows(5, -1), rows(i64::MAX, 2)), (Extent::UNKNOWN, Extent::UNKNOWN));
}

proptest! {
    /// A footer comes over the network: whatever stands in it, it is read or not, and no more is
    /// kept than it has bytes.
    #[test]
    fn broken_footers_do_no_harm(
        changes in prop::collection::vec((0usize..1000, any::<u8>()), 1..6),
    ) {
        let mut tail = FILE[FILE.len() - 1000..].to_vec();
        changes.iter().for_each(|(at, byte)| tail[*at] = *byte);
        if let Some(judged) = judge(&tail, &fuzzed_filters()) {
            prop_assert!(judged.left_out.len() <= tail.len());
            prop_assert_eq!(judged.moving.len(), judged.left_out.len());
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut tail = bytes;
        let length = tail.len() as u32;
        tail.extend(length.to_le_bytes());
        tail.extend(b"PAR1");
        let _ = judge(&tail, &fuzzed_filters());
    }
}
