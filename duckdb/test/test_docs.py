"""Each command of the pages for users runs as it stands; a list says which cannot, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_stage import PROGRAM, PROGRAMS, SERVER, Stage
from documents import LIST, Block, Command, blocks, commands, listed, not_told, row_of, shape
from harness import ROOT, need_package, start_fake
from run_all import NEWEST_DUCKDB, VERSIONS

NOT_RUN = listed(LIST.read_text())
ELSEWHERE = {"docs/guide/python.md"}
"""Pages whose commands want another Python: python/tests/test_recipes.py runs them."""
WITH_PACKAGE = {"docs/guide/wrap.md": "httpfs", "docs/tutorial.md": "ducklake"}
"""Pages for which PyPI has to have an extension."""
PAGES = [
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        ROOT / "python/README.md",
        *ROOT.glob("docs/guide/*.md"),
        ROOT / "docs/tutorial.md",
    )
]


def is_run(block: Block, command: Command) -> bool:
    """Whether no row of the list is the command's."""
    return row_of(block, command, NOT_RUN) is None


def run_page(page: str, here: Path) -> None:
    """Runs all commands of a page."""
    azure = start_fake("azure")
    try:
        found = blocks(page)
        has_servers = any(SERVER.search(block.text) for block in found)
        with Stage(here, azure, has_servers=has_servers) as stage:
            for block in found:
                wanted = [it for it in commands(block) if is_run(block, it)]
                failure = stage.trouble(block, wanted) if wanted else None
                if failure is not None:
                    pytest.fail(f"{block.place}: {failure}", pytrace=False)
    finally:
        azure.stop()


@pytest.mark.parametrize("page", sorted({*PAGES} - ELSEWHERE - {*WITH_PACKAGE}))
def test_the_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", WITH_PACKAGE)
def test_the_commands_of_a_page_run_with_a_package(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_package(f"duckdb-extension-{WITH_PACKAGE[page]}")
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def test_the_guide_tells_on_which_duckdb_what_is_tested() -> None:
    page = (ROOT / "docs/guide/duckdb.md").read_text()
    rows = dict(re.findall(r"^\| ([\d., ]+) \| (everything|the files|the extension) ", page, re.M))
    told = {what: set(versions.split(", ")) for versions, what in rows.items()}
    pinned = re.findall(
        r"^duckdb==(.*)$", (ROOT / "scripts/requirements/demo.txt").read_text(), re.M
    )
    on_all = {NEWEST_DUCKDB, *pinned}
    on_files = {version for version, library in VERSIONS if library != "-"} - on_all
    rest = {version for version, _ in VERSIONS} - on_all - on_files
    assert told == {"everything": on_all, "the files": on_files, "the extension": rest}
    *others, oldest = (version for version, _ in VERSIONS)
    assert f"extension for DuckDB {', '.join(others)} and {oldest} that" in page


def test_the_list_names_commands_that_there_are() -> None:
    there = {
        row_of(block, command, NOT_RUN)
        for page in PAGES
        for block in blocks(page)
        for command in commands(block)
    }
    assert [row for row in NOT_RUN if row not in there] == []


def test_what_is_not_run_is_python_that_parses() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                compile(block.text, block.place, "exec")


def test_the_readme_begins_with_the_install_and_the_main_job() -> None:
    install, main_job = blocks("README.md")[:2]
    assert install.text == "pip install penstock-*.whl\n"
    assert re.search(r"con = penstock.connect\(.*FROM 's3://.*TO 'az://", main_job.text, re.DOTALL)


def test_a_page_that_is_run_elsewhere_has_only_what_is_run_there() -> None:
    found = {block.language for page in ELSEWHERE for block in blocks(page)}
    assert found == {"python", "yaml"}


def test_every_block_says_its_language() -> None:
    without = [block.place for page in PAGES for block in blocks(page) if not block.language]
    assert without == []


def test_nothing_that_changes_the_machine_is_run() -> None:
    named = [PROGRAM.match(text) for text in ("A=1 B= build/penstock serve --dir x", "sudo true")]
    assert [it[1] for it in named if it] == ["penstock", "sudo"]
    assert not PROGRAMS & {"apt-get", "dpkg", "pip", "sudo", "systemctl"}


def test_a_line_that_is_not_told_is_found() -> None:
    shown = [
        "4004099  2026-11-20T10:15:39Z  s3://lake/a.parquet",
        "etag: 18e9b95e-3d1903",
        "x ... y",
    ]
    told = "   7 2025-01-02T00:00:00Z s3://lake/a.parquet\netag: 0f-1\nx and y\n"
    assert shape(shown[1]) == "etag: #-#"
    assert not_told(shown, told) == []
    assert not_told(["s3://lake/b.parquet"], told) == ["s3://lake/b.parquet"]
    # In another order they are not what the page shows.
    assert not_told(shown[::-1], told) != []
