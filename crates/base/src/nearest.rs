//! Finds the known name nearest to a misspelt one, for "did you mean" in errors.

/// The candidate with the smallest edit distance to `name`, if it is near enough to be a slip
/// (at most a third of the name's length, and at least one edit of room).
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let room = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= room)
        .min()
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slip_finds_its_name_and_nonsense_finds_none() {
        let names = ["io_threads", "part_size_bytes", "memory_limit_bytes"];
        assert_eq!(nearest("io_thread", names), Some("io_threads"));
        assert_eq!(nearest("part_size_byte", names), Some("part_size_bytes"));
        assert_eq!(nearest("zzz", names), None);
    }
}
