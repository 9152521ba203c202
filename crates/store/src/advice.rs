//! What an error advises about credentials, in the words of whoever reads it: a statement for
//! DuckDB, flags for a command line, lines for a config file.

use std::sync::OnceLock;

/// How options are given where this process was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// `CREATE SECRET (TYPE s3, KEY_ID '...')`; unless another form is chosen.
    Sql,
    /// `-o key_id='...'`.
    Flags,
    /// `key_id = "..."`.
    Config,
}

static WORDS: OnceLock<Words> = OnceLock::new();

/// Chooses the form for this process; the first choice stays.
pub fn speak(words: Words) {
    // A second choice would be of the same program, about the same command.
    let _ = WORDS.set(words);
}

fn spoken() -> Words {
    WORDS.get().copied().unwrap_or(Words::Sql)
}

/// Options of a secret of this type, ready to be pasted. A name is in lower case; one in a map
/// follows a dot. `scope` is for secrets alone.
pub(crate) fn options(kind: &str, options: &[(&str, &str)]) -> String {
    options_in(spoken(), kind, options)
}

/// The same as a sentence.
pub(crate) fn give(kind: &str, options: &[(&str, &str)]) -> String {
    give_in(spoken(), kind, options)
}

/// How to see which secret is used, where there are secrets.
pub(crate) fn which(url: &str, kind: &str) -> Option<String> {
    (spoken() == Words::Sql).then(|| format!("FROM which_secret('{url}', '{kind}')"))
}

fn give_in(words: Words, kind: &str, options: &[(&str, &str)]) -> String {
    let pasted = options_in(words, kind, options);
    if words == Words::Sql { pasted } else { format!("Give {pasted}") }
}

fn options_in(words: Words, kind: &str, options: &[(&str, &str)]) -> String {
    let each = |form: &dyn Fn(&str, &str) -> String, between: &str| {
        let wanted = options.iter().filter(|(name, _)| words == Words::Sql || *name != "scope");
        wanted.map(|(name, value)| form(name, value)).collect::<Vec<_>>().join(between)
    };
    match words {
        Words::Sql => format!("CREATE SECRET (TYPE {kind}, {})", each(&in_sql, ", ")),
        Words::Flags => each(&|name, value| format!("-o {name}='{value}'"), " "),
        Words::Config => each(&in_config, ", "),
    }
}

fn in_sql(name: &str, value: &str) -> String {
    match name.split_once('.') {
        Some((map, key)) => format!("{} MAP {{'{key}': '{value}'}}", map.to_ascii_uppercase()),
        None => format!("{} '{value}'", name.to_ascii_uppercase()),
    }
}

fn in_config(name: &str, value: &str) -> String {
    if name.contains('.') {
        format!("\"{name}\" = \"{value}\"")
    } else {
        format!("{name} = \"{value}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_as_they_are_given() {
        let key = [("key_id", "..."), ("secret", "..."), ("scope", "s3://lake")];
        for (words, expected) in [
            (Words::Sql, "CREATE SECRET (TYPE s3, KEY_ID '...', SECRET '...', SCOPE 's3://lake')"),
            (Words::Flags, "Give -o key_id='...' -o secret='...'"),
            (Words::Config, "Give key_id = \"...\", secret = \"...\""),
        ] {
            assert_eq!(give_in(words, "s3", &key), expected);
        }
        let header = [("extra_http_headers.Authorization", "Basic ...")];
        assert_eq!(
            options_in(Words::Sql, "http", &header),
            "CREATE SECRET (TYPE http, EXTRA_HTTP_HEADERS MAP {'Authorization': 'Basic ...'})"
        );
    }
}
