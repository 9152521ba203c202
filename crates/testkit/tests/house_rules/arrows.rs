//! The arrows between crates: the table of ARCHITECTURE.md against the manifests.

use crate::rules::Complaint;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a crate may depend on, and in tests besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    pub always: BTreeSet<String>,
    pub in_tests: BTreeSet<String>,
}

/// Reads the rows `| penstock-x | penstock-a, penstock-b | penstock-c |`.
pub fn table(architecture: &str) -> BTreeMap<String, Allowed> {
    let mut rows = BTreeMap::new();
    for line in architecture.lines().filter(|line| line.starts_with("| penstock-")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let names = |cell: Option<&&str>| -> BTreeSet<String> {
            let cell = cell.copied().unwrap_or("");
            cell.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_string).collect()
        };
        let allowed = Allowed { always: names(cells.get(1)), in_tests: names(cells.get(2)) };
        rows.insert(cells[0].to_string(), allowed);
    }
    rows
}

/// Judges the packages that `cargo metadata` tells of.
pub fn judge(table: &BTreeMap<String, Allowed>, metadata: &Value) -> Vec<Complaint> {
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for package in &packages {
        let name = text(&package["name"]);
        seen.insert(name.clone());
        let Some(allowed) = table.get(&name) else {
            complaints.push(format!("{name} has no row in the table of ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = text(&dependency["name"]);
            let in_tests = dependency["kind"] == "dev";
            let fine = allowed.always.contains(&on) || (in_tests && allowed.in_tests.contains(&on));
            if on.starts_with("penstock-") && !fine {
                let when = if in_tests { "in tests " } else { "" };
                complaints.push(format!("{name} depends {when}on {on}, which has no arrow"));
            }
        }
    }
    for name in table.keys().filter(|name| !seen.contains(*name)) {
        complaints.push(format!("{name} has a row in ARCHITECTURE.md but no manifest"));
    }
    complaints
}
