"""Statements that may end before their files do: what a LIMIT leaves in vain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Fake, read_in_turn, scanner, start_fake, stats

GROUPS = 60
GROUP_ROWS = 20480
IN_VAIN_MIN = 256 << 10


@pytest.fixture(scope="module")
def far() -> Iterator[Fake]:
    """A store whose answers take 30 ms to begin."""
    fake = start_fake("s3", "--latency-ms", "30")
    con = scanner(fake)
    rows = f"(SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({GROUPS * GROUP_ROWS}) t(i))"
    con.execute(
        f"COPY {rows} TO 's3://far/t.parquet' "
        f"(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {GROUP_ROWS})"
    )
    for file in range(40):
        con.execute(
            f"COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range(20000) t(i)) TO "
            f"'s3://far/many/{file:02}.parquet' (FORMAT parquet, COMPRESSION uncompressed)"
        )
    con.execute(f"COPY {rows} TO 's3://far/t.csv.gz' (HEADER)")
    yield fake
    fake.stop()


def received(far: Fake) -> int:
    return sum(request["bytes_out"] for request in far.requests() if request["method"] == "GET")


@pytest.mark.parametrize("groups", [2, 7, 20, 50])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_scan_that_ends_in_a_row_group_has_fetched_little_behind_it(
    far: Fake, groups: int, is_prepared: bool
) -> None:
    con = scanner(far)
    select = f"SELECT a, b FROM 's3://far/t.parquet' LIMIT {groups * GROUP_ROWS - 9}"
    if is_prepared:
        con.execute(f"PREPARE few AS {select}")
    far.reset()
    found = con.execute("EXECUTE few" if is_prepared else select).fetchall()
    assert len(found) == groups * GROUP_ROWS - 9
    wasted = stats(con)["read_ahead_wasted_bytes"]
    assert wasted <= IN_VAIN_MIN + received(far) / 10
    con.close()


def test_a_limit_that_is_far_away_still_has_its_columns_fetched_ahead(far: Fake) -> None:
    con = scanner(far)
    sql = "SELECT i FROM 's3://far/t.parquet' WHERE a % 1000000007 = 1 LIMIT 100000"
    con.execute(sql).fetchall()
    assert stats(con)["read_ahead_hits"] > GROUPS // 2
    con.close()


def test_a_compressed_text_is_fetched_little_further_than_it_is_read(far: Fake) -> None:
    con = scanner(far)
    con.execute("SET enable_external_file_cache = false")
    far.reset()
    # More than what DuckDB looks at before it plans, where nothing tells of the LIMIT.
    con.execute("SELECT i, a FROM 's3://far/t.csv.gz' LIMIT 700000").fetchall()
    assert stats(con)["read_ahead_wasted_bytes"] <= IN_VAIN_MIN + received(far) / 10
    con.close()


def test_of_many_files_few_are_fetched_behind_the_last_that_is_read(far: Fake) -> None:
    con = scanner(far)
    # The other threads of DuckDB 2.0 open files as far ahead of the last one as they come.
    read_in_turn(con)
    # Binding opens the first file, and cannot know of the LIMIT: 15 files, 512 KiB at most.
    con.execute("SELECT i FROM 's3://far/many/*.parquet' LIMIT 5").fetchall()
    far.reset()
    # Else it looks first where the rows lie, in all files.
    con.execute("SET disabled_optimizers = 'late_materialization'")
    con.execute("SELECT i, a, b FROM 's3://far/many/*.parquet' LIMIT 390000").fetchall()
    gets = [request for request in far.requests() if request["operation"] == "GetObject"]
    fetched = {request["path"].rsplit("/", 1)[1] for request in gets}
    # DuckDB may have the first one. Ahead of the last, the 20th, are one and a tenth of its steps.
    files = [f"{file:02}.parquet" for file in range(22)]
    assert set(files[1:20]) <= fetched <= set(files), fetched
    con.close()


@pytest.mark.parametrize(
    ("sql", "ends_early"),
    [
        ("SELECT i FROM {t} LIMIT 5", True),
        ("SELECT sum(i) FROM (SELECT i FROM {t} WHERE a > 7 LIMIT 5)", True),
        ("SELECT i FROM {t} UNION ALL SELECT a FROM {t} LIMIT 5", True),
        ("CREATE OR REPLACE TEMP TABLE few AS SELECT i FROM {t} LIMIT 5", True),
        ("SELECT a, b FROM {t} LIMIT 40000", True),
        ("SELECT i FROM {t}", False),
        ("SELECT i FROM {t} WHERE a IN (SELECT b FROM {t} LIMIT 5)", False),
        ("SELECT i FROM {t} LIMIT 5%", False),
        ("SELECT i FROM {t} ORDER BY a LIMIT 5", False),
        ("SELECT a, count(*) FROM {t} GROUP BY a LIMIT 5", False),
        ("SELECT x.i FROM {t} x JOIN {t} y ON x.a = y.b LIMIT 5", False),
        ("SELECT (SELECT max(a) FROM {t}), i FROM {t} LIMIT 5", False),
        ("SELECT i FROM range(9) t(i) LIMIT 5", False),
    ],
)
def test_a_plan_tells_whether_its_scans_may_end_early(
    far: Fake, sql: str, ends_early: bool
) -> None:
    con = scanner(far)
    plan = con.execute("EXPLAIN ANALYZE " + sql.format(t="'s3://far/t.parquet'")).fetchall()
    assert ("Penstock fetches ahead" in str(plan)) == ends_early, plan
    con.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT json_serialize_plan('{}', optimize := true)",
        "SELECT json_serialize_plan(q, optimize := true) FROM (VALUES ('{}')) t(q)",
    ],
    ids=["while it is planned", "while it runs"],
)
def test_a_plan_inside_a_statement_concerns_no_other(far: Fake, statement: str) -> None:
    con = scanner(far)
    inner = statement.format("SELECT i FROM ''s3://far/t.parquet'' LIMIT 5")
    assert "LOGICAL_LIMIT" in str(con.execute(inner).fetchall())
    for outer in [inner, "SELECT sum(i) FROM 's3://far/t.parquet'"]:
        plan = con.execute("EXPLAIN ANALYZE " + outer).fetchall()
        assert "Penstock fetches ahead" not in str(plan), plan
    con.close()
