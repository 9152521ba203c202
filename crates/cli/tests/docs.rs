//! The pages name tests, files and settings that exist.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_base::metrics::GATEWAY;
use penstock_base::settings::TABLE;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// Texts between backticks, in order.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_test_that_the_promises_name_exists() {
    let checked = tests_named_in("docs/semantics.md");
    assert!(checked > 40, "only {checked} names were found: has the page changed its form?");
    let checked = tests_named_in("docs/design/credentials.md");
    assert!(checked > 25, "only {checked} names were found: has the table lost its tests?");
}

/// How many files and tests a page names, each of which is there.
fn tests_named_in(name_of_page: &str) -> usize {
    let text = page(name_of_page);
    let mut checked = 0;
    // An item is a line that begins with `- ` and the indented lines after it.
    for item in text.split("\n- ").skip(1) {
        let item = item.split("\n\n").next().unwrap_or_default();
        let mut file: Option<(PathBuf, String)> = None;
        for name in quoted(item) {
            if name.contains('/') {
                let path = root().join(name);
                assert!(path.exists(), "{name_of_page} names {name}");
                let source = if path.is_file() { page(name) } else { String::new() };
                file = Some((path, source));
            } else {
                let (path, source) = file.as_ref().unwrap_or_else(|| panic!("{name} has no file"));
                let keyword =
                    if path.extension().is_some_and(|e| e == "py") { "def" } else { "fn" };
                let text = format!("{keyword} {name}(");
                assert!(source.contains(&text), "{} has no test {name}", path.display());
            }
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_setting_that_a_page_names_exists() {
    let guides = ["duckdb", "python", "wrap", "serve", "gateway", "cli", "nvme"]
        .map(|name| format!("docs/guide/{name}.md"));
    // SQL functions are the names that the extension registers.
    let sql = ["tables", "wrap"].map(|name| page(&format!("duckdb/src/{name}.cpp"))).concat();
    for name in guides.iter().map(String::as_str).chain(["README.md"]) {
        let text = page(name);
        for part in text.split("penstock_").skip(1) {
            let end =
                part.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(part.len());
            let setting = &part[..end];
            // `SET penstock_...` names none, `penstock_parallel_read_*` a family.
            let family = setting.is_empty() || setting.ends_with('_');
            let known = family && TABLE.iter().any(|row| row.name.starts_with(setting))
                || TABLE.iter().any(|row| row.name == setting)
                || GATEWAY.iter().any(|row| row.name == format!("penstock_{setting}"))
                || sql.contains(&format!("\"penstock_{setting}\""));
            assert!(known, "{name} names penstock_{setting}");
        }
    }
}
