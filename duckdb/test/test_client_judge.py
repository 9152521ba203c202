"""What the judge of DuckDB's clients takes for a surprise, and what it serves as the web."""

from __future__ import annotations

from pathlib import Path

import client_page
from client_judge import LIST, VERSIONS, WORDS, Row, read_list, surprises, write_list
from client_web import Web

ROWS = {
    "a.test": Row({"1.5.5": "pass", "2.0.1": "differs"}, "counts requests"),
    "b.test": Row({"1.5.5": "cannot", "2.0.1": "cannot"}, "asks for an account"),
    "c.test": Row({"1.5.5": "differs", "2.0.1": "pass"}, ""),
}


def test_what_the_list_says_is_no_surprise() -> None:
    found = {"a.test": "ok", "b.test": "skipped: asks for the variable X"}
    assert surprises(found, ROWS, "1.5.5") == []
    assert surprises({"a.test": "failed: line 3", "c.test": "ok"}, ROWS, "2.0.1") == []


def test_each_verdict_that_it_does_not_say_is_one() -> None:
    assert surprises({"a.test": "failed: line 3"}, ROWS, "1.5.5") == ["a.test: failed: line 3"]
    assert surprises({"new.test": "failed: x"}, ROWS, "1.5.5") == ["new.test: failed: x"]
    (better,) = surprises({"a.test": "ok"}, ROWS, "2.0.1")
    assert better == "a.test: passes, and is listed as `differs`"
    (unlisted,) = surprises({"new.test": "ok"}, ROWS, "1.5.5")
    assert unlisted == "new.test: passes, and is listed as `-`"


def test_what_cannot_run_here_may_fail_but_not_pass() -> None:
    assert surprises({"b.test": "failed: a file is not there"}, ROWS, "1.5.5") == []
    (better,) = surprises({"b.test": "ok"}, ROWS, "1.5.5")
    assert better == "b.test: passes, and is listed as `cannot`"


def test_what_does_not_pass_needs_a_reason() -> None:
    assert surprises({"c.test": "failed: line 1"}, ROWS, "1.5.5") == [
        "c.test: the list has no reason"
    ]


def test_the_list_is_kept_as_it_is_read() -> None:
    assert read_list(write_list(ROWS, "# head\n")) == ROWS
    kept = read_list(LIST.read_text())
    words = {*WORDS.values(), "-"}
    assert all(set(row.verdicts.values()) <= words for row in kept.values())
    assert all(set(row.verdicts) == set(VERSIONS) for row in kept.values())
    unexplained = [
        name
        for name, row in kept.items()
        if set(row.verdicts.values()) != {"pass"} and not row.reason
    ]
    assert unexplained == []


def test_files_of_a_clone_stand_for_those_of_the_web(tmp_path: Path) -> None:
    (tmp_path / "data/csv").mkdir(parents=True)
    (tmp_path / "data/csv/x.csv").write_bytes(b"a\n1\n")
    web = Web(tmp_path, [], tmp_path)
    found = web.answer("/owner/name/raw/main/data/csv/x.csv")
    assert found and found.body == b"a\n1\n"
    assert web.answer("/owner/name/raw/main/data/csv/y.csv") is None
    page = web.answer("/")
    assert page and page.body.startswith(b"<!doctype html>")


def test_a_file_is_made_of_the_rows_that_a_test_expects(tmp_path: Path) -> None:
    url = "https://example.org/exchanges/stock-exchanges"
    test = tmp_path / "one.test"
    test.write_text(f"query IIIIII\nFROM read_csv('{url}')\n----\n1\tA\tB\tC\tNULL\t2019-03-25\n")
    web = Web(tmp_path, [test], tmp_path)
    found = web.answer("/exchanges/stock-exchanges")
    assert found and found.body.splitlines()[1] == b"1,A,B,C,,2019-03-25"
    assert web.hosts(f"FROM '{url}'; FROM 'https://nowhere.example/t.csv'") == {"example.org"}


def test_the_page_for_those_who_move_is_made_from_the_list() -> None:
    assert client_page.counts(ROWS) == "".join(
        f"- DuckDB {version}: {passed} pass.\n"
        for version, passed in [("1.5.5", "1 of 2"), ("2.0.1", "1 of 2")]
    )
    assert client_page.differences(ROWS) == {"": 1, "counts requests": 1}
    section = client_page.section(read_list(LIST.read_text()))
    assert client_page.PAGE.read_text().endswith(section), "run client_page.py"
