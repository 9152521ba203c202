"""What the judge of DuckDB's own storage tests takes for a surprise."""

from __future__ import annotations

import fnmatch

from storage_judge import LISTS, cannot, surprises

ROWS = [("a/*", "it cannot"), ("b.test", "nor that")]


def test_only_what_the_lists_say_is_no_surprise() -> None:
    passes = {"wal/x.test", "a/sometimes.test"}
    as_listed = {"wal/x.test": "ok", "a/no.test": "failed: it cannot", "a/sometimes.test": "ok"}
    assert surprises(as_listed, passes, ROWS, "nvme", as_listed) == []
    broken = {**as_listed, "wal/x.test": "failed: line 3"}
    assert surprises(broken, passes, ROWS, "nvme", broken) == ["wal/x.test: failed: line 3"]
    unknown = {**as_listed, "new.test": "skipped: asks for icu"}
    assert surprises(unknown, passes, ROWS, "nvme", unknown) == ["new.test: skipped: asks for icu"]
    # In the list of what passes, though its pattern cannot.
    broken = {**as_listed, "a/sometimes.test": "failed: line 1"}
    assert surprises(broken, passes, ROWS, "nvme", broken) == ["a/sometimes.test: failed: line 1"]


def test_a_row_of_what_cannot_pass_goes_when_it_passes() -> None:
    mended = {"b.test": "ok", "a/no.test": "failed: it cannot"}
    (told,) = surprises(mended, set(), ROWS, "nvme", mended)
    assert told.startswith("b.test: passes")
    assert surprises(mended, set(), ROWS, "file", mended) == [], "on plain files more may pass"
    part = {"a/yes.test": "ok"}
    assert surprises(part, set(), ROWS, "nvme", ["a/yes.test", "a/no.test"]) == []


def test_the_brief_list_holds_what_passes_and_what_cannot() -> None:
    passes = (LISTS / "storage-passes.txt").read_text().split()
    patterns = (LISTS / "storage-brief.txt").read_text().split()
    assert all(fnmatch.filter(passes, it) for it in patterns)
    known = [row for row, _ in cannot() if any(fnmatch.fnmatch(row, it) for it in patterns)]
    assert known, "failures that are known are looked at, too"
