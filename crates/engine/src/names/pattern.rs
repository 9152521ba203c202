//! Glob patterns over keys, with DuckDB's meaning. Pure.
//!
//! A pattern is split at `/`. Inside a component `*` stands for any text, `?` for any one byte,
//! `[a-z]` and `[!a-z]` for one byte in or out of a set, and `\` takes the next byte literally. The
//! component `**` stands for any number of components, also none. Letters keep their case.

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    components: Vec<Component>,
}

/// What one component of a key has to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    /// Exactly this.
    Literal(String),
    /// What this glob matches.
    Glob(String),
    /// Any number of components.
    Any,
}

impl Component {
    /// Whether one component of a key fits. [`Component::Any`] fits every one.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Component::Literal(literal) => literal == text,
            Component::Glob(glob) => glob_matches(text.as_bytes(), glob.as_bytes()),
            Component::Any => true,
        }
    }

    /// The text that every match begins with.
    pub fn literal_prefix(&self) -> String {
        match self {
            Component::Literal(literal) => literal.clone(),
            Component::Glob(glob) => literal_start(glob).0,
            Component::Any => String::new(),
        }
    }
}

/// Whether a name fits a pattern; `None` where nothing in that is a wildcard.
pub fn fits(pattern: &str, name: &str) -> Option<bool> {
    let pattern = Pattern::parse(pattern);
    pattern.literal().is_none().then(|| pattern.matches(name))
}

impl Pattern {
    pub fn parse(pattern: &str) -> Self {
        let components = pattern.split('/').map(|text| match (text, literal_start(text)) {
            ("**", _) => Component::Any,
            (_, (literal, true)) => Component::Literal(literal),
            _ => Component::Glob(text.to_string()),
        });
        Pattern { components: components.collect() }
    }

    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The key itself, when nothing in the pattern is a wildcard.
    pub fn literal(&self) -> Option<String> {
        self.components
            .iter()
            .map(|component| match component {
                Component::Literal(literal) => Some(literal.as_str()),
                Component::Glob(_) | Component::Any => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(|parts| parts.join("/"))
    }

    /// The text that every matching key begins with: what to ask a listing for.
    pub fn literal_prefix(&self) -> String {
        let mut prefix = String::new();
        for (index, component) in self.components.iter().enumerate() {
            if index > 0 {
                prefix.push('/');
            }
            prefix.push_str(&component.literal_prefix());
            if !matches!(component, Component::Literal(_)) {
                if matches!(component, Component::Any) {
                    // `**` may stand for nothing, but what follows it begins after the same slash.
                    return prefix;
                }
                break;
            }
        }
        prefix
    }

    /// Index of the first component that is not literal.
    pub fn first_wildcard(&self) -> usize {
        self.components
            .iter()
            .position(|component| !matches!(component, Component::Literal(_)))
            .unwrap_or(self.components.len())
    }

    pub fn matches(&self, key: &str) -> bool {
        let parts: Vec<&str> = key.split('/').collect();
        components_match(&parts, &self.components)
    }
}

/// As [`glob_matches`], with `**` in place of `*`: only the last one that was passed is ever looked
/// at again, so many of them cost no more than their number.
fn components_match(parts: &[&str], pattern: &[Component]) -> bool {
    let (mut p, mut c) = (0, 0);
    let mut any: Option<(usize, usize)> = None;
    loop {
        match (parts.get(p), pattern.get(c)) {
            (part, Some(Component::Any)) if c + 1 == pattern.len() => return part.is_some(),
            (_, Some(Component::Any)) => {
                c += 1;
                any = Some((p, c));
            }
            (Some(part), Some(component)) if component.matches(part) => {
                p += 1;
                c += 1;
            }
            (None, None) => return true,
            _ => match any {
                Some((from, after)) if from < parts.len() => {
                    any = Some((from + 1, after));
                    (p, c) = (from + 1, after);
                }
                _ => return false,
            },
        }
    }
}

/// The text before the first wildcard, without its escapes, and whether that is all.
fn literal_start(glob: &str) -> (String, bool) {
    let mut literal = String::new();
    let mut chars = glob.chars();
    while let Some(char) = chars.next() {
        match char {
            '*' | '?' | '[' => return (literal, false),
            '\\' => match chars.next() {
                Some(escaped) => literal.push(escaped),
                // A lone escape at the end matches nothing; the matcher says so.
                None => return (literal, false),
            },
            other => literal.push(other),
        }
    }
    (literal, true)
}

/// Iterative matching with one point of return: linear in practice, quadratic at worst.
fn glob_matches(text: &[u8], glob: &[u8]) -> bool {
    let (mut t, mut g) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match glob.get(g) {
            Some(b'*') => {
                star = Some((t, g + 1));
                g += 1;
                continue;
            }
            Some(_) => one_matches(text[t], &glob[g..]),
            None => None,
        };
        match (step, star) {
            (Some(used), _) => {
                t += 1;
                g += used;
            }
            (None, Some((from, after))) => {
                star = Some((from + 1, after));
                t = from + 1;
                g = after;
            }
            (None, None) => return false,
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

/// How many bytes of the glob stand for this byte, if they do.
fn one_matches(byte: u8, glob: &[u8]) -> Option<usize> {
    match glob {
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => set_matches(byte, set).map(|used| used + 1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'\\'] => None,
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// `set` begins after `[`; a `]` in first place is a member.
fn set_matches(byte: u8, set: &[u8]) -> Option<usize> {
    let negated = set.first() == Some(&b'!');
    let first = usize::from(negated);
    let mut found = false;
    let mut at = first;
    loop {
        match set.get(at..)? {
            [b']', ..] if at > first => return (found != negated).then_some(at + 1),
            [low, b'-', high, ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            [member, _, ..] => {
                found |= *member == byte;
                at += 1;
            }
            // An unclosed set matches nothing.
            _ => return None,
        }
    }
}

/// A line that is a pattern, and a line that may be a key.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let Some((pattern, key)) = std::str::from_utf8(input).ok().and_then(|it| it.split_once('\n'))
    else {
        return;
    };
    let pattern = Pattern::parse(pattern);
    if pattern.matches(key) {
        assert!(key.starts_with(&pattern.literal_prefix()), "{pattern:?} {key:?}");
        assert!(pattern.literal().is_none_or(|literal| literal == key), "{pattern:?} {key:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, key: &str) -> bool {
        Pattern::parse(pattern).matches(key)
    }

    #[test]
    fn table_of_matches() {
        for (pattern, key, expected) in [
            ("a/*.parquet", "a/1.parquet", true),
            ("a/*.parquet", "a/b/1.parquet", false),
            ("a/*.parquet", "a/1.PARQUET", false),
            ("a/**/x", "a/x", true),
            ("a/**/x", "a/b/c/x", true),
            ("a/**/x", "b/x", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("**", "a/b", true),
            ("y=*/m=?/[a-c]*", "y=2020/m=1/b7", true),
            ("y=*/m=?/[a-c]*", "y=2020/m=12/b7", false),
            ("[!a-c]x", "dx", true),
            ("[!a-c]x", "ax", false),
            ("[]]", "]", true),
            ("[a", "a", false),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "abbbd", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn any_number_of_components_many_times_over_takes_no_time() {
        let pattern = "**/*a/".repeat(40);
        assert!(!matches(&format!("{pattern}b"), &"a/".repeat(200)));
        assert!(matches(&format!("{pattern}**"), &"a/".repeat(200)));
    }

    /// What the patterns mean, without a thought for how long it takes.
    fn plainly(parts: &[&str], pattern: &[Component]) -> bool {
        match pattern {
            [] => parts.is_empty(),
            [Component::Any] => !parts.is_empty(),
            [Component::Any, rest @ ..] => {
                (0..parts.len()).any(|skipped| plainly(&parts[skipped..], rest))
            }
            [component, rest @ ..] => parts
                .split_first()
                .is_some_and(|(part, others)| component.matches(part) && plainly(others, rest)),
        }
    }

    #[test]
    fn literal_parts_are_found() {
        let pattern = Pattern::parse(r"a/b\*/c*/d");
        assert_eq!(pattern.literal_prefix(), "a/b*/c");
        assert_eq!(pattern.first_wildcard(), 2);
        assert_eq!(Pattern::parse("a/b").literal().as_deref(), Some("a/b"));
        assert_eq!(Pattern::parse("a/**/b").literal_prefix(), "a/");
        assert_eq!(Pattern::parse("**/b").literal_prefix(), "");
    }

    proptest! {
        #[test]
        fn a_key_matches_as_the_meaning_says(
            pattern in prop::collection::vec("\\*\\*|[ab*?]{0,2}", 0..7),
            key in "[ab/]{0,9}",
        ) {
            let parsed = Pattern::parse(&pattern.join("/"));
            let parts: Vec<&str> = key.split('/').collect();
            prop_assert_eq!(parsed.matches(&key), plainly(&parts, parsed.components()));
        }

        #[test]
        fn what_matches_begins_with_the_literal_prefix(
            pattern in "[ab/*?]{0,8}", key in "[ab/]{0,8}",
        ) {
            let parsed = Pattern::parse(&pattern);
            if parsed.matches(&key) {
                prop_assert!(key.starts_with(&parsed.literal_prefix()), "{pattern} {key}");
            }
        }

        #[test]
        fn a_key_matches_itself_escaped(key in "[a-z*?\\[\\]!/-]{0,12}") {
            let escaped: String = key
                .chars()
                .flat_map(|c| if "*?[]".contains(c) { vec!['\\', c] } else { vec![c] })
                .collect();
            prop_assert!(matches(&escaped, &key), "{escaped} {key}");
        }

        #[test]
        fn star_is_any_text_of_one_component(
            before in "[ab]{0,4}",
            middle in "[abc]{0,6}",
            after in "[ab]{0,4}",
        ) {
            let pattern = format!("{before}*{after}");
            let key = format!("{before}{middle}{after}");
            prop_assert!(matches(&pattern, &key));
        }
    }
}
