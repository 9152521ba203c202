//! What a footer says about the values of columns: the row groups that filters leave out by it.
//! Pure.
//!
//! Only the columns that filters are on are looked at: a file may have a hundred thousand.

use super::{BINARY, I32, I64, LIST, STRUCT, Thrift, footer};
use crate::read::filters::{Extent, Filter, Filters, Judged, Order, Value};

/// A longer text is no bound: it would be kept.
const TEXT_BYTES_MAX: usize = 256;

/// The physical types of `parquet.thrift`.
const INT32: i64 = 1;
const INT64: i64 = 2;
const FLOAT: i64 = 4;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;

/// The row groups that filters leave out, by the footer at the end of `tail`. `None` where that is
/// not here or not understood.
pub(crate) fn judge(tail: &[u8], filters: &Filters) -> Option<Judged> {
    let looked_at: Vec<(u32, Order)> =
        filters.fixed.iter().map(Filter::place).chain(filters.moving).collect();
    let mut judged = Judged::default();
    let (mut micros_per_unit, mut first_row) = (Vec::new(), 0i64);
    let mut thrift = Thrift { rest: footer(tail)?, depth: 0 };
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (2, LIST) => {
            micros_per_unit = units(thrift, &looked_at)?;
            Some(())
        }
        (4, LIST) => thrift.list(STRUCT, |thrift| {
            let group = row_group(thrift, &looked_at)?;
            let extent = |(index, (column, order)): (usize, &(u32, Order))| {
                if *order == Order::Rows {
                    return rows(first_row, group.rows);
                }
                let unit = micros_per_unit.get(index).copied().flatten();
                let found = group.chunks.iter().find(|(at, _)| at == column);
                found.map_or(Extent::UNKNOWN, |(_, chunk)| chunk.extent(*order, unit))
            };
            let mut extents: Vec<Extent> = looked_at.iter().enumerate().map(extent).collect();
            if filters.moving.is_some() {
                judged.moving.extend(extents.pop());
            }
            let passes = |(filter, extent): (&Filter, &Extent)| filter.ranges.meets(extent);
            judged.left_out.push(!filters.fixed.iter().zip(&extents).all(passes));
            first_row = first_row.checked_add(group.rows)?;
            Some(())
        }),
        _ => thrift.skip(kind),
    })?;
    Some(judged)
}

impl Filter {
    fn place(&self) -> (u32, Order) {
        (self.column, self.order)
    }
}

/// The places of a row group's rows.
fn rows(first: i64, count: i64) -> Extent {
    match first.checked_add(count) {
        Some(end) if count > 0 => {
            Extent::Within(Some(Value::Signed(first)), Some(Value::Signed(end - 1)))
        }
        Some(_) if count == 0 => Extent::Nothing,
        _ => Extent::UNKNOWN,
    }
}

/// How many microseconds the values of each of these columns count in, by the file's schema.
fn units(thrift: &mut Thrift<'_>, looked_at: &[(u32, Order)]) -> Option<Vec<Option<i64>>> {
    let mut found = vec![None; looked_at.len()];
    let mut leaf = 0u32;
    thrift.list(STRUCT, |thrift| {
        let (mut children, mut unit) = (0, None);
        thrift.structure(|thrift, field, kind| {
            match (field, kind) {
                (5, I32) => children = thrift.integer()?,
                (6, I32) => unit = unit.or(converted_unit(thrift.integer()?)),
                (10, STRUCT) => unit = logical_unit(thrift)?.or(unit),
                _ => thrift.skip(kind)?,
            }
            Some(())
        })?;
        if children == 0 {
            let of_leaf = looked_at.iter().zip(&mut found).filter(|((at, _), _)| *at == leaf);
            of_leaf.for_each(|(_, found)| *found = unit);
            leaf = leaf.checked_add(1)?;
        }
        Some(())
    })?;
    Some(found)
}

/// By the older way to say it.
fn converted_unit(converted: i64) -> Option<i64> {
    match converted {
        9 => Some(1000),
        10 => Some(1),
        _ => None,
    }
}

/// By the newer one; nanoseconds are not looked at.
fn logical_unit(thrift: &mut Thrift<'_>) -> Option<Option<i64>> {
    let mut unit = None;
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (8, STRUCT) => thrift.structure(|thrift, field, kind| match (field, kind) {
            (2, STRUCT) => thrift.structure(|thrift, field, kind| {
                unit = match field {
                    1 => Some(1000),
                    2 => Some(1),
                    _ => None,
                };
                thrift.skip(kind)
            }),
            _ => thrift.skip(kind),
        }),
        _ => thrift.skip(kind),
    })?;
    Some(unit)
}

/// A row group, as far as it is looked at.
#[derive(Default)]
struct RowGroup<'a> {
    rows: i64,
    /// By column.
    chunks: Vec<(u32, Chunk<'a>)>,
}

/// What is said of a column chunk.
#[derive(Default)]
struct Chunk<'a> {
    kind: i64,
    values: i64,
    nulls: Option<i64>,
    min: Option<&'a [u8]>,
    max: Option<&'a [u8]>,
    /// Written by those who did not say how texts are ordered.
    old_min: Option<&'a [u8]>,
    old_max: Option<&'a [u8]>,
}

fn row_group<'a>(thrift: &mut Thrift<'a>, looked_at: &[(u32, Order)]) -> Option<RowGroup<'a>> {
    let mut group = RowGroup::default();
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (1, LIST) => {
            let mut column = 0u32;
            thrift.list(STRUCT, |thrift| {
                if looked_at.iter().any(|(at, _)| *at == column) {
                    group.chunks.push((column, column_chunk(thrift)?));
                } else {
                    thrift.skip(STRUCT)?;
                }
                column = column.checked_add(1)?;
                Some(())
            })
        }
        (3, I64) => {
            group.rows = thrift.integer()?;
            Some(())
        }
        _ => thrift.skip(kind),
    })?;
    Some(group)
}

fn column_chunk<'a>(thrift: &mut Thrift<'a>) -> Option<Chunk<'a>> {
    let mut chunk = Chunk::default();
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (3, STRUCT) => thrift.structure(|thrift, field, kind| {
            match (field, kind) {
                (1, I32) => chunk.kind = thrift.integer()?,
                (5, I64) => chunk.values = thrift.integer()?,
                (12, STRUCT) => statistics(thrift, &mut chunk)?,
                _ => thrift.skip(kind)?,
            }
            Some(())
        }),
        _ => thrift.skip(kind),
    })?;
    Some(chunk)
}

fn statistics<'a>(thrift: &mut Thrift<'a>, chunk: &mut Chunk<'a>) -> Option<()> {
    thrift.structure(|thrift, field, kind| {
        match (field, kind) {
            (1, BINARY) => chunk.old_max = Some(thrift.binary()?),
            (2, BINARY) => chunk.old_min = Some(thrift.binary()?),
            (3, I64) => chunk.nulls = Some(thrift.integer()?),
            (5, BINARY) => chunk.max = Some(thrift.binary()?),
            (6, BINARY) => chunk.min = Some(thrift.binary()?),
            _ => thrift.skip(kind)?,
        }
        Some(())
    })
}

impl Chunk<'_> {
    fn extent(&self, order: Order, micros_per_unit: Option<i64>) -> Extent {
        if self.nulls.is_some_and(|nulls| nulls > 0 && nulls == self.values) {
            return Extent::Nothing;
        }
        let (min, max) = match order {
            Order::Text => (self.min, self.max),
            _ => (self.min.or(self.old_min), self.max.or(self.old_max)),
        };
        let value = |bytes| value(self.kind, order, micros_per_unit, bytes);
        Extent::Within(min.and_then(value), max.and_then(value))
    }
}

/// A value as it stands in the statistics of a column of this physical type.
fn value(kind: i64, order: Order, micros_per_unit: Option<i64>, bytes: &[u8]) -> Option<Value> {
    match (order, kind) {
        (Order::Signed, INT32) => {
            Some(Value::Signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))))
        }
        (Order::Unsigned, INT32) => {
            Some(Value::Unsigned(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))))
        }
        (Order::Signed | Order::Unsigned, INT64) => order.value(bytes),
        (Order::Micros, INT64) => {
            let Value::Signed(value) = order.value(bytes)? else { return None };
            value.checked_mul(micros_per_unit?).map(Value::Signed)
        }
        (Order::Floating, FLOAT) => finite(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        (Order::Floating, DOUBLE) => finite(f64::from_le_bytes(bytes.try_into().ok()?)),
        (Order::Text, BYTE_ARRAY) if bytes.len() <= TEXT_BYTES_MAX => order.value(bytes),
        _ => None,
    }
}

/// Infinite ones say nothing: so DuckDB takes them.
fn finite(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::Floating(value))
}

/// All kinds of filters at once.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzzed_filters() -> Filters {
    use crate::read::filters::{Range, Ranges};
    let orders =
        [Order::Signed, Order::Unsigned, Order::Floating, Order::Text, Order::Micros, Order::Rows];
    let filter = |order: Order| {
        let value = order.value(&8i64.to_le_bytes());
        let ranges = Ranges::new(vec![Range { min: value.clone(), max: value }]);
        let column = u32::from(order == Order::Text);
        Filter { column, order, ranges: ranges.expect("one range is not too many") }
    };
    Filters::new(orders.into_iter().map(filter).collect(), Some((0, Order::Signed)))
}

#[cfg(test)]
mod tests;
