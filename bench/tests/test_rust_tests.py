"""How the tests in Rust are divided into processes."""

import json
import sys
from pathlib import Path

import pytest
from script import ROOT, load

sys.path.append(f"{ROOT}/duckdb/test")  # `lanes` is there.
rust_test = load("rust-test")

LISTED = """cache::one: test
cache::inner::two: test
wire::one: test
wire::slow: benchmark

3 tests, 1 benchmark
"""


def message(name: str, executable: str | None, *, is_test: bool = True) -> str:
    """What Cargo says of a program that it has built."""
    return json.dumps(
        {
            "reason": "compiler-artifact",
            "manifest_path": f"{ROOT}/crates/engine/Cargo.toml",
            "profile": {"test": is_test},
            "target": {"kind": ["test"], "name": name},
            "executable": executable,
        }
    )


def test_a_program_of_many_files_is_a_process_for_each_file() -> None:
    jobs = rust_test.jobs_of_files("engine", ("program",), LISTED)
    assert [(job.name, job.command) for job in jobs] == [
        ("engine cache", ("program", "--quiet", "--exact", "cache::one", "cache::inner::two")),
        ("engine wire", ("program", "--quiet", "--exact", "wire::one")),
    ]


def test_programs_are_found_in_what_cargo_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
    program.chmod(0o755)
    monkeypatch.setattr(rust_test, "FILES", ("crates/engine test engine",))
    messages = [
        message("engine", f"{program}"),
        message("faults", "faults"),
        message("penstock", "penstock", is_test=False),
        message("nothing", None),
    ]
    assert [(job.name, job.seconds) for job in rust_test.programs(messages)] == [
        ("crates/engine test engine cache", 0),
        ("crates/engine test engine wire", 0),
        ("crates/engine test faults", rust_test.LONG["crates/engine test faults"]),
    ]
    with pytest.raises(SystemExit, match="mend FILES"):
        rust_test.programs(messages[1:])
