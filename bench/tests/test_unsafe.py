"""The page on `unsafe` is what the sources have."""

from script import ROOT, load

unsafe = load("unsafe")
ROWS = unsafe.read_rows(unsafe.TABLE.read_text())


def test_the_page_is_the_sources_and_the_table() -> None:
    found = unsafe.sources(ROOT)
    assert unsafe.complaints(found, ROWS) == []
    hint = "run: python3 scripts/unsafe.py > docs/unsafe.md"
    assert (ROOT / "docs/unsafe.md").read_text() == unsafe.page(found, ROWS), hint


def test_the_tests_that_the_table_names_are_there() -> None:
    for row in ROWS:
        assert (ROOT / row.place).exists(), row.place
        for word in row.tests.replace(",", " ").split():
            assert "/" not in word or (ROOT / word).exists(), word


def test_comments_and_texts_are_not_counted() -> None:
    text = """
// unsafe { no }
/* unsafe impl No */
const A: &str = "unsafe { no }"; const B: char = '"';
unsafe impl Send for Yes {}
unsafe fn yes() { unsafe { yes() } }
type F = unsafe extern "C" fn();
#[unsafe(no_mangle)]
"""
    kinds = {"blocks": 1, "functions": 2, "impls": 1, "exported names": 1}
    assert unsafe.count(text) == kinds


def test_a_place_without_a_row_and_a_row_without_a_place_are_told() -> None:
    row = unsafe.Row("crates/a/", "why", "tests", "judge")
    assert unsafe.complaints({"crates/ab.rs": {"blocks": 1}}, [row]) == [
        "crates/ab.rs: unsafe without a row",
        "crates/a/: a row without unsafe",
    ]
    assert unsafe.complaints({"crates/a/b.rs": {"blocks": 1}}, [row]) == []
