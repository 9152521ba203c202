//! What a plan tells of the rows that a scan wants.

use crate::abi::{PsPair, PsStr, array};
use crate::error::{PsError, guarded};
use crate::names::locate;
use crate::query::PsQuery;
use penstock_base::{Error, Kind, Result};
use penstock_engine::filters::{Filter, Order, Range, Ranges, Value};

/// Values from one to another one.
#[repr(C)]
#[derive(Debug)]
pub struct PsRange {
    /// Whether there is a least one.
    pub has_min: bool,
    /// The least.
    pub min: PsStr,
    /// Whether there is a greatest one.
    pub has_max: bool,
    /// The greatest.
    pub max: PsStr,
}

/// Values that the rows of a scan must have in a column.
#[repr(C)]
#[derive(Debug)]
pub struct PsFilter {
    /// By its place in the footer.
    pub column: u32,
    /// How its values are ordered, see the header.
    pub order: u32,
    /// Any of these.
    pub ranges: *const PsRange,
    /// Number of them.
    pub range_count: usize,
}

fn order(number: u32) -> Result<Order> {
    Ok(match number {
        0 => Order::Signed,
        1 => Order::Unsigned,
        2 => Order::Floating,
        3 => Order::Text,
        4 => Order::Micros,
        5 => Order::Rows,
        _ => return Err(Error::new(Kind::Internal, format!("there is no order {number}"))),
    })
}

/// # Safety
/// As [`array`].
unsafe fn value(order: Order, has: bool, bytes: PsStr) -> Result<Option<Value>> {
    if !has {
        return Ok(None);
    }
    // SAFETY: passed on from the caller.
    let bytes = unsafe { array(bytes.data, bytes.len, "the value") }?;
    let value = order.value(bytes);
    value.map(Some).ok_or_else(|| Error::new(Kind::Internal, "the value is none of its column"))
}

/// # Safety
/// As [`array`].
unsafe fn ranges(order: Order, first: *const PsRange, count: usize) -> Result<Option<Ranges>> {
    // SAFETY: passed on from the caller.
    let given = unsafe { array(first, count, "the ranges") }?;
    let mut ranges = Vec::with_capacity(given.len());
    for range in given {
        // SAFETY: passed on from the caller.
        let (min, max) = unsafe {
            (value(order, range.has_min, range.min)?, value(order, range.has_max, range.max)?)
        };
        ranges.push(Range { min, max });
    }
    Ok(Ranges::new(ranges))
}

/// See the header.
///
/// # Safety
/// `query` came from this library, texts, pairs, `filters` and what they point to are readable,
/// `moving` is null or readable, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_will_filter(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    filters: *const PsFilter,
    filter_count: usize,
    moving: *const PsFilter,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            let mut fixed = Vec::new();
            for filter in array(filters, filter_count, "the filters")? {
                let order = order(filter.order)?;
                if let Some(ranges) = ranges(order, filter.ranges, filter.range_count)? {
                    fixed.push(Filter { column: filter.column, order, ranges });
                }
            }
            let moving = match moving.as_ref() {
                Some(moving) => Some((moving.column, order(moving.order)?)),
                None => None,
            };
            query.will_filter(&at, fixed, moving);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library, texts, pairs, `bound` and what it points to are readable,
/// `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_bound_moved(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    bound: *const PsFilter,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            let Some(bound) = bound.as_ref() else {
                return Err(Error::new(Kind::Internal, "the bound is null"));
            };
            if let Some(ranges) = ranges(order(bound.order)?, bound.ranges, bound.range_count)? {
                query.bound_moved(&at, ranges);
            }
            Ok(())
        })
    }
    .is_some()
}
