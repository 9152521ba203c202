"""Stores that take no batch of removals: what DuckDB removes goes one by one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import Fake, load_pypi, scanner

FILES = 12
# What appliances, older servers and S3 in front of other stores answer.
REFUSALS = [
    "status=501,code=NotImplemented",
    "status=501,code=A0501",
    "status=400,code=NotImplemented",
    "status=400,code=MalformedXML",
    "status=400,code=BadRequest",
    "status=405,code=MethodNotAllowed",
    "status=405,code=A0405",
]


@pytest.fixture(params=REFUSALS)
def bare(request: pytest.FixtureRequest, fakes: dict[str, Fake]) -> Fake:
    """S3 without batches."""
    fake = fakes["s3"]
    fake.reset()
    fake.arm(f"{request.param},op=DeleteObjects,nth=1-")
    return fake


def asked(store: Fake, operation: str) -> int:
    """How many requests of an operation came since the last reset."""
    return len([it for it in store.requests() if it["operation"] == operation])


def partitioned(name: str, value: int) -> str:
    query = f"SELECT {value} AS v, i % {FILES} AS p FROM range({FILES * 10}) t(i)"
    return f"COPY ({query}) TO '{name}' (FORMAT parquet, PARTITION_BY (p), OVERWRITE)"


def test_overwriting_ends(bare: Fake) -> None:
    con, root = scanner(bare), bare.url("singly/t")
    for value in range(3):
        con.execute(partitioned(root, value))
        found = con.execute(f"SELECT count(*), sum(v) FROM read_parquet('{root}/**')").fetchone()
        assert found == (FILES * 10, FILES * 10 * value)
    # It is asked once for a batch; what is there before the first statement is of another test.
    assert asked(bare, "DeleteObjects") == 1
    assert asked(bare, "DeleteObject") >= 2 * FILES
    assert con.execute(f"SELECT count(*) FROM glob('{root}/**')").fetchone() == (FILES,)


def test_a_lake_is_cleaned_up(bare: Fake, tmp_path: Path) -> None:
    con = scanner(bare)
    load_pypi(con, "ducklake")
    data = bare.url(f"lake/{tmp_path.name.replace('_', '-')}/")
    con.execute(f"ATTACH 'ducklake:{tmp_path}/c.ducklake' AS lake (DATA_PATH '{data}')")
    con.execute("CREATE TABLE lake.t AS SELECT 0 AS v")
    for value in range(1, 6):
        con.execute(f"INSERT INTO lake.t SELECT {value} FROM range(100)")
    con.execute("CALL ducklake_merge_adjacent_files('lake')")
    con.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    before = con.execute(f"SELECT count(*) FROM glob('{data}**')").fetchone()
    con.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    con.execute("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    assert before is not None
    assert before[0] > 1
    assert con.execute(f"SELECT count(*) FROM glob('{data}**')").fetchone() == (1,)
    assert con.execute("SELECT count(*), sum(v) FROM lake.t").fetchone() == (501, 1500)


def test_a_failed_statement_takes_back_what_it_made(bare: Fake) -> None:
    con, root = scanner(bare), bare.url("singly/failed")
    con.execute("SET partitioned_write_max_open_files = 1")
    query = "SELECT i AS v, i AS p FROM range(6) t(i)"
    bare.arm("status=403,method=PUT,nth=6")
    with pytest.raises(duckdb.Error, match="403"):
        con.execute(f"COPY ({query}) TO '{root}' (FORMAT csv, PARTITION_BY (p))")
    assert con.execute(f"SELECT count(*) FROM glob('{root}/**')").fetchone() == (0,)


def test_a_refusal_for_want_of_rights_stays_one(fakes: dict[str, Fake]) -> None:
    fake = fakes["s3"]
    fake.reset()
    con, root = scanner(fake), fake.url("singly/denied")
    con.execute(partitioned(root, 0))
    fake.reset()
    fake.arm("status=403,code=AccessDenied,op=DeleteObjects,nth=1-")
    with pytest.raises(duckdb.Error, match="AccessDenied"):
        con.execute(partitioned(root, 1))
    assert asked(fake, "DeleteObject") == 0
