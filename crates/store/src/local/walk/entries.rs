//! The names of one directory: one text and a few bytes for each name, since a directory may have
//! millions, and a listing holds them from page to page.

/// Names in the order that they came, until they are sorted.
#[derive(Debug, Default)]
pub(super) struct Entries {
    text: String,
    items: Vec<Item>,
}

/// Where a name is in the text: its key component, and behind it the file's name if that differs.
#[derive(Clone, Copy, Debug)]
struct Item {
    start: usize,
    /// No name is longer than a file's, and a slash.
    part_len: u16,
    name_len: u16,
    is_dir: bool,
}

/// One of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Key component; directories end with `/`.
    pub part: &'a str,
    /// Name of the file.
    pub name: &'a str,
    pub is_dir: bool,
}

impl Entries {
    /// Adds a name; what has one too long to be told in 16 bits has no place on any file system.
    pub fn push(&mut self, entry: Entry<'_>) {
        let Entry { part, name, is_dir } = entry;
        let own = if part.strip_suffix('/').unwrap_or(part) == name { "" } else { name };
        let lens = (u16::try_from(part.len()), u16::try_from(own.len()));
        let (Ok(part_len), Ok(name_len)) = lens else { return };
        self.items.push(Item { start: self.text.len(), part_len, name_len, is_dir });
        self.text.push_str(part);
        self.text.push_str(own);
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        let item = self.items.get(index)?;
        let part = part_of(&self.text, item);
        let end = item.start + usize::from(item.part_len);
        let name = match item.name_len {
            0 => part.strip_suffix('/').unwrap_or(part),
            len => &self.text[end..end + usize::from(len)],
        };
        Some(Entry { part, name, is_dir: item.is_dir })
    }

    /// Puts them in the order of their key components.
    pub fn sort(&mut self) {
        let text = &self.text;
        self.items.sort_unstable_by(|a, b| part_of(text, a).cmp(part_of(text, b)));
    }

    /// Gives back what was taken for names that did not come.
    pub fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.items.shrink_to_fit();
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.items.capacity() * size_of::<Item>()
    }
}

fn part_of<'a>(text: &'a str, item: &Item) -> &'a str {
    &text[item.start..item.start + usize::from(item.part_len)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_come_back_in_order(
            names in proptest::collection::vec(
                ("[a./ü-]{0,4}", "[a.ü-]{1,4}", any::<bool>()),
                0..20,
            ),
            same in any::<bool>(),
        ) {
            let mut names = names;
            for (part, name, _) in &mut names {
                if same {
                    part.clone_from(name);
                }
            }
            let mut entries = Entries::default();
            for (part, name, is_dir) in &names {
                entries.push(Entry { part, name, is_dir: *is_dir });
            }
            entries.sort();
            entries.shrink();
            let came: Vec<_> = (0..entries.len()).filter_map(|at| entries.get(at)).collect();
            prop_assert!(came.is_sorted_by_key(|entry| entry.part));
            let mut came: Vec<_> = came
                .iter()
                .map(|it| (it.part.to_string(), it.name.to_string(), it.is_dir))
                .collect();
            came.sort();
            names.sort();
            prop_assert_eq!(came, names);
        }
    }

    #[test]
    fn a_name_takes_its_bytes_and_sixteen() {
        let mut entries = Entries::default();
        for number in 0..1000 {
            let name = format!("{number:012}");
            entries.push(Entry { part: &name, name: &name, is_dir: false });
        }
        entries.shrink();
        assert_eq!(entries.bytes(), 1000 * (12 + 16));
    }
}
