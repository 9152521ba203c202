//! The header and the exported functions are one treaty: same names, same number of parameters,
//! same fields of the structs that cross.
#![allow(clippy::unwrap_used)] // a file of another shape fails the test

use std::collections::BTreeMap;
use std::path::Path;

/// Functions by name, with the number of their parameters.
type Functions = BTreeMap<String, usize>;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    kept + rest
}

fn parameters(list: &str) -> usize {
    let list = list.trim().trim_end_matches(',');
    if list.is_empty() || list == "void" { 0 } else { list.split(',').count() }
}

fn functions_of_header() -> Functions {
    let header = without_comments(&read("include/penstock.h"));
    header
        .split(';')
        .filter(|statement| !statement.contains("typedef"))
        .filter_map(|statement| {
            let (front, list) = statement.split_once('(')?;
            let name = front.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
            name.starts_with("ps_")
                .then(|| (name.to_string(), parameters(list.rsplit_once(')').unwrap().0)))
        })
        .collect()
}

fn sources() -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

fn functions_of_sources() -> Functions {
    let sources = sources();
    sources
        .match_indices("extern \"C\" fn ps_")
        .map(|(at, found)| {
            let text = &sources[at + found.len() - "ps_".len()..];
            let (name, rest) = text.split_once('(').unwrap();
            (name.to_string(), parameters(rest.split_once(')').unwrap().0))
        })
        .collect()
}

#[test]
fn header_and_sources_declare_the_same_functions() {
    let header = functions_of_header();
    assert!(header.len() > 40, "{header:?}");
    assert_eq!(header, functions_of_sources());
}

/// Field names of a struct in the header, in order.
fn header_fields(name: &str) -> Vec<String> {
    let header = without_comments(&read("include/penstock.h"));
    let (front, _) = header.split_once(&format!("}} {name};")).unwrap();
    let body = front.rsplit_once('{').unwrap().1;
    body.split(';')
        .flat_map(|field| field.split(','))
        .filter_map(|field| field.split_whitespace().last())
        .map(|field| field.trim_start_matches('*').to_string())
        .collect()
}

/// Field names of a struct in the sources, in order.
fn source_fields(name: &str) -> Vec<String> {
    let sources = sources();
    let (_, rest) = sources.split_once(&format!("pub struct {name} {{")).unwrap();
    let body = rest.split_once('}').unwrap().0;
    body.lines()
        .map(|line| line.trim().trim_start_matches("pub "))
        .filter(|line| !line.starts_with("//"))
        .filter_map(|line| line.split_once(':').map(|(field, _)| field.to_string()))
        .collect()
}

#[test]
fn structs_have_the_same_fields_in_the_same_order() {
    for (header, source) in [
        ("ps_str", "PsStr"),
        ("ps_pair", "PsPair"),
        ("ps_known", "PsKnown"),
        ("ps_told", "PsTold"),
        ("ps_range", "PsRange"),
        ("ps_filter", "PsFilter"),
        ("ps_entry", "PsEntry"),
        ("ps_wrap_system", "PsWrapSystem"),
        ("ps_setting_info", "PsSettingInfo"),
        ("ps_bytes", "PsBytes"),
        ("ps_sealing", "PsSealing"),
    ] {
        let mut fields = source_fields(source);
        if source == "PsSettingInfo" {
            // `type` is a word of Rust.
            fields.iter_mut().filter(|field| *field == "setting_type").for_each(|field| {
                *field = "type".to_string();
            });
        }
        assert_eq!(header_fields(header), fields, "{header}");
    }
}

#[test]
fn error_kinds_of_the_shim_are_those_of_the_engine() {
    let bridge = read("../src/include/bridge.hpp");
    for (kind, name, _) in penstock_base::Kind::ALL {
        let line = format!("{} = {}", name.to_uppercase(), *kind as i32);
        assert!(bridge.contains(&line), "bridge.hpp lacks `{line}`");
    }
}
