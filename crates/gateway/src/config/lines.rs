//! Where things stand in a config file: the line of each setting, section and key of a section, and
//! so the place of whatever `penstock doctor` finds. Pure.

use crate::doctor::Finding;
use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{Item, Table};

/// Lines of a config file, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    path: String,
    /// Settings by their names.
    settings: BTreeMap<String, usize>,
    /// Sections by what findings call them; several where a name stands for several.
    sections: BTreeMap<String, Vec<Section>>,
}

/// A section of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Section {
    line: usize,
    keys: BTreeMap<String, usize>,
}

/// What findings call a section of each kind: before its name, and the key that has the name.
const NAMED: &[(&str, &str, &str)] =
    &[("backend", "back end", "name"), ("bucket", "bucket", "name"), ("key", "key", "access_key")];

/// Everything that a finding may be about, and the settings behind it. Names are left out of the
/// quotes. What has no settings here is a section, or is named by the words of the finding.
const SUBJECTS: &[(&str, &[&str])] = &[
    ("listen", &["listen"]),
    ("admin_listen", &["admin_listen"]),
    ("TLS", &["tls_cert_file", "tls_key_file"]),
    ("open files", &["connections_max", "connections_per_host"]),
    ("acl", &["acl"]),
    ("domains", &["domains"]),
    ("trusted_proxies", &["trusted_proxies"]),
    ("access_log", &["access_log"]),
    ("backend_log", &["backend_log"]),
    ("cache_dir", &["cache_dir"]),
    ("ca_file", &["ca_file"]),
    ("http_proxy", &["http_proxy"]),
    ("read_ahead_max_bytes", &["read_ahead_max_bytes"]),
    ("settings", &[]),
    ("keys", &[]),
    ("buckets", &[]),
    ("public", &[]),
    ("cors", &[]),
    ("back end ``", &[]),
    ("back end ``, notes in ``", &[]),
    ("bucket ``", &[]),
    ("key ``", &[]),
];

/// What lets everyone in besides a section, where there is none.
const WITHOUT_SECTION: &[(&str, &[&str])] = &[("public", &["anonymous", "acl"])];

/// How flags and variables begin, which settings are called that one of these gave.
const FLAG: &str = "--";
const VARIABLE: &str = "PENSTOCK_";

/// The row of a subject, which may be a flag or a variable.
fn row(subject: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
    let form: Vec<&str> = subject.split('`').step_by(2).collect();
    let form = form.join("``");
    let form = match (form.strip_prefix(FLAG), form.strip_prefix(VARIABLE)) {
        (Some(flag), _) => flag.replace('-', "_"),
        (_, Some(variable)) => variable.to_ascii_lowercase(),
        _ => form,
    };
    SUBJECTS.iter().find(|row| row.0 == form)
}

/// Whether a finding may be about this: a line of the file can be found for it.
pub(crate) fn is_subject(subject: &str) -> bool {
    row(subject).is_some()
}

impl Lines {
    /// Those of a document. `line_of` tells the line of a place in the text.
    pub(super) fn of(document: &Table, line_of: impl Fn(usize) -> usize) -> Self {
        let mut lines = Lines::default();
        let key_line = |table: &Table, name: &str| {
            table.key(name).and_then(|key| key.span()).map_or(1, |span| line_of(span.start))
        };
        for (kind, item) in document {
            let Some(sections) = item.as_array_of_tables() else {
                lines.settings.insert(kind.to_string(), key_line(document, kind));
                continue;
            };
            for section in sections {
                let line = section.span().map_or(1, |span| line_of(span.start));
                let mut keys = BTreeMap::new();
                for (name, item) in section {
                    keys.insert(name.to_string(), key_line(section, name));
                    for grant in item.as_array_of_tables().into_iter().flatten() {
                        for (name, _) in grant {
                            keys.entry(name.to_string()).or_insert_with(|| key_line(grant, name));
                        }
                    }
                }
                let aliases = section.get("aliases").and_then(Item::as_array);
                for alias in aliases.into_iter().flatten().filter_map(|it| it.as_str()) {
                    let line = keys["aliases"];
                    let section = Section { line, keys: BTreeMap::new() };
                    lines.sections.entry(format!("bucket `{alias}`")).or_default().push(section);
                }
                let found = lines.sections.entry(subject(kind, section)).or_default();
                found.push(Section { line, keys });
            }
        }
        lines
    }

    /// The same of the file of this path.
    pub(super) fn at(self, path: &str) -> Self {
        Lines { path: path.to_string(), ..self }
    }

    /// Where the cause of a finding stands: file and line, or the file where no line has it.
    /// `None` where there is no file.
    pub fn place(&self, finding: &Finding) -> Option<String> {
        if self.path.is_empty() {
            return None;
        }
        let line = self.lines(finding).first().copied();
        Some(line.map_or_else(|| self.path.clone(), |line| format!("{}:{line}", self.path)))
    }

    /// The other lines of a finding that is about several: settings that contradict each other,
    /// and a name that stands for several sections.
    pub fn others(&self, finding: &Finding) -> Vec<usize> {
        self.lines(finding).into_iter().skip(1).collect()
    }

    fn lines(&self, finding: &Finding) -> Vec<usize> {
        let mut lines = self.all_lines(&finding.subject, &finding.what);
        let mut known = BTreeSet::new();
        lines.retain(|line| known.insert(*line));
        lines
    }

    fn all_lines(&self, subject: &str, what: &str) -> Vec<usize> {
        let quoted: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
        let of = |sections: &[Section]| {
            let line = |section: &Section| {
                *quoted.iter().find_map(|word| section.keys.get(*word)).unwrap_or(&section.line)
            };
            sections.iter().map(line).collect::<Vec<usize>>()
        };
        if let Some(sections) = self.sections.get(subject) {
            // Those without a name are none of several: the first one counts.
            let is_named = subject.contains('`');
            return of(if is_named { sections } else { &sections[..1] });
        }
        let besides =
            WITHOUT_SECTION.iter().find(|row| row.0 == subject).map_or(&[][..], |it| it.1);
        // What a flag or a variable gave stands in no line.
        if subject.starts_with(FLAG) || subject.starts_with(VARIABLE) {
            return Vec::new();
        }
        let own = row(subject).map_or(&[][..], |row| row.1).iter().chain(besides);
        let line = |name: &str| self.settings.get(name).copied();
        if let Some(line) = own.filter_map(|name| line(name)).next() {
            return vec![line];
        }
        let named: Vec<usize> = quoted.iter().filter_map(|name| line(name)).collect();
        if !named.is_empty() {
            return named;
        }
        // A setting that the words name, a section that they name, or of which they speak.
        let mut words = what.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        if let Some(line) = words.find_map(line) {
            return vec![line];
        }
        let by_name = || {
            // Of what is about all keys a key's name is meant, whatever else has it.
            let (meant, others): (Vec<_>, Vec<_>) =
                NAMED.iter().map(|row| row.1).partition(|called| subject.starts_with(called));
            let subjects = meant
                .into_iter()
                .chain(others)
                .flat_map(|called| quoted.iter().map(move |word| format!("{called} `{word}`")));
            let mut found = subjects.filter_map(|subject| self.sections.get(&subject));
            found.next()
        };
        let beginning = || {
            let mut sections = self.sections.iter();
            sections.find(|(name, _)| subject.starts_with(name.as_str())).map(|(_, found)| found)
        };
        let found = by_name().or_else(beginning);
        found.map_or_else(Vec::new, |found| found.iter().map(|section| section.line).collect())
    }
}

/// What findings call a section.
fn subject(kind: &str, section: &Table) -> String {
    let named = NAMED.iter().find(|row| row.0 == kind);
    let name = |key: &str| section.get(key).and_then(Item::as_str).unwrap_or_default();
    named.map_or(kind.to_string(), |(_, called, key)| format!("{called} `{}`", name(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml_edit::Document;

    const TEXT: &str = "\
listen = \"0.0.0.0:9000\"
tls_cert_file = \"cert.pem\"
acl = \"public\"

[[backend]]
name = \"s3\"
url = \"s3://\"
account_key = \"x\"

[[bucket]]
name = \"lake\"
backend = \"s3\"

[[key]]
access_key = \"K\"
secret_key = \"s\"
buckets = [\"lak\"]

[[key]]
access_key = \"L\"
secret_key = \"s\"
  [[key.grant]]
  buckets = [\"other\"]

[[public]]
buckets = [\"*\"]
rights = [\"read\"]
";

    #[test]
    fn a_finding_stands_in_a_line_of_the_file() {
        let document = Document::parse(TEXT).unwrap();
        let line_of = |at: usize| TEXT[..at].matches('\n').count() + 1;
        let lines = Lines::of(document.as_table(), line_of);
        assert_eq!(lines.place(&Finding::good("public", "x")), None, "there is no file");
        let lines = lines.at("g.toml");
        for (subject, what, place) in [
            ("listen", "in use", "g.toml:1"),
            ("--listen", "in use", "g.toml"),
            ("PENSTOCK_LISTEN", "in use", "g.toml"),
            ("TLS", "cannot be read", "g.toml:2"),
            ("acl", "`public` needs notes_bucket", "g.toml:3"),
            ("back end `s3`", "answers", "g.toml:5"),
            ("back end `s3`", "takes no `account_key`: nothing looks at it", "g.toml:8"),
            ("back end `s3`, notes in `penstock-notes`", "there are none yet", "g.toml:5"),
            ("bucket `lake`", "may be listed", "g.toml:10"),
            ("key `K`", "has a short secret, which can be guessed", "g.toml:14"),
            ("key `K`", "`lak` in `buckets` stands for no bucket", "g.toml:17"),
            ("key `L`", "`other` in `buckets` stands for no bucket", "g.toml:23"),
            ("keys", "two keys have the access key `L`", "g.toml:19"),
            ("buckets", "bucket `lake`: there is no back end `s4`", "g.toml:10"),
            ("public", "everyone may write", "g.toml:25"),
            ("settings", "`acl` and `listen` contradict each other", "g.toml:3"),
            ("open files", "connections_max comes to 9", "g.toml"),
            ("admin_listen", "in use", "g.toml"),
            ("cors", "no rule", "g.toml"),
        ] {
            let found = lines.place(&Finding::good(subject, what));
            assert_eq!(found.as_deref(), Some(place), "{subject}: {what}");
        }
    }

    #[test]
    fn everything_that_a_finding_may_be_about_has_a_line() {
        // A file that says everything, each setting in a line of its own.
        let settings: BTreeSet<&str> = SUBJECTS.iter().flat_map(|row| row.1).copied().collect();
        let mut text: String = settings.iter().map(|name| format!("{name} = 1\n")).collect();
        text += "[[backend]]\nname = \"n\"\n[[bucket]]\nname = \"n\"\n";
        text += "[[key]]\naccess_key = \"n\"\n[[public]]\n[[cors]]\n";
        let document = Document::parse(text.as_str()).unwrap();
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let lines = Lines::of(document.as_table(), line_of).at("g.toml");
        for (form, settings) in SUBJECTS {
            let subject = form.replace("``", "`n`");
            // What is about several sections or settings names one.
            let what = match *form {
                "settings" => "`acl` and `domains` contradict each other",
                "keys" => "two keys have the access key `n`",
                "buckets" => "bucket `n`: there is no back end `m`",
                _ => "is wrong",
            };
            let place = lines.place(&Finding::good(&subject, what)).unwrap();
            let line = place.strip_prefix("g.toml:").expect(&place).parse::<usize>().unwrap();
            let found = text.lines().nth(line - 1).unwrap();
            let begins = match (*form, settings.first()) {
                (_, Some(setting)) => format!("{setting} ="),
                ("settings", None) => "acl =".to_string(),
                ("keys" | "key ``", None) => "[[key]]".to_string(),
                ("buckets" | "bucket ``", None) => "[[bucket]]".to_string(),
                ("public" | "cors", None) => format!("[[{form}]]"),
                (_, None) => "[[backend]]".to_string(),
            };
            assert!(found.starts_with(&begins), "{subject}: {found}, not {begins}");
        }
    }
}
