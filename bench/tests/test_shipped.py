"""What is shipped is named, with the terms it came under."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from script import ROOT, load

shipped, notices, sbom = load("shipped"), load("notices"), load("sbom")
VERSION = (ROOT / "scripts/duckdb-versions.tsv").read_text().splitlines()[-1].split("\t")[0]
WHEN = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.fixture(scope="module")
def parts() -> list[Any]:
    found: list[Any] = shipped.everything([VERSION])
    return found


def test_crates_and_parts_of_duckdb_are_there_and_tests_are_not(parts: list[Any]) -> None:
    names = {part.name for part in parts}
    assert {"penstock-cli", "penstock-ffi", "tokio", "duckdb", "duckdb-fmt", "rust-std"} <= names
    assert not {"proptest", "serde_derive", "penstock-testkit", "duckdb-catch"} & names


def test_each_part_stands_beside_its_terms(parts: list[Any]) -> None:
    page = notices.page(parts)
    for part in parts:
        assert f"{part.name} {part.version}" in page, part
    assert "Copyright 2018-2025 Stichting DuckDB Foundation" in page


def test_a_part_without_terms_is_an_error(tmp_path: Path) -> None:
    bare = shipped.Part("bare", "1.0.0", "ISC", tmp_path)
    with pytest.raises(ValueError, match=r"bare@1\.0\.0 has no text"):
        shipped.texts_of([bare])


def test_the_bill_of_materials_is_valid_and_the_same_each_time(parts: list[Any]) -> None:
    told = json.dumps(sbom.document(parts, "0.1.0", WHEN))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(told) is None
    assert json.dumps(sbom.document(parts, "0.1.0", WHEN)) == told
    components = json.loads(told)["components"]
    tokio = next(it for it in components if it["name"] == "tokio")
    assert tokio["purl"].startswith("pkg:cargo/tokio@")
    assert len(tokio["hashes"][0]["content"]) == 64
