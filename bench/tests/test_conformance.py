"""What an outcome of the stores' exam is worth beside the table of known gaps."""

from pathlib import Path

import pytest
from script import ROOT, load

conformance = load("conformance")


def test_a_table_is_read() -> None:
    text = "# server\tcase\treason\n\none\ta\tbecause\none\tb\tso\ntwo\ta\twhy not\n"
    assert conformance.read_gaps(text) == {
        "one": {"a": "because", "b": "so"},
        "two": {"a": "why not"},
    }


@pytest.mark.parametrize("line", ["one\ta", "one\ta\t ", "one a because", "one\ta\tb\tc"])
def test_a_row_without_a_reason_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        conformance.read_gaps(line)


def test_a_case_has_one_reason() -> None:
    with pytest.raises(ValueError, match="again"):
        conformance.read_gaps("one\ta\tb\none\ta\tc\n")


def test_the_outcomes_are_read() -> None:
    assert conformance.read_outcomes("passed a\nfailed b\nthread panicked\n") == {
        "a": True,
        "b": False,
    }


def test_only_what_differs_from_the_table_is_a_complaint() -> None:
    outcomes = {"a": True, "b": False}
    assert conformance.complaints(outcomes, ["b"]) == []
    assert conformance.complaints(outcomes, []) == ["b fails, and is no known gap"]
    assert conformance.complaints(outcomes, ["a", "b"]) == ["a passes: remove it from the table"]
    assert conformance.complaints(outcomes, ["b", "c"]) == ["c is no case of the exam"]


def test_an_exam_that_did_not_run_is_a_failure() -> None:
    assert conformance.complaints({}, []) == ["the exam did not run"]


def test_an_exam_that_hangs_is_ended_and_shows_the_log_of_the_server(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("up\nno free volumes left\n")
    assert conformance.run_exam(["sleep", "60"], log, 0.1) == (
        {},
        "the exam took over 0 s; one.log ends with:\nup\nno free volumes left",
    )
    assert conformance.run_exam(["echo", "passed a"], log, 60.0) == ({"a": True}, "")


def test_the_closing_line() -> None:
    outcomes = {"a": True, "b": False, "c": True}
    assert conformance.closing("one", outcomes, ["b"]) == "one: passed 2 of 3, 1 known gap"
    assert conformance.closing("one", outcomes, []) == "one: passed 2 of 3, 0 known gaps"


def test_the_page_is_the_tables() -> None:
    gaps = conformance.read_gaps(conformance.GAPS.read_text())
    told = (ROOT / "docs/servers.md").read_text()
    assert told == conformance.page(gaps), "print it anew: see the page"


def test_the_titles_have_the_versions_of_the_scripts() -> None:
    for server in conformance.SERVERS:
        script = (ROOT / f"scripts/peers/{server.name}.sh").read_text()
        version = next(word for word in server.title.split() if word[0].isdigit()).strip(",")
        assert version in script, server.title
