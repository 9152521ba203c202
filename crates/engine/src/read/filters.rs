//! What a plan tells of the rows that a scan wants. Which row groups of a Parquet file its host
//! leaves out by their statistics follows from it. Pure.
//!
//! A wrong guess costs time or bytes, never rows: what is read the host decides itself.

use std::cmp::Ordering;

/// More of them are not looked at.
const FILTERS_MAX: usize = 64;
/// More values of one column are no bound.
const RANGES_MAX: usize = 4096;

/// How the values of a column are written and ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Integers, and what is counted in them.
    Signed,
    /// Integers without a sign.
    Unsigned,
    /// Floating point numbers.
    Floating,
    /// Texts, by their bytes.
    Text,
    /// Microseconds; a file may count in milliseconds.
    Micros,
    /// Places of rows in their file, which is no column of it.
    Rows,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Value {
    /// See [`Order::Signed`], [`Order::Micros`] and [`Order::Rows`].
    Signed(i64),
    /// See [`Order::Unsigned`].
    Unsigned(u64),
    /// See [`Order::Floating`]; not NaN, which has no place in an order.
    Floating(f64),
    /// See [`Order::Text`].
    Text(Box<[u8]>),
}

impl Order {
    /// A value from its bytes: eight of them, the lowest first, or those of a text.
    pub fn value(self, bytes: &[u8]) -> Option<Value> {
        if self == Order::Text {
            return Some(Value::Text(bytes.into()));
        }
        let bytes = bytes.try_into().ok()?;
        Some(match self {
            Order::Unsigned => Value::Unsigned(u64::from_le_bytes(bytes)),
            Order::Floating => {
                let value = f64::from_le_bytes(bytes);
                (!value.is_nan()).then_some(Value::Floating(value))?
            }
            _ => Value::Signed(i64::from_le_bytes(bytes)),
        })
    }
}

/// The values from one to another one, both included; without a bound where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Range {
    /// The least.
    pub min: Option<Value>,
    /// The greatest.
    pub max: Option<Value>,
}

/// Any of these values. They are sorted, and lie apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// `None` for none and for too many, which say nothing.
    pub fn new(mut ranges: Vec<Range>) -> Option<Self> {
        if ranges.is_empty() || ranges.len() > RANGES_MAX {
            return None;
        }
        ranges.sort_by(|a, b| a.min.partial_cmp(&b.min).unwrap_or(Ordering::Equal));
        let mut apart: Vec<Range> = Vec::new();
        for range in ranges {
            match apart.last_mut() {
                Some(last) if !is_below(last.max.as_ref(), range.min.as_ref()) => {
                    let is_longer = range.max.is_none() || last.max < range.max;
                    if last.max.is_some() && is_longer {
                        last.max = range.max;
                    }
                }
                _ => apart.push(range),
            }
        }
        Some(Ranges(apart))
    }

    /// Whether a value of a row group may be one of these.
    pub(crate) fn meets(&self, extent: &Extent) -> bool {
        match extent {
            Extent::Nothing => false,
            Extent::Within(min, max) => {
                let below = |range: &Range| is_below(range.max.as_ref(), min.as_ref());
                let first = self.0.partition_point(below);
                self.0.get(first).is_some_and(|range| !is_below(max.as_ref(), range.min.as_ref()))
            }
        }
    }
}

/// Whether what ends with one value ends before what begins with another one.
fn is_below(max: Option<&Value>, min: Option<&Value>) -> bool {
    matches!((max, min), (Some(max), Some(min)) if max < min)
}

/// The values of a column in a row group, by what its file says of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Extent {
    /// None but NULL.
    Nothing,
    /// From the least to the greatest, as far as they are known.
    Within(Option<Value>, Option<Value>),
}

impl Extent {
    pub const UNKNOWN: Extent = Extent::Within(None, None);

    /// Whether both may have the same values, more than one at their ends. `None` where it is not
    /// known.
    fn overlaps(&self, other: &Extent) -> Option<bool> {
        let Extent::Within(Some(min), Some(max)) = self else { return None };
        let Extent::Within(Some(other_min), Some(other_max)) = other else { return None };
        let is_same = (min, max) == (other_min, other_max);
        Some(is_same || (min < other_max && other_min < max))
    }
}

/// The values that the rows of a scan must have in a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// By its place in the footer.
    pub column: u32,
    /// How its values are ordered.
    pub order: Order,
    /// Any of these.
    pub ranges: Ranges,
}

/// All that a plan tells of the rows of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    /// A row has to pass all of them.
    pub fixed: Vec<Filter>,
    /// A column whose bound is known, and moves, only while it is read: the boundary of a Top-N.
    pub moving: Option<(u32, Order)>,
}

impl Filters {
    pub fn new(mut fixed: Vec<Filter>, moving: Option<(u32, Order)>) -> Self {
        fixed.truncate(FILTERS_MAX);
        Filters { fixed, moving }
    }

    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.moving.is_none()
    }
}

/// What the footer of a file says about these filters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// By row group: whether its statistics rule out that it has rows for the fixed ones.
    pub left_out: Vec<bool>,
    /// By row group: the values of the moving one's column.
    pub moving: Vec<Extent>,
}

/// How much row groups that follow each other have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clusters {
    pairs: u64,
    overlapping: u64,
    last: Option<Extent>,
}

/// One of so many neighbours may overlap in files that lie in order.
const OVERLAPS_PARTS: u64 = 10;

impl Clusters {
    /// Takes note of the row groups that follow.
    pub fn push(&mut self, extents: &[Extent]) {
        for extent in extents {
            if let Some(overlaps) = self.last.as_ref().and_then(|last| last.overlaps(extent)) {
                self.pairs += 1;
                self.overlapping += u64::from(overlaps);
            }
            self.last = Some(extent.clone());
        }
    }

    /// Whether the row groups hardly overlap: a bound then leaves out those of one end.
    pub fn lie_apart(&self) -> bool {
        self.pairs > 0 && self.overlapping * OVERLAPS_PARTS <= self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn within(min: i64, max: i64) -> Extent {
        Extent::Within(Some(Value::Signed(min)), Some(Value::Signed(max)))
    }

    fn range(min: Option<i64>, max: Option<i64>) -> Range {
        Range { min: min.map(Value::Signed), max: max.map(Value::Signed) }
    }

    #[test]
    fn a_value_is_eight_bytes_or_a_text() {
        let minus = (-7i64).to_le_bytes();
        assert_eq!(Order::Signed.value(&minus), Some(Value::Signed(-7)));
        assert_eq!(Order::Micros.value(&minus), Some(Value::Signed(-7)));
        assert_eq!(Order::Unsigned.value(&minus), Some(Value::Unsigned(u64::MAX - 6)));
        assert_eq!(Order::Floating.value(&0.5f64.to_le_bytes()), Some(Value::Floating(0.5)));
        assert_eq!(Order::Floating.value(&f64::NAN.to_le_bytes()), None);
        assert_eq!(Order::Signed.value(&minus[1..]), None);
        assert_eq!(Order::Text.value(b"ab"), Some(Value::Text(b"ab"[..].into())));
    }

    #[test]
    fn none_and_too_many_say_nothing() {
        assert_eq!(Ranges::new(Vec::new()), None);
        let point = |at| range(Some(at), Some(at));
        assert!(Ranges::new((0..4096).map(point).collect()).is_some());
        assert_eq!(Ranges::new((0..4097).map(point).collect()), None);
    }

    #[test]
    fn what_is_not_known_may_be_anything() {
        let ranges = Ranges::new(vec![range(Some(5), Some(7))]).unwrap();
        assert!(ranges.meets(&Extent::UNKNOWN) && !ranges.meets(&Extent::Nothing));
        assert!(ranges.meets(&Extent::Within(Some(Value::Signed(7)), None)));
        assert!(!ranges.meets(&Extent::Within(Some(Value::Signed(8)), None)));
        assert!(!ranges.meets(&Extent::Within(None, Some(Value::Signed(4)))));
    }

    #[test]
    fn files_in_order_lie_apart_and_others_do_not() {
        let lie_apart = |extents: &[Extent]| {
            let mut clusters = Clusters::default();
            extents.chunks(3).for_each(|file| clusters.push(file));
            clusters.lie_apart()
        };
        let sorted: Vec<_> = (0..30).map(|at| within(at * 10, at * 10 + 10)).collect();
        assert!(lie_apart(&sorted));
        assert!(lie_apart(&sorted.iter().rev().cloned().collect::<Vec<_>>()));
        assert!(!lie_apart(&vec![within(0, 99); 30]) && !lie_apart(&vec![within(7, 7); 30]));
        assert!(!lie_apart(&[]) && !lie_apart(&[within(0, 1)]));
        assert!(!lie_apart(&vec![Extent::UNKNOWN; 30]));
    }

    fn bounds() -> impl Strategy<Value = (Option<i64>, Option<i64>)> {
        (prop::option::of(-20i64..20), prop::option::of(-20i64..20))
    }

    proptest! {
        #[test]
        fn ranges_meet_what_any_of_them_overlaps(
            all in prop::collection::vec(bounds(), 1..8), min in -25i64..25, length in 0i64..9,
        ) {
            let all: Vec<_> =
                all.into_iter().filter(|(min, max)| min.is_none() || max.is_none() || min <= max)
                    .collect();
            prop_assume!(!all.is_empty());
            let is_in = |value: i64| all.iter().any(|(min, max)| {
                min.is_none_or(|min| min <= value) && max.is_none_or(|max| value <= max)
            });
            let ranges = all.iter().map(|(min, max)| range(*min, *max)).collect();
            let ranges = Ranges::new(ranges).unwrap();
            let expected = (min..=min + length).any(is_in);
            prop_assert_eq!(ranges.meets(&within(min, min + length)), expected);
        }
    }
}
