"""What the mutation check takes for its sample, and what it complains of."""

import json
import subprocess

import pytest
from script import ROOT, load

mutants = load("mutants")
FAULT = "crates/a/src/b.rs:12:5: replace < with == in c"
PLAIN = "crates/a/src/b.rs: replace < with == in c"


def test_the_sample_is_each_nth() -> None:
    faults = list(range(10))
    assert mutants.sample(faults, 4, 0) == [0, 4, 8]
    assert mutants.sample(faults, 4, 1) == [1, 5, 9]
    assert mutants.sample(faults, 4, 6) == [2, 6]
    assert mutants.sample(faults, 1, 0) == faults


def test_a_fault_is_known_wherever_it_lies() -> None:
    assert mutants.plain(FAULT) == PLAIN
    assert mutants.complaints([FAULT], [], {PLAIN: "the same"}) == []


def test_what_no_test_notices_is_a_complaint() -> None:
    assert mutants.complaints([FAULT], [], {}) == [f"no test notices: {FAULT}"]


def test_what_is_noticed_leaves_the_list() -> None:
    told = [f"is noticed now: remove it from the list: {PLAIN}"]
    assert mutants.complaints([], [FAULT], {PLAIN: "the same"}) == told
    # Another of the same name survives.
    assert mutants.complaints([FAULT], [FAULT], {PLAIN: "the same"}) == []
    # It was not in the sample.
    assert mutants.complaints([], [], {PLAIN: "the same"}) == []


@pytest.mark.parametrize("line", ["fault", "fault\t ", "fault\ta\tb"])
def test_a_survivor_has_a_reason(line: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        mutants.read_survivors(line)


def test_the_files_and_tests_that_are_named_are_there() -> None:
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    programs = {
        (package["name"], target["name"])
        for package in packages
        for target in package["targets"]
        if "test" in target["kind"]
    }
    for crate in mutants.crates((ROOT / "scripts/mutants.toml").read_text()):
        for file in crate.files:
            assert (ROOT / file).is_file(), file
        words, _, filters = " ".join(crate.tests).partition(" -- ")
        named = words.replace("--test", "").split()
        assert named, crate.name
        for program in named:
            assert (crate.name, program) in programs, program
        tests = ROOT / "crates" / crate.name.removeprefix("penstock-") / "tests"
        for module in filters.split():
            assert (tests / f"{module.removesuffix('::')}.rs").is_file(), module
    mutants.read_survivors((ROOT / "scripts/mutants-survive.tsv").read_text())
