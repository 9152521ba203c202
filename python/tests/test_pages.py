"""The pages about security name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/threat-model.md", "docs/design/credentials.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`((?:crates|duckdb|fuzz|python)/[^`]+)`", (ROOT / page).read_text()))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
