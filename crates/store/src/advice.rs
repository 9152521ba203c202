//! What an error advises about credentials, in the words of whoever reads it: a statement for
//! DuckDB, flags for a command line, lines for a config file.

use penstock_base::door::{Words, spoken};

/// Options of a secret of this type, ready to be pasted. A name is in lower case; one in a map
/// follows a dot. `scope` is for secrets alone.
pub(crate) fn options(kind: &str, options: &[(&str, &str)]) -> String {
    options_in(spoken(), kind, options)
}

/// The same as a sentence.
pub(crate) fn give(kind: &str, options: &[(&str, &str)]) -> String {
    give_in(spoken(), kind, options)
}

/// Whether options come from secrets.
pub(crate) fn has_secrets() -> bool {
    spoken() == Words::Sql
}

/// How to see which secret is used, where there are secrets.
pub(crate) fn which(url: &str, kind: &str) -> Option<String> {
    has_secrets().then(|| format!("FROM which_secret('{url}', '{kind}')"))
}

/// Options by their names, and where they are given, for a sentence about their values.
pub(crate) fn values(secret_name: Option<&str>, names: &[&str]) -> String {
    values_in(spoken(), secret_name, names)
}

/// The variables of the environment from which a chain has its key.
const VARIABLES: &[(&str, &str)] = &[
    ("key_id", "AWS_ACCESS_KEY_ID"),
    ("secret", "AWS_SECRET_ACCESS_KEY"),
    ("session_token", "AWS_SESSION_TOKEN"),
];

/// The same where the key is the environment's: by its variables.
pub(crate) fn values_of_environment(secret_name: Option<&str>, names: &[&str]) -> String {
    let variable = |name: &str| VARIABLES.iter().find(|row| row.0 == name).map(|row| row.1);
    let variables: Vec<&str> = names.iter().filter_map(|name| variable(name)).collect();
    let others: Vec<&str> = names.iter().copied().filter(|name| variable(name).is_none()).collect();
    let variables = format!("{} of the environment", variables.join(", "));
    match others.is_empty() {
        true => variables,
        false => format!("{variables}, and {}", values(secret_name, &others)),
    }
}

/// How an option is given this value, as a part of a sentence.
pub(crate) fn set(name: &str, value: &str) -> String {
    set_in(spoken(), name, value)
}

/// How credentials that have expired are renewed.
pub(crate) fn renew(secret_name: Option<&str>) -> String {
    renew_in(spoken(), secret_name)
}

fn secret(name: Option<&str>) -> String {
    name.map_or_else(|| "the secret".to_string(), |name| format!("secret '{name}'"))
}

fn values_in(words: Words, secret_name: Option<&str>, names: &[&str]) -> String {
    let spelt = |name: &&str| match words {
        Words::Sql => name.to_ascii_uppercase(),
        Words::Flags | Words::Config => name.to_string(),
    };
    let names: Vec<String> = names.iter().map(spelt).collect();
    let names = match &names[..] {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        names => names.concat(),
    };
    match words {
        Words::Sql => format!("{names} of {}", secret(secret_name)),
        Words::Flags => format!("{names} (-o NAME=VALUE, or the environment)"),
        Words::Config => format!("{names} (in the [[backend]], or the environment)"),
    }
}

fn set_in(words: Words, name: &str, value: &str) -> String {
    match words {
        Words::Sql => {
            // Text stands in quotes there, and what is true or false does not.
            let quote = if matches!(value, "true" | "false") { "" } else { "'" };
            format!("set {} {quote}{value}{quote} in the secret", name.to_ascii_uppercase())
        }
        Words::Flags => format!("give -o {name}={value}"),
        Words::Config => format!("set {name} = \"{value}\" in the [[backend]]"),
    }
}

fn renew_in(words: Words, secret_name: Option<&str>) -> String {
    match words {
        Words::Sql => format!(
            "renew {}, or create it with PROVIDER credential_chain so that they renew themselves",
            secret(secret_name)
        ),
        Words::Flags => "renew them where they come from (-o, or the environment)".to_string(),
        Words::Config => "renew them where they come from (the [[backend]], or the environment); \
                          with provider = \"credential_chain\" they renew themselves"
            .to_string(),
    }
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
    fn values_are_told_where_they_are_given() {
        let names = ["secret", "region", "endpoint"];
        for (words, values, one, set) in [
            (
                Words::Sql,
                "SECRET, REGION and ENDPOINT of secret 'mine'",
                "KEY_ID of the secret",
                "set USE_SSL false in the secret",
            ),
            (
                Words::Flags,
                "secret, region and endpoint (-o NAME=VALUE, or the environment)",
                "key_id (-o NAME=VALUE, or the environment)",
                "give -o use_ssl=false",
            ),
            (
                Words::Config,
                "secret, region and endpoint (in the [[backend]], or the environment)",
                "key_id (in the [[backend]], or the environment)",
                "set use_ssl = \"false\" in the [[backend]]",
            ),
        ] {
            assert_eq!(values_in(words, Some("mine"), &names), values);
            assert_eq!(values_in(words, None, &["key_id"]), one);
            assert_eq!(set_in(words, "use_ssl", "false"), set);
            let region = set_in(words, "region", "eu-west-1");
            assert_eq!(region.contains("REGION 'eu-west-1' in"), words == Words::Sql, "{region}");
            let is_sql = words == Words::Sql;
            assert_eq!(renew_in(words, Some("mine")).contains("secret 'mine'"), is_sql);
        }
    }

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
