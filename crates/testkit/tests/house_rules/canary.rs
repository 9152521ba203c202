//! Bad samples: each rule must complain of its own, and of nothing in the good one.

use crate::rules::{self, Complaint};
use crate::source::{SourceFile, functions, mask};
use crate::{arrows, report};
use serde_json::json;

type Rule = fn(&SourceFile) -> Vec<Complaint>;

const RULES: &[(&str, Rule)] = &[
    ("file_length", rules::file_length),
    ("function_length", rules::function_length),
    ("line_width", rules::line_width),
    ("setting_names", rules::setting_names),
    ("banned_calls", rules::banned_calls),
    ("shown_secrets", rules::shown_secrets),
    ("unfinished", rules::unfinished),
    ("one_processor", rules::one_processor),
    ("unsafe_code", rules::unsafe_code),
    ("module_header", rules::module_header),
    ("foreign_places", rules::foreign_places),
];

const GOOD: &str = "//! A module that is in order.\n\n/// Says `.unwrap()` in a comment only.\n\
    pub fn good() -> &'static str {\n    \"unsafe { .unwrap() }\"\n}\n\n#[cfg(test)]\n\
    mod tests {\n    #[test]\n    fn fine() {\n        Some(1).unwrap();\n    }\n}\n";

fn bad_samples() -> Vec<(&'static str, SourceFile)> {
    let rust = |body: &str| SourceFile::new("crates/x/src/bad.rs", &format!("{GOOD}{body}"));
    let long_function = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(70));
    let mark = ["to", "do!()"].concat();
    let skip = ["@pytest.mark.sk", "ip\n"].concat();
    let place = ["// see /wo", "rk/x\n"].concat();
    vec![
        ("file_length", rust(&"const A: u8 = 1;\n".repeat(500))),
        ("file_length", SourceFile::new("python/p/bad.py", &"a = 1\n".repeat(501))),
        ("function_length", rust(&long_function)),
        (
            "function_length",
            SourceFile::new("p/bad.py", &format!("def f():\n{}x = 1\n", "    y()\n".repeat(70))),
        ),
        (
            "function_length",
            SourceFile::new(
                "duckdb/src/bad.cpp",
                &format!("void F::Bad(int a) {{\n{}}}\n", "\ty();\n".repeat(70)),
            ),
        ),
        ("line_width", rust(&format!("// {}\n", "x".repeat(100)))),
        ("line_width", SourceFile::new("duckdb/src/bad.cpp", &"x".repeat(121))),
        ("banned_calls", rust("fn f() { Some(1).unwrap(); }\n")),
        ("banned_calls", rust("fn f() { std::thread::sleep(d); }\n")),
        ("banned_calls", rust("fn f() { SystemTime::now(); }\n")),
        ("banned_calls", SourceFile::new("crates/testkit/src/model.rs", GOOD)),
        ("shown_secrets", rust("#[derive(Debug)]\nstruct A {\n    password: String,\n}\n")),
        (
            "shown_secrets",
            rust(
                "#[derive(Clone, Debug)]\npub enum A {\n    B { c: u8, my_secret: Option<String> },\n}\n",
            ),
        ),
        (
            "setting_names",
            SourceFile::new(
                "crates/engine/src/bad.rs",
                "//! In order: cache_dir.\nconst A: [&str; 2] = [\"cache_dir\", \"raise cache_dir\"];\n",
            ),
        ),
        ("unfinished", rust(&format!("fn f() {{ {mark} }}\n"))),
        ("unfinished", SourceFile::new("bench/tests/test_bad.py", &skip)),
        ("one_processor", rust("use std::arch::x86_64::_mm_crc32_u64;\n")),
        ("one_processor", rust("#[cfg(target_arch = \"x86_64\")]\nfn f() {}\n")),
        ("one_processor", SourceFile::new("duckdb/src/bad.cpp", "#include <immintrin.h>\n")),
        ("one_processor", SourceFile::new("scripts/bad.sh", "CXX_FLAGS=(-march=native)\n")),
        ("one_processor", SourceFile::new("Cargo.toml", "[dependencies]\nx86 = \"1\"\n")),
        ("unsafe_code", rust("fn f() { unsafe { g() } }\n")),
        (
            "unsafe_code",
            SourceFile::new(
                "duckdb/ffi/src/bad.rs",
                "//! In order.\nfn f() {\n    unsafe { g() }\n}\n",
            ),
        ),
        ("module_header", SourceFile::new("crates/x/src/bad.rs", "use std::fmt;\n")),
        ("foreign_places", rust(&place)),
    ]
}

#[test]
fn each_rule_fails_on_its_bad_samples() {
    for (name, rule) in RULES {
        let samples: Vec<_> = bad_samples().into_iter().filter(|(of, _)| of == name).collect();
        assert!(!samples.is_empty(), "no bad sample for {name}");
        for (_, sample) in samples {
            assert!(!rule(&sample).is_empty(), "{name} let {} pass:\n{}", sample.path, sample.text);
        }
    }
}

#[test]
fn no_rule_fails_on_the_good_sample() {
    let good = SourceFile::new("crates/x/src/good.rs", GOOD);
    report(RULES.iter().flat_map(|(_, rule)| rule(&good)).collect());
    let test = SourceFile::new("crates/x/tests/t.rs", "//! A test file.\nfn f() { g().unwrap() }");
    report(RULES.iter().flat_map(|(_, rule)| rule(&test)).collect());
    let both = "//! Fast where it can be.\n#[cfg(target_arch = \"x86_64\")]\nuse std::arch::x86_64;\n\
        #[cfg(not(target_arch = \"x86_64\"))]\nfn slow() {}\n";
    report(rules::one_processor(&SourceFile::new("crates/x/src/crc.rs", both)));
}

#[test]
fn links_and_reference_rows_can_be_missing() {
    let page = SourceFile::new("docs/a.md", "[x](../b.md#part) [y](c.md) [z](https://x/y)");
    let exists = |path: &str| path == "b.md";
    assert_eq!(rules::markdown_links(&page, &exists).len(), 1);
    let complaints = rules::reference("| `io_threads` | number | 2 | another sentence |");
    assert!(complaints.iter().any(|complaint| complaint.contains("`io_threads`")));
    assert!(complaints.iter().any(|complaint| complaint.contains("`not_found`")));
}

#[test]
fn a_file_of_tests_can_be_left_out() {
    let manifest = "[[test]]\nname = \"alone\"\npath = \"tests/alone.rs\"\n";
    let left_out = rules::tests_left_out(manifest, "mod one;\n", &["alone.rs", "one.rs", "on.rs"]);
    assert_eq!(left_out, ["tests/on.rs is in no program: name it in tests/main.rs"]);
}

#[test]
fn a_wrong_arrow_is_told() {
    let architecture = "| penstock-a | penstock-b | penstock-c |\n| penstock-gone | | |\n";
    let dependency = |name: &str, kind: Option<&str>| json!({ "name": name, "kind": kind });
    let metadata = json!({ "packages": [
        { "name": "penstock-a", "dependencies": [
            dependency("penstock-b", None),
            dependency("penstock-c", Some("dev")),
            dependency("penstock-c", None),
            dependency("penstock-d", Some("dev")),
            dependency("bytes", None),
        ] },
        { "name": "penstock-new", "dependencies": [] },
    ] });
    let complaints = arrows::judge(&arrows::table(architecture), &metadata);
    assert_eq!(complaints.len(), 4, "{complaints:?}");
}

#[test]
fn masking_leaves_code_only() {
    let masked =
        mask("a /* b /* c */ d */ e \"f\\\" g\" h r#\"i\"j\"# k 'l' m '\\'' n &'o p // q\nr");
    let words: Vec<&str> = masked.split_whitespace().collect();
    assert_eq!(words, ["a", "e", "h", "k", "m", "n", "&'o", "p", "r"]);
}

#[test]
fn functions_are_measured() {
    let text = "impl A {\n    pub(crate) async fn b<T>(\n        c: T,\n    ) -> D {\n        \
        e\n    }\n\n    \
        fn one(&self) -> u8 { 1 }\n}\n";
    let found = functions(&SourceFile::new("crates/x/src/a.rs", text));
    assert_eq!(found, [("b".to_string(), 2, 5), ("one".to_string(), 8, 1)]);
}
