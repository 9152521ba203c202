//! The reference page, printed from the tables in code; `docs/reference.md` is its output.

use crate::report::exit_code;
use crate::settings::{flag, variable_of};
use penstock_base::metrics::Metric;
use penstock_base::settings::{SettingSpec, SettingType, TABLE};
use penstock_base::{ByteSize, Kind};
use std::fmt::Write as _;

/// The whole page, in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Reference\n\n\
         Printed by `penstock reference` from the tables in the code; a test compares this page \
         with them.\n\n",
    );
    settings(&mut page);
    metrics(&mut page);
    errors(&mut page);
    page
}

fn settings(page: &mut String) {
    page.push_str(
        "## Settings\n\n\
         One table for every door. In DuckDB a setting is `penstock_<name>` (`SET \
         penstock_part_size_bytes = '16MiB'`), on the command line `--<name>` with dashes, in the \
         environment `PENSTOCK_<NAME>`. A flag wins over a variable. An unknown name is an error \
         that suggests the nearest known one.\n\n\
         | name | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in TABLE {
        let default = if row.default.is_empty() { "empty" } else { row.default };
        line(page, &[&code(row.name), type_name(row), default, &range(row), row.doc]);
    }
    if let Some(row) = TABLE.iter().find(|row| row.name == "part_size_bytes") {
        let (flag, variable) = (flag(row.name), variable_of(row.name));
        let _ = writeln!(page, "\nFor example `{}` is `{flag}` and `{variable}`.", row.name);
    }
}

fn metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics\n\n\
         `FROM penstock_stats()` lists them. Counters count since the extension was loaded; names \
         that end in `_now` are gauges.\n\n\
         | name | unit | meaning |\n| --- | --- | --- |\n",
    );
    for (_, name, unit, doc) in Metric::ALL {
        line(page, &[&code(name), unit, doc]);
    }
}

fn errors(page: &mut String) {
    page.push_str(
        "\n## Errors\n\n\
         Every error has a kind, which says what to do next. The command line exits with the code \
         of the kind; 2 is a mistake in the flags.\n\n\
         | kind | exit code | what to do |\n| --- | --- | --- |\n",
    );
    for (kind, name, advice) in Kind::ALL {
        line(page, &[&code(name), &exit_code(*kind).to_string(), advice]);
    }
}

fn type_name(row: &SettingSpec) -> &'static str {
    match row.setting_type {
        SettingType::Bool => "true or false",
        SettingType::Number => "number",
        SettingType::Bytes => "bytes",
        SettingType::Millis => "milliseconds",
        SettingType::Text => "text",
    }
}

fn range(row: &SettingSpec) -> String {
    let Some((min, max)) = row.range else { return String::new() };
    let shown = |value: u64| match row.setting_type {
        SettingType::Bytes => ByteSize(value).to_string(),
        _ => value.to_string(),
    };
    if max == u64::MAX {
        format!("from {}", shown(min))
    } else {
        format!("{} to {}", shown(min), shown(max))
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn line(page: &mut String, cells: &[&str]) {
    let escaped: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(page, "| {} |", escaped.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_is_the_printed_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == page(),
            "docs/reference.md is stale: run `build/penstock reference > docs/reference.md`"
        );
    }

    #[test]
    fn every_row_of_every_table_is_on_the_page() {
        let page = page();
        for row in TABLE {
            assert!(page.contains(&format!("| `{}` |", row.name)), "{}", row.name);
        }
        for (_, name, _, _) in Metric::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _) in Kind::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
