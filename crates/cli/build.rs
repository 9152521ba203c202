//! Lays the release binary out: the functions that a running gateway calls lie side by side.
//!
//! They are a fifth of the program. The kernel maps 64 KiB or more around each page that is
//! touched, so scattered among the others they would keep most of the program in memory.
//! `called.txt` names them without what differs from build to build; `penstock_bench.called`
//! prints it. What matches nothing is passed over; a test with clients (`test_layout.py`) says
//! when list and binary no longer fit.

use std::env::var;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, process};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=called.txt");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    // Linkers of ELF understand such a script; tests need no layout.
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_OS", "linux") {
        return;
    }
    let path = Path::new(&var("OUT_DIR").unwrap_or_default()).join("called.ld");
    let list = fs::read_to_string("called.txt");
    if let Err(error) = list.and_then(|list| fs::write(&path, script(&list))) {
        println!("cargo::error=the layout of the binary cannot be written: {error}");
        process::exit(1);
    }
    println!("cargo::rustc-link-arg-bin=penstock=-Wl,-T,{}", path.display());
}

/// What comes first of the code; the linker adds all else. Before what is listed comes what the
/// profile of the release build has as hot, and LLVM's linker puts callers beside what they call.
/// An entry of the list is the name of a function and, where only those in the objects of one crate
/// are meant, of that.
fn script(list: &str) -> String {
    let mut script = String::from("SECTIONS {\n  .text : {\n    *(.text.hot .text.hot.*)\n");
    for entry in list.lines() {
        let (name, crate_name) = entry.split_once(' ').unwrap_or((entry, ""));
        let objects = match crate_name {
            "" => "*".to_string(),
            _ => format!("*.{crate_name}.*-cgu.*"),
        };
        // A hash follows in the older way of mangling names, and what the optimizer adds in both.
        let end = if name.starts_with("_ZN") { "17h*" } else { "*" };
        let cold = format!(".text.unlikely.{name}{end}");
        writeln!(script, "    {objects}(.text.{name}{end} {cold})").ok();
    }
    script + "  }\n} INSERT BEFORE .init;\n"
}
