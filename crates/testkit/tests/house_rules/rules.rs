//! The rules themselves: pure functions from files to complaints, so that a canary can feed them
//! bad samples.

use crate::source::{SourceFile, functions, mask};
use penstock_base::settings::TABLE;

/// One complaint: where, and what is wrong.
pub type Complaint = String;

/// Most lines of a file, tests not counted.
const FILE_LINES_MAX: usize = 500;
/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Files above the limit with the length they had when they were listed. It may only shrink.
const LONG_FILES: &[(&str, usize)] = &[];
/// Functions above the limit (`path::name`) with their length then. It may only shrink.
const LONG_FUNCTIONS: &[(&str, usize)] = &[];
/// Files with lines above the limit, and how many they had then. It may only shrink.
const WIDE_LINES: &[(&str, usize)] = &[];

/// Compares a length with its limit and its place on a ratchet list.
fn ratchet(what: &str, length: usize, most: usize, list: &[(&str, usize)]) -> Option<Complaint> {
    match list.iter().find(|(listed, _)| *listed == what) {
        None if length > most => Some(format!("{what} has {length} lines, at most {most}")),
        Some((_, then)) if length > *then => {
            Some(format!("{what} grew from {then} to {length} lines; it may only shrink"))
        }
        Some(_) if length <= most => {
            Some(format!("{what} has {length} lines now: take it off the list"))
        }
        _ => None,
    }
}

pub fn file_length(file: &SourceFile) -> Vec<Complaint> {
    if !file.has_extension(&["rs", "py", "cpp", "hpp"]) {
        return Vec::new();
    }
    let length = file.product_lines().len();
    ratchet(&file.path, length, FILE_LINES_MAX, LONG_FILES).into_iter().collect()
}

pub fn function_length(file: &SourceFile) -> Vec<Complaint> {
    let judge = |(name, line, length): (String, usize, usize)| {
        let what = format!("{}::{name}", file.path);
        ratchet(&what, length, FUNCTION_LINES_MAX, LONG_FUNCTIONS)
            .map(|complaint| format!("{complaint} (line {line})"))
    };
    functions(file).into_iter().filter_map(judge).collect()
}

/// A text alone on its line cannot be broken by a formatter, and tables of them read better whole;
/// in tests, what goes over the wire reads better whole too.
fn is_text(file: &SourceFile, line: &str) -> bool {
    let line = line.trim_start();
    let wire = file.is_test() && line.matches('"').count() >= 2;
    wire || line.starts_with('"') || line.contains("http://") || line.contains("https://")
}

pub fn line_width(file: &SourceFile) -> Vec<Complaint> {
    let most = match file.path.rsplit('.').next() {
        Some("rs" | "py") => 100,
        Some("cpp" | "hpp") => 120,
        _ => return Vec::new(),
    };
    let width = |line: &str| line.chars().map(|it| if it == '\t' { 4 } else { 1 }).sum::<usize>();
    let wide = file
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| width(line) > most && !is_text(file, line));
    let wide: Vec<Complaint> = wide
        .map(|(index, line)| {
            format!("{}:{}: {} columns, at most {most}", file.path, index + 1, width(line))
        })
        .collect();
    match WIDE_LINES.iter().find(|(path, _)| *path == file.path) {
        Some((_, then)) if wide.len() <= *then => Vec::new(),
        _ => wide,
    }
}

/// Calls that the product may not make, and the files that may.
const CALLS: &[(&str, &str, &[&str])] = &[
    (".unwrap()", "say with expect which invariant holds, or return an error", &[]),
    ("thread::sleep", "wait for an event or a condition", &[]),
    (
        "SystemTime::now",
        "time comes in as an argument; these files are its doors",
        &[
            "crates/cli/src/doctor.rs",
            "crates/engine/src/statements.rs",
            "crates/gateway/src/exchange.rs",
            "crates/gateway/src/lib.rs",
            "crates/gateway/src/notices.rs",
            "crates/gateway/src/uploads.rs",
            "crates/store/src/answer/failure.rs",
            "crates/store/src/azure/batch.rs",
            "crates/store/src/http/trace.rs",
            "crates/store/src/local/sweep.rs",
            "crates/store/src/local/write.rs",
            "crates/store/src/memory.rs",
            "crates/store/src/s3/replies.rs",
            "crates/testkit/src/conform/store/read.rs",
            "crates/testkit/src/fake/clock.rs",
            "crates/testkit/src/model.rs",
        ],
    ),
];

pub fn banned_calls(file: &SourceFile) -> Vec<Complaint> {
    if !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let code = file.product_code();
    let mut complaints = Vec::new();
    for (call, cure, doors) in CALLS {
        let used: Vec<usize> = code
            .iter()
            .filter(|(_, line)| line.contains(call))
            .map(|(number, _)| *number)
            .collect();
        if doors.contains(&file.path.as_str()) {
            if used.is_empty() {
                complaints.push(format!("{} no longer calls {call}: take it off", file.path));
            }
            continue;
        }
        for number in used {
            complaints.push(format!("{}:{number}: {call}: {cure}", file.path));
        }
    }
    complaints
}

/// Names of what is secret: those that end so.
const SECRETS: &[&str] = &[
    "secret",
    "secret_key",
    "password",
    "account_key",
    "access_token",
    "bearer_token",
    "session_token",
    "sas",
    "sas_token",
    "connection_string",
    "private_key",
    "authorization",
];

/// Fields that are secret by their names, and plain text by their types, of what derives `Debug`.
/// The secrets of fakes are made up.
pub fn shown_secrets(file: &SourceFile) -> Vec<Complaint> {
    if !file.has_extension(&["rs"]) || file.path.starts_with("crates/testkit/") {
        return Vec::new();
    }
    let (mut complaints, mut is_shown, mut is_inside) = (Vec::new(), false, false);
    for (number, line) in file.product_code() {
        let words = line.trim();
        let begins = ["struct ", "enum "].iter().any(|it| {
            words.strip_prefix("pub ").unwrap_or(words).starts_with(it)
                || words.strip_prefix("pub(crate) ").is_some_and(|rest| rest.starts_with(it))
                || words.strip_prefix("pub(super) ").is_some_and(|rest| rest.starts_with(it))
        });
        match () {
            () if words.starts_with("#[derive(") => is_shown = words.contains("Debug"),
            () if begins => is_inside = is_shown && line.ends_with('{'),
            () if line == "}" => (is_inside, is_shown) = (false, false),
            () if is_inside => {
                let fields = words.split([',', '{', '(']).filter_map(|it| it.split_once(':'));
                for (name, kind) in fields {
                    let name = name.rsplit(' ').next().unwrap_or_default();
                    let is_text = ["String", "str", "Vec<u8>", "Bytes"].map(|it| kind.contains(it));
                    if is_text.contains(&true) && SECRETS.iter().any(|end| name.ends_with(end)) {
                        let cure = "make it a Secret, or write its Debug by hand";
                        complaints.push(format!("{}:{number}: `{name}`: {cure}", file.path));
                    }
                }
            }
            () => {}
        }
    }
    complaints
}

/// Marks of work that is not done, split so that this file does not carry them.
fn unfinished_marks() -> Vec<String> {
    let join = |parts: [&str; 2]| parts.concat();
    vec![
        join(["todo", "!("]),
        join(["unimplemented", "!("]),
        join(["#[ign", "ore"]),
        join(["pytest.mark.sk", "ip"]),
        join(["pytest.sk", "ip("]),
        join(["pytest.mark.xf", "ail"]),
        join(["dbg", "!("]),
    ]
}

pub fn unfinished(file: &SourceFile) -> Vec<Complaint> {
    let code = match file.path.rsplit('.').next() {
        Some("rs") => mask(&file.text),
        Some("py") => file.text.clone(),
        _ => return Vec::new(),
    };
    let marks = unfinished_marks();
    let mut complaints = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for mark in marks.iter().filter(|mark| line.contains(mark.as_str())) {
            complaints.push(format!("{}:{}: {mark}", file.path, index + 1));
        }
    }
    complaints
}

/// What only one processor has, and the way of saying that it stands behind a condition, with
/// another path beside it; without such a way it may not stand at all.
type Conditions = &'static [&'static str];
const OF_ONE_PROCESSOR: &[(&str, Conditions)] = &[
    ("std::arch::", &["cfg(target_arch =", "cfg(not(target_arch ="]),
    ("core::arch::", &["cfg(target_arch =", "cfg(not(target_arch ="]),
    ("target_arch", &["cfg(target_arch =", "cfg(not(target_arch ="]),
    ("asm!(", &["cfg(target_arch =", "cfg(not(target_arch ="]),
    ("intrin.h", &["#if", "__x86_64__", "#else"]),
    ("arm_neon.h", &["#if", "__aarch64__", "#else"]),
    ("__asm__", &["#if", "__x86_64__", "#else"]),
    ("-march=", &[]),
    ("-mtune=", &[]),
    ("-msse", &[]),
    ("-mavx", &[]),
    ("target-cpu", &[]),
    ("target-feature", &[]),
    ("raw-cpuid", &[]),
    ("\nx86", &[]),
];

/// Sources and flags run on any processor of 64 bits: x86-64 is only the one that is tested.
pub fn one_processor(file: &SourceFile) -> Vec<Complaint> {
    let is_script = file.path.starts_with("scripts/") || file.path == "Makefile";
    let kinds = ["rs", "cpp", "hpp", "h", "c", "toml", "cmake"];
    if !file.has_extension(&kinds) && !is_script && !file.path.ends_with("CMakeLists.txt") {
        return Vec::new();
    }
    let text = match file.has_extension(&["rs"]) {
        true => mask(&file.text),
        false => file.text.clone(),
    };
    let stands_alone = |(name, conditions): &&(&str, Conditions)| {
        let is_kept = !conditions.is_empty() && conditions.iter().all(|it| text.contains(it));
        text.contains(name) && !is_kept
    };
    let found = OF_ONE_PROCESSOR.iter().filter(stands_alone);
    found
        .map(|(name, _)| format!("{}: {} is of one processor only", file.path, name.trim()))
        .collect()
}

/// Where `unsafe` lives: the C treaty, and the calls in which the kernel keeps our addresses.
const UNSAFE_PLACES: &[&str] = &["duckdb/ffi/", "crates/device/src/kernel/"];

/// `unsafe` lives in few places, and each block there says why it is sound.
pub fn unsafe_code(file: &SourceFile) -> Vec<Complaint> {
    /// Lines above a block in which its reason may stand.
    const REASON_LINES: usize = 8;
    if !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let original: Vec<&str> = file.text.lines().collect();
    let mut complaints = Vec::new();
    for (index, line) in mask(&file.text).lines().enumerate() {
        let words: Vec<&str> =
            line.split(|it: char| !it.is_alphanumeric() && it != '_' && it != '#').collect();
        let attribute = line.trim_start().starts_with("#[") || line.trim_start().starts_with("#![");
        if !words.contains(&"unsafe") || attribute {
            continue;
        }
        if !UNSAFE_PLACES.iter().any(|place| file.path.starts_with(place)) {
            let places = UNSAFE_PLACES.join(", ");
            complaints.push(format!("{}:{}: unsafe outside {places}", file.path, index + 1));
            continue;
        }
        let first = index.saturating_sub(REASON_LINES);
        let reason = original[first..=index].iter().any(|line| line.contains("SAFETY:"));
        if line.contains("unsafe {") && !reason {
            complaints.push(format!("{}:{}: no SAFETY: above", file.path, index + 1));
        }
    }
    complaints
}

/// A Rust file says first what it decides and what not.
/// Names of settings that are names of other things too: store options, DuckDB's own settings.
const SHARED_NAMES: &[&str] = &["http_proxy"];

/// Texts of the rooms below the doors name a setting by `door::setting`: each door has its own name
/// for it. A text that is nothing but the name is a key.
pub fn setting_names(file: &SourceFile) -> Vec<Complaint> {
    let rooms = ["crates/engine/src/", "crates/store/src/", "crates/device/src/"];
    if !file.has_extension(&["rs"]) || !rooms.iter().any(|room| file.path.starts_with(room)) {
        return Vec::new();
    }
    let names = || TABLE.iter().map(|row| row.name).filter(|name| !SHARED_NAMES.contains(name));
    let mut complaints = Vec::new();
    for ((number, line), (_, code)) in file.product_lines().iter().zip(file.product_code()) {
        for name in names().filter(|name| name.contains('_')) {
            let in_text = line.match_indices(name).any(|(at, _)| {
                let (before, after) = (&line[..at], &line[at + name.len()..]);
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
                let is_key = before.ends_with('"') && after.starts_with('"');
                let is_code = code.chars().nth(before.chars().count()) != Some(' ');
                is_whole && !is_key && !is_code && !before.contains("//")
            });
            if in_text {
                complaints.push(format!("{}:{number} names {name} by itself", file.path));
            }
        }
    }
    complaints
}

pub fn module_header(file: &SourceFile) -> Vec<Complaint> {
    if !file.has_extension(&["rs"]) || file.is_test() {
        return Vec::new();
    }
    let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    match first {
        Some(line) if line.starts_with("//!") && line.len() > 10 => Vec::new(),
        _ => vec![format!("{}: the file does not begin with a //! sentence", file.path)],
    }
}

/// Names of places that mean nothing to a reader, split so that this file does not carry them.
fn foreign_names() -> Vec<String> {
    let join = |parts: [&str; 2]| parts.concat();
    vec![
        join(["/work", "/"]),
        join(["/tmp/br", "ief"]),
        join(["../sha", "red"]),
        join(["index.cra", "tes.io"]),
        join(["static.cra", "tes.io"]),
        join(["py", "pi.org"]),
        join(["pythonhos", "ted.org"]),
        join(["registry.np", "mjs.org"]),
        join(["proxy.gol", "ang.org"]),
        join(["repo1.ma", "ven.org"]),
    ]
}

pub fn foreign_places(file: &SourceFile) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for name in foreign_names().iter().filter(|name| line.contains(name.as_str())) {
            complaints.push(format!("{}:{}: names {name}", file.path, index + 1));
        }
    }
    complaints
}

/// Relative links of Markdown lead to files that are there.
pub fn markdown_links(file: &SourceFile, exists: &dyn Fn(&str) -> bool) -> Vec<Complaint> {
    if !file.has_extension(&["md"]) {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut complaints = Vec::new();
    for piece in file.text.split("](").skip(1) {
        let target = piece.split(')').next().unwrap_or("");
        let target = target.split(['#', ' ']).next().unwrap_or("");
        let outside = target.contains("://") || target.starts_with("mailto:") || target.is_empty();
        if !outside && !exists(&joined(folder, target)) {
            complaints.push(format!("{}: the link {target} leads nowhere", file.path));
        }
    }
    complaints
}

/// A relative path from a folder, without `.` and `..`.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a reference page holds every row of the tables in `penstock_base`, as printed.
pub fn reference(page: &str) -> Vec<Complaint> {
    let has_row = |name: &str, doc: &str| {
        page.lines().any(|line| line.starts_with(&format!("| `{name}` |")) && line.contains(doc))
    };
    let serve = penstock_base::settings::SERVE_TABLE;
    let settings = penstock_base::settings::TABLE.iter().chain(serve);
    let settings = settings.map(|row| (row.name, row.doc));
    let gateway = penstock_base::metrics::GATEWAY.iter().map(|row| (row.name, row.doc));
    let metrics = penstock_base::Metric::ALL.iter().map(|row| (row.1, row.3));
    let devices = penstock_base::DeviceMetric::ALL.iter().map(|row| (row.1, row.3));
    let kinds = penstock_base::Kind::ALL.iter().map(|row| (row.1, row.2));
    settings
        .chain(metrics)
        .chain(devices)
        .chain(gateway)
        .chain(kinds)
        .filter(|(name, doc)| !has_row(name, doc))
        .map(|(name, _)| format!("docs/reference.md: the row of `{name}` is missing or altered"))
        .collect()
}

/// Files of a crate's `tests/` that no program compiles.
///
/// Where `autotests` is off, Cargo passes over a file that neither `tests/main.rs` nor a `path` of
/// the manifest names.
pub fn tests_left_out(manifest: &str, main: &str, files: &[&str]) -> Vec<Complaint> {
    let is_run = |file: &str| {
        let stem = file.trim_end_matches(".rs");
        main.lines().any(|line| line == format!("mod {stem};"))
            || manifest.contains(&format!("path = \"tests/{file}\""))
    };
    let left_out = files.iter().filter(|file| !is_run(file));
    left_out
        .map(|file| format!("tests/{file} is in no program: name it in tests/main.rs"))
        .collect()
}
