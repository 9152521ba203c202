//! The house rules that a machine can check, over every tracked file, and the proof that each of
//! them can fail.

#[path = "house_rules/arrows.rs"]
mod arrows;
#[path = "house_rules/canary.rs"]
mod canary;
#[path = "house_rules/rules.rs"]
mod rules;
#[path = "house_rules/source.rs"]
mod source;

use rules::Complaint;
use source::SourceFile;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_path_buf()
}

/// Paths of all files under version control; of all files, where there is none (a tarball).
fn tracked() -> Vec<String> {
    let root = root();
    let listed = Command::new("git").arg("-C").arg(&root).args(["ls-files", "-z"]).output();
    if let Ok(listed) = listed
        && listed.status.success()
    {
        let text = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        return text.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect();
    }
    let mut paths = Vec::new();
    walk(&root, &root, &mut paths);
    paths
}

fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) {
    const MADE: &[&str] = &["target", "build", ".git", "__pycache__", "node_modules", "dist"];
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if path.is_dir() && !MADE.contains(&name.as_str()) && !name.ends_with(".egg-info") {
            walk(root, &path, paths);
        } else if path.is_file() {
            let relative = path.strip_prefix(root).expect("the walk began at the root");
            paths.push(relative.to_string_lossy().into_owned());
        }
    }
}

/// Every tracked file that is text; a file that is deleted but not committed yet counts as gone.
fn files() -> Vec<SourceFile> {
    let root = root();
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path)).ok()?;
        Some(SourceFile { path, text })
    };
    tracked().into_iter().filter_map(read).collect()
}

fn check(rule: impl Fn(&SourceFile) -> Vec<Complaint>) {
    let files = files();
    assert!(files.len() > 50, "only {} files were found", files.len());
    report(files.iter().flat_map(rule).collect());
}

fn report(complaints: Vec<Complaint>) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn files_stay_short() {
    check(rules::file_length);
}

#[test]
fn functions_stay_short() {
    check(rules::function_length);
}

#[test]
fn lines_stay_narrow() {
    check(rules::line_width);
}

#[test]
fn banned_calls_stay_in_their_files() {
    check(rules::banned_calls);
}

#[test]
fn no_debug_shows_a_field_that_is_secret_by_its_name() {
    check(rules::shown_secrets);
}

#[test]
fn nothing_is_left_unfinished_or_skipped() {
    check(rules::unfinished);
}

#[test]
fn what_one_processor_has_stands_beside_another_path() {
    check(rules::one_processor);
}

#[test]
fn unsafe_stays_in_the_treaty_with_reasons() {
    check(rules::unsafe_code);
}

#[test]
fn every_module_says_what_it_decides() {
    check(rules::module_header);
}

#[test]
fn texts_name_settings_in_the_words_of_the_door() {
    check(rules::setting_names);
}

#[test]
fn no_file_names_a_registry_or_a_workplace() {
    check(|file| match file.path.as_str() {
        // Written by cargo.
        "Cargo.lock" => Vec::new(),
        _ => rules::foreign_places(file),
    });
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    check(|file| rules::markdown_links(file, &|path| root.join(path).exists()));
}

#[test]
fn every_file_of_tests_is_compiled() {
    let files = files();
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| &file.text);
    let mains = files.iter().filter_map(|file| file.path.strip_suffix("/tests/main.rs"));
    let mut complaints = Vec::new();
    let mut merged = 0;
    for package in mains {
        let folder = format!("{package}/tests/");
        let names = files.iter().filter_map(|file| file.path.strip_prefix(&folder));
        let names: Vec<&str> =
            names.filter(|name| !name.contains('/') && *name != "main.rs").collect();
        let manifest = text_of(&format!("{package}/Cargo.toml")).expect("a package has a manifest");
        let main = text_of(&format!("{folder}main.rs")).expect("it was found above");
        complaints.extend(rules::tests_left_out(manifest, main, &names));
        merged += 1;
    }
    assert!(merged > 1, "programs of many files were found: {merged}");
    report(complaints);
}

#[test]
fn reference_page_is_complete() {
    let page = std::fs::read_to_string(root().join("docs/reference.md"));
    report(rules::reference(&page.expect("docs/reference.md is tracked")));
}

#[test]
fn crates_follow_the_arrows() {
    let root = root();
    let architecture =
        std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is tracked");
    let metadata = Command::new(env!("CARGO"))
        .current_dir(&root)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .expect("cargo is the one that runs this test");
    let metadata = serde_json::from_slice(&metadata.stdout).expect("cargo metadata prints JSON");
    report(arrows::judge(&arrows::table(&architecture), &metadata));
}
