//! The reference page, printed from the tables in code; `docs/reference.md` is its output.

use crate::report::exit_code;
use crate::settings::{flag, variable_of};
use penstock_base::metrics::{DeviceMetric, GATEWAY, Metric};
use penstock_base::settings::theirs::{self, Meaning};
use penstock_base::settings::{SERVE_TABLE, SettingSpec, SettingType, TABLE};
use penstock_base::{ByteSize, Kind, Result, Settings};
use penstock_engine::store_options::{self, Family};
use penstock_engine::{Cause, Engine, SCHEMES};
use penstock_gateway::ABSENT;
use std::fmt::Write as _;

type Pairs = &'static [(&'static str, &'static str)];

/// One URL of each store, with options that keep the environment out of the page.
const STORES: &[(&str, &str, Pairs)] = &[
    ("Amazon S3", "s3://bucket/", &[("endpoint", "s3.us-east-1.amazonaws.com")]),
    ("other S3 services", "s3://bucket/", &[("endpoint", "storage.example:9000")]),
    ("Cloudflare R2", "r2://bucket/", &[("account_id", "account")]),
    ("Google Cloud Storage", "gs://bucket/", &[]),
    (
        "Google Cloud Storage with an HMAC key",
        "gs://bucket/",
        &[("key_id", "key"), ("secret", "secret")],
    ),
    ("Azure Blob", "az://container/", &[("account_name", "account")]),
    ("HTTP(S)", "https://host/", &[]),
    ("Hugging Face Hub", "hf://datasets/user/name/", &[("endpoint", "https://huggingface.co")]),
    ("local files", "file:///", &[]),
    ("memory", "mem://name/", &[]),
];

/// The whole page, in Markdown.
///
/// # Errors
/// `Exhausted` when the engine that is asked for its stores cannot start.
pub fn page() -> Result<String> {
    let mut page = String::from(
        "# Reference\n\n\
         Printed by `penstock reference` from the tables in the code; a test compares this page \
         with them.\n\n",
    );
    settings(&mut page);
    their_settings(&mut page);
    serve_settings(&mut page);
    metrics(&mut page);
    device_metrics(&mut page);
    causes(&mut page);
    gateway_metrics(&mut page);
    errors(&mut page);
    options(&mut page);
    stores(&mut page)?;
    absent(&mut page);
    Ok(page)
}

fn options(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## Store options\n\n\
         What a store is opened with: on the command line `--option NAME=VALUE`, in DuckDB the \
         keys of a secret (`CREATE SECRET (TYPE s3, KEY_ID '...')`), as far as its type has them. \
         A name that ends with a dot stands for all names that begin \
         so. URLs begin with {}.\n\n\
         | name | for | meaning |\n| --- | --- | --- |",
        SCHEMES.iter().map(|scheme| format!("`{scheme}://`")).collect::<Vec<_>>().join(", ")
    );
    for row in store_options::TABLE {
        let names: Vec<_> = row.families.iter().map(|family| family_name(*family)).collect();
        line(page, &[&code(row.name), &names.join(", "), row.doc]);
    }
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::S3 => "S3",
        Family::Gcs => "GCS",
        Family::Azure => "Azure",
        Family::Http => "HTTP",
        Family::Hub => "Hugging Face",
    }
}

fn stores(page: &mut String) -> Result<()> {
    page.push_str(
        "\n## Stores\n\n\
         What each store can do, as it says itself; the conformance suite checks every claim in \
         both directions. What a store cannot do is answered with `unsupported`.\n\n\
         | store | write | list | suffix range | conditional put | conditional delete | ETag in \
         lists | server-side copy | smallest part | parts | largest single put |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let engine = Engine::new(Settings::default())?;
    for (name, url, pairs) in STORES {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let at = engine.locate(url, &pairs)?;
        let (able, profile) = (at.mount().capabilities(), at.mount().profile());
        let yes = |able: bool| if able { "yes" } else { "no" };
        let limit = |bytes: u64| match bytes {
            u64::MAX => "no limit".to_string(),
            bytes => ByteSize(bytes).to_string(),
        };
        let parts = [limit(profile.part_size_min_bytes), profile.part_count_max.to_string()];
        let written = if able.write {
            [parts[0].clone(), parts[1].clone(), limit(profile.put_size_max_bytes)]
        } else {
            ["-".to_string(), "-".to_string(), "-".to_string()]
        };
        line(
            page,
            &[
                name,
                yes(able.write),
                yes(able.list),
                yes(able.suffix_range),
                yes(able.conditional_put),
                yes(able.conditional_delete),
                yes(able.list_etag),
                yes(able.copy),
                &written[0],
                &written[1],
                &written[2],
            ],
        );
    }
    Ok(())
}

fn absent(page: &mut String) {
    page.push_str(
        "\n## S3 operations that are not there\n\n\
         `penstock serve` answers each with `NotImplemented` and its name, whatever the back end: \
         501, or 400 where no sub-resource is asked for. What one back end lacks is in the \
         guides.\n\n\
         | operation | request | why |\n| --- | --- | --- |\n",
    );
    for row in ABSENT {
        line(page, &[&code(row.name), &code(&row.request()), row.why]);
    }
}

fn settings(page: &mut String) {
    page.push_str(
        "## Settings\n\n\
         One table for every door. In DuckDB a setting is `penstock_<name>` (`SET \
         penstock_part_size_bytes = '16MiB'`), on the command line `--<name>` with dashes, in the \
         environment `PENSTOCK_<NAME>`. A flag wins over a variable. An unknown name is an error \
         that suggests the nearest known one. In DuckDB `SET` holds from the next statement on, \
         but for what is read once. Memory, caches, the log and uploads at once exist once for a \
         database: there the statement that began last decides.\n\n\
         | name | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    TABLE.iter().for_each(|row| setting(page, row));
    if let Some(row) = TABLE.iter().find(|row| row.name == "part_size_bytes") {
        let (flag, variable) = (flag(row.name), variable_of(row.name));
        let _ = writeln!(page, "\nFor example `{}` is `{flag}` and `{variable}`.", row.name);
    }
}

fn their_settings(page: &mut String) {
    page.push_str(
        "\n## Settings of httpfs, azure and aws\n\n\
         DuckDB takes them where those extensions are not loaded, with their types. A value that \
         is not followed leaves one warning in `duckdb_logs` for a database, with what Penstock \
         does instead. `CALL penstock_check()` lists those that somebody has set.\n\n\
         | name | what it does | in Penstock |\n| --- | --- | --- |\n",
    );
    for row in theirs::TABLE {
        let here = match row.meaning {
            Meaning::Fixed(like, instead) => match like.first() {
                Some(&"") => format!("always empty: {instead}"),
                Some(value) => format!("always {}: {instead}", code(value)),
                None => format!("not followed: {instead}"),
            },
            _ => "followed".to_string(),
        };
        line(page, &[&code(row.name), row.doc, &here]);
    }
}

fn serve_settings(page: &mut String) {
    page.push_str(
        "\n## Settings of the server\n\n\
         Only `penstock serve` has these: flags of its own, `PENSTOCK_<NAME>` in the environment, \
         and keys at the top of its config file, where those above may stand too.\n\n\
         | name | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    SERVE_TABLE.iter().for_each(|row| setting(page, row));
}

fn setting(page: &mut String, row: &SettingSpec) {
    let default = if row.default.is_empty() { "empty" } else { row.default };
    let meaning = match row.read_once {
        true => format!("{} Read once: `SET` to another value is an error.", row.doc),
        false => row.doc.to_string(),
    };
    line(page, &[&code(row.name), type_name(row), default, &range(row), &meaning]);
}

fn gateway_metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics of the server\n\n\
         `GET /metrics` on `admin_listen` prints them for Prometheus.\n\n\
         | name | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in GATEWAY {
        let labels = metric.labels.join(", ");
        line(page, &[&code(metric.name), metric.shape.name(), &labels, metric.doc]);
    }
}

fn metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics\n\n\
         `FROM penstock_stats()` lists them. Counters count since the extension was loaded; names \
         that end in `_now` are gauges. `CALL penstock_reset_stats()` sets the counters to \
         0; those of devices are the process's and stay. \
         `FROM penstock_stats(by_statement := true)` has what each of the last 100 statements \
         counted.\n\n\
         | name | area | unit | meaning |\n| --- | --- | --- | --- |\n",
    );
    for (metric, name, unit, doc) in Metric::ALL {
        line(page, &[&code(name), metric.area(), unit, doc]);
    }
}

fn causes(page: &mut String) {
    page.push_str(
        "\n## Causes of requests\n\n\
         `FROM penstock_requests()` tells what each request was sent for.\n\n\
         | cause | meaning |\n| --- | --- |\n",
    );
    for (_, name, doc) in Cause::ALL {
        line(page, &[&code(name), doc]);
    }
}

fn device_metrics(page: &mut String) {
    page.push_str(
        "\n## Metrics of devices\n\n\
         `FROM penstock_stats()` lists them too: first over all queues of the process, then, with \
         `device` and `queue`, for each queue; what closed queues counted is their device's \
         queue `closed`.\n\n\
         | name | unit | meaning |\n| --- | --- | --- |\n",
    );
    for (_, name, unit, doc) in DeviceMetric::ALL {
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
        SettingType::Url => "URL",
        SettingType::Validation => "policy",
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
            committed == page().unwrap(),
            "docs/reference.md is stale: run `build/penstock reference > docs/reference.md`"
        );
    }

    #[test]
    fn every_row_of_every_table_is_on_the_page() {
        let page = page().unwrap();
        for row in TABLE.iter().chain(SERVE_TABLE) {
            assert!(page.contains(&format!("| `{}` |", row.name)), "{}", row.name);
        }
        for name in GATEWAY.iter().map(|metric| metric.name) {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _, _) in Metric::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _, _) in DeviceMetric::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for (_, name, _) in Kind::ALL {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        for row in ABSENT {
            assert!(page.contains(&format!("| `{}` | `{}` |", row.name, row.request())));
        }
    }
}
