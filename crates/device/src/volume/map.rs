//! Where the pages of a file lie. Pure.

use crate::volume::space::Extent;

/// The extents of a file in the order of its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    extents: Vec<Extent>,
    /// The file's page with which each extent begins.
    starts: Vec<u64>,
    pages: u64,
}

impl Map {
    /// From extents in order.
    pub fn new(extents: &[Extent]) -> Self {
        let mut map = Map::default();
        map.append(extents);
        map
    }

    /// The extents in order, neighbours joined.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Pages that the file may fill.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The page after the file's last one.
    pub fn end(&self) -> Option<u64> {
        self.extents.last().map(|extent| extent.end())
    }

    /// Adds extents at the end.
    pub fn append(&mut self, extents: &[Extent]) {
        for extent in extents.iter().filter(|extent| extent.pages > 0) {
            match self.extents.last_mut() {
                Some(last) if last.end() == extent.first_page => last.pages += extent.pages,
                _ => {
                    self.starts.push(self.pages);
                    self.extents.push(*extent);
                }
            }
            self.pages += extent.pages;
        }
    }

    /// Splits into the first `pages` pages and the extents behind them.
    pub fn cut(&self, pages: u64) -> (Map, Vec<Extent>) {
        let (mut kept, mut freed) = (Map::default(), Vec::new());
        for extent in &self.extents {
            let here = extent.pages.min(pages.saturating_sub(kept.pages));
            kept.append(&[Extent { first_page: extent.first_page, pages: here }]);
            if here < extent.pages {
                let first_page = extent.first_page + here;
                freed.push(Extent { first_page, pages: extent.pages - here });
            }
        }
        (kept, freed)
    }

    /// Puts extents in the place of as many pages from `first` on; returns where those lay.
    pub fn replace(&mut self, first: u64, extents: &[Extent]) -> Vec<Extent> {
        let pages = extents.iter().map(|extent| extent.pages).sum();
        let left = self.pieces(first, pages);
        let (mut map, rest) = self.cut(first);
        let (_, behind) = Map::new(&rest).cut(pages);
        map.append(extents);
        map.append(&behind);
        *self = map;
        left
    }

    /// Where `pages` pages from `first` on lie; they are all inside the file's pages.
    pub fn pieces(&self, first: u64, pages: u64) -> Vec<Extent> {
        let mut pieces = Vec::new();
        let (mut at, end) = (first, first + pages);
        let mut index = self.starts.partition_point(|start| *start <= first).saturating_sub(1);
        while at < end {
            let Some(extent) = self.extents.get(index) else { break };
            let within = at - self.starts[index];
            let count = (extent.pages - within).min(end - at);
            pieces.push(Extent { first_page: extent.first_page + within, pages: count });
            at += count;
            index += 1;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        prop::collection::vec((0u64..5, 1u64..9), 0..12).prop_map(|rows| {
            let mut at = 100;
            let mut extents = Vec::new();
            for (gap, pages) in rows {
                at += gap;
                extents.push(Extent { first_page: at, pages });
                at += pages;
            }
            extents.reverse();
            extents
        })
    }

    fn pages(extents: &[Extent]) -> Vec<u64> {
        extents.iter().flat_map(|extent| extent.first_page..extent.end()).collect()
    }

    proptest! {
        #[test]
        fn pieces_and_cuts_agree_with_a_list_of_pages(
            extents in extents(), first in 0u64..60, count in 0u64..60,
        ) {
            let all = pages(&extents);
            let map = Map::new(&extents);
            prop_assert_eq!(map.pages(), all.len() as u64);
            prop_assert_eq!(pages(map.extents()), all.clone());
            let first = first.min(map.pages());
            let count = count.min(map.pages() - first);
            let range = first as usize..(first + count) as usize;
            prop_assert_eq!(pages(&map.pieces(first, count)), &all[range]);
            let (kept, freed) = map.cut(first);
            prop_assert_eq!(pages(kept.extents()), &all[..first as usize]);
            prop_assert_eq!(pages(&freed), &all[first as usize..]);
        }

        #[test]
        fn replacing_agrees_with_a_list_of_pages(
            old in extents(), new in extents(), first in 0u64..60,
        ) {
            let (mut all, mut map) = (pages(&old), Map::new(&old));
            let first = first.min(map.pages());
            let (new, _) = Map::new(&new).cut(map.pages() - first);
            let place = first as usize..(first + new.pages()) as usize;
            prop_assert_eq!(pages(&map.replace(first, new.extents())), &all[place.clone()]);
            all.splice(place, pages(new.extents()));
            prop_assert_eq!(pages(map.extents()), all);
        }
    }
}
