//! Which pages are free. Pure: it decides where a file grows, and moves nothing.

use std::collections::BTreeMap;

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The first page, counted from the start of the device.
    pub first_page: u64,
    /// How many.
    pub pages: u64,
}

impl Extent {
    /// The page after the last one.
    pub fn end(self) -> u64 {
        self.first_page + self.pages
    }
}

/// How many pages some places are.
pub(crate) fn pages_of(places: &[Extent]) -> u64 {
    places.iter().map(|place| place.pages).sum()
}

/// The free pages of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// First page and length of each free run; no two of them touch.
    free: BTreeMap<u64, u64>,
    free_pages: u64,
}

impl Space {
    /// The pages of `all` without those of `used`, which lie inside and do not overlap.
    pub fn new(all: Extent, used: impl IntoIterator<Item = Extent>) -> Self {
        let mut used: Vec<Extent> = used.into_iter().filter(|extent| extent.pages > 0).collect();
        used.sort_unstable();
        let mut space = Space::default();
        let mut at = all.first_page;
        for extent in used {
            space.release(Extent { first_page: at, pages: extent.first_page.saturating_sub(at) });
            at = extent.end();
        }
        space.release(Extent { first_page: at, pages: all.end().saturating_sub(at) });
        space
    }

    /// Free pages in all.
    pub fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// Runs of neighbouring free pages.
    pub fn free_runs(&self) -> u64 {
        self.free.len() as u64
    }

    /// The free pages of a range.
    pub fn free_within(&self, first: u64, end: u64) -> Vec<Extent> {
        let before = self.free.range(..first).next_back();
        let runs = before.into_iter().chain(self.free.range(first..end));
        let cut = runs.filter_map(|(start, length)| {
            let (from, to) = (first.max(*start), end.min(start + length));
            (from < to).then(|| Extent { first_page: from, pages: to - from })
        });
        cut.collect()
    }

    /// Takes `wanted` pages, or if they are not to be had at least `least`; `None` if even those
    /// are not free. It prefers the pages right after `after`, then the first run that holds all,
    /// then the longest runs.
    pub fn allocate(&mut self, wanted: u64, least: u64, after: Option<u64>) -> Option<Vec<Extent>> {
        if self.free_pages < least {
            return None;
        }
        let mut rest = wanted.max(least);
        let mut taken: Vec<Extent> = Vec::new();
        if let Some(next) = after
            && self.free.contains_key(&next)
        {
            rest -= self.take(next, rest, &mut taken);
        }
        if rest > 0 {
            let fits = self.free.iter().find(|run| *run.1 >= rest).map(|run| *run.0);
            if let Some(first) = fits {
                rest -= self.take(first, rest, &mut taken);
            }
        }
        // What is more than the least is a convenience: not worth many small pieces.
        let spare = wanted.max(least) - least;
        while rest > spare {
            let longest = self.free.iter().max_by_key(|run| *run.1).map(|run| *run.0);
            let first = longest.expect("there are as many free pages as the least");
            rest -= self.take(first, rest, &mut taken);
        }
        Some(taken)
    }

    /// Takes up to `most` pages from the start of a free run.
    fn take(&mut self, first_page: u64, most: u64, taken: &mut Vec<Extent>) -> u64 {
        let length = self.free.remove(&first_page).expect("the run is free");
        let pages = length.min(most);
        if pages < length {
            self.free.insert(first_page + pages, length - pages);
        }
        self.free_pages -= pages;
        taken.push(Extent { first_page, pages });
        pages
    }

    /// Gives pages back that were taken.
    pub fn release(&mut self, extent: Extent) {
        if extent.pages == 0 {
            return;
        }
        self.free_pages += extent.pages;
        let Extent { mut first_page, mut pages } = extent;
        if let Some(next) = self.free.remove(&extent.end()) {
            pages += next;
        }
        let before = self.free.range(..first_page).next_back().map(|run| (*run.0, *run.1));
        if let Some((first, length)) = before
            && first + length == first_page
        {
            first_page = first;
            pages += length;
        }
        self.free.insert(first_page, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Extent = Extent { first_page: 512, pages: 1000 };

    proptest! {
        #[test]
        fn no_page_is_given_twice_and_none_is_lost(
            steps in prop::collection::vec((0u8..3, 1u64..200, 0u64..200, any::<u16>()), 1..120),
        ) {
            let mut space = Space::new(ALL, []);
            let mut held: Vec<Extent> = Vec::new();
            for (what, least, more, pick) in steps {
                if what == 0 && !held.is_empty() {
                    space.release(held.swap_remove(pick as usize % held.len()));
                } else {
                    let free = space.free_pages();
                    let after = held.last().map(|extent| extent.end());
                    match space.allocate(least + more, least, after) {
                        Some(extents) => {
                            let pages: u64 = extents.iter().map(|extent| extent.pages).sum();
                            prop_assert!((least..=least + more).contains(&pages));
                            held.extend(extents);
                        }
                        None => prop_assert!(free < least),
                    }
                }
                let mut sorted = held.clone();
                sorted.sort_unstable();
                prop_assert!(sorted.windows(2).all(|pair| pair[0].end() <= pair[1].first_page));
                prop_assert!(sorted.iter().all(|it| it.first_page >= 512 && it.end() <= 1512));
                let used: u64 = held.iter().map(|extent| extent.pages).sum();
                prop_assert_eq!(used + space.free_pages(), ALL.pages);
                prop_assert_eq!(&Space::new(ALL, held.iter().copied()), &space);
            }
        }
    }

    #[test]
    fn a_file_goes_on_where_it_ends() {
        let mut space = Space::new(ALL, []);
        let first = space.allocate(10, 10, None).expect("there is room");
        let other = space.allocate(10, 10, Some(700)).expect("there is room");
        assert_eq!((first[0].first_page, other[0].first_page), (512, 522));
        space.release(other[0]);
        let next = space.allocate(30, 30, Some(first[0].end())).expect("there is room");
        assert_eq!(next, [Extent { first_page: 522, pages: 30 }]);
    }
}
