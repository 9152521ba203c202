"""Files that a statement or a table format names: fetched ahead like those of a glob."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import Fake, load_pypi, round_trips, scanner, start_fake, stats

FILES = 40
ROWS = 20_000
SUM = FILES * ROWS * (ROWS - 1) // 2


@pytest.fixture(scope="module", params=["s3", "azure"])
def far(request: pytest.FixtureRequest) -> Iterator[Fake]:
    """A store whose answers take 30 ms to begin, with files of some 500 KB."""
    fake = start_fake(request.param, "--latency-ms", "30")
    con = scanner(fake)
    for file in range(FILES):
        con.execute(
            f"COPY (SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({ROWS}) t(i)) TO "
            f"'{url(fake, file)}' (FORMAT parquet, COMPRESSION uncompressed)"
        )
    con.close()
    yield fake
    fake.stop()


def url(far: Fake, file: int) -> str:
    return far.url(f"lists/{file * 7 % FILES:02}.parquet")


def names(far: Fake, count: int = FILES) -> str:
    return "[" + ", ".join(f"'{url(far, file)}'" for file in range(count)) + "]"


def parquet_requests(far: Fake) -> list[dict[str, Any]]:
    return [request for request in far.requests() if ".parquet" in request["path"]]


def trips(far: Fake) -> int:
    """Round trips of all requests for files, of whatever kind."""
    found = parquet_requests(far)
    times = [(it["start_us"], it["start_us"] + it["total_us"], it["bytes_out"]) for it in found]
    return round_trips(sorted(times))


def test_named_files_are_fetched_ahead(far: Fake) -> None:
    con = scanner(far)
    far.reset()
    query = f"SELECT sum(i), count(a), count(b) FROM read_parquet({names(far)})"
    assert con.execute(query).fetchone() == (SUM, FILES * ROWS, FILES * ROWS)
    # One by one they are two round trips each.
    assert trips(far) <= FILES // 2
    received = sum(request["bytes_out"] for request in parquet_requests(far))
    assert stats(con)["read_ahead_wasted_bytes"] <= received / 10
    con.close()


def test_named_files_are_asked_for_as_often_as_those_of_a_glob(far: Fake) -> None:
    counts, received = [], []
    for source in [names(far), f"'{far.url('lists/*.parquet')}'"]:
        con = scanner(far)
        far.reset()
        con.execute(f"SELECT sum(i), count(a), count(b) FROM read_parquet({source})").fetchall()
        found = parquet_requests(far)
        counts.append(len(found))
        received.append(sum(request["bytes_out"] for request in found))
        con.close()
    # Azure has no ranges from the end, so a file whose size nobody told takes one more, of its
    # beginning.
    more = FILES if far.kind == "azure" else 0
    # Of two that are fetched at once one may be asked for again.
    assert counts[0] <= counts[1] + 2 + more
    assert received[0] <= received[1] * 1.03 + more * (256 << 10)


def test_with_always_each_opening_still_asks(far: Fake) -> None:
    con = scanner(far)
    con.execute("SET penstock_cache_validation = 'always'")
    query = f"SELECT sum(i) FROM read_parquet({names(far)})"
    assert con.execute(query).fetchone() == (SUM,)
    far.reset()
    assert con.execute(query).fetchone() == (SUM,)
    assert len({request["path"] for request in parquet_requests(far)}) == FILES
    con.close()


def test_a_name_that_is_not_there_is_told(far: Fake) -> None:
    con = scanner(far)
    missing = far.url("lists/missing.parquet")
    source = names(far)[:-1] + f", '{missing}']"
    with pytest.raises(duckdb.Error, match=r"missing\.parquet"):
        con.execute(f"SELECT sum(i) FROM read_parquet({source})").fetchall()
    assert con.execute(f"SELECT sum(i) FROM read_parquet({names(far)})").fetchone() == (SUM,)
    con.close()


def test_names_may_repeat(far: Fake) -> None:
    con = scanner(far)
    source = names(far, 5)[:-1] + ", " + names(far, 5)[1:]
    row = con.execute(f"SELECT count(*), sum(i) FROM read_parquet({source})").fetchone()
    assert row == (10 * ROWS, 10 * ROWS * (ROWS - 1) // 2)
    con.close()


def test_the_files_of_a_lake_are_fetched_ahead(far: Fake, tmp_path: Path) -> None:
    con = scanner(far)
    load_pypi(con, "ducklake")
    data = far.url(f"lake/{tmp_path.name.replace('_', '-')}/")
    attach = f"ATTACH 'ducklake:{tmp_path}/lake.ducklake' AS lake"
    con.execute(f"{attach} (DATA_PATH '{data}', DATA_INLINING_ROW_LIMIT 0)")
    rows = f"SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range({ROWS}) t(i)"
    con.execute(f"CREATE TABLE lake.t AS {rows}")
    for _ in range(19):
        con.execute(f"INSERT INTO lake.t {rows}")
    con.close()
    con = scanner(far)
    load_pypi(con, "ducklake")
    con.execute(attach)
    far.reset()
    row = con.execute("SELECT count(*), sum(i), count(a), count(b) FROM lake.t").fetchone()
    assert row == (20 * ROWS, SUM // 2, 20 * ROWS, 20 * ROWS)
    assert trips(far) <= 12
    con.close()


def test_lists_of_several_stores_and_empty_ones_are_read(far: Fake, tmp_path: Path) -> None:
    con = scanner(far)
    here = tmp_path / "here.parquet"
    con.execute(f"COPY (SELECT 1::BIGINT AS i) TO '{here}' (FORMAT parquet)")
    for source in [
        names(far, 3)[:-1] + f", '{here}']",
        f"['{here}', " + names(far, 3)[1:],
    ]:
        row = con.execute(f"SELECT sum(i) FROM read_parquet({source})").fetchone()
        assert row == (3 * ROWS * (ROWS - 1) // 2 + 1,)
    load_pypi(con, "ducklake")
    data = far.url(f"lake/{tmp_path.name.replace('_', '-')}/")
    con.execute(f"ATTACH 'ducklake:{tmp_path}/lake.ducklake' AS lake (DATA_PATH '{data}')")
    con.execute("CREATE TABLE lake.t (i BIGINT)")
    assert con.execute("SELECT i FROM lake.t LIMIT 5").fetchall() == []
    # Small inserts stay in the catalog, in whose list they stand beside the files.
    for number in range(4):
        con.execute(f"INSERT INTO lake.t SELECT i FROM range({ROWS}) t(i)")
        con.execute(f"INSERT INTO lake.t VALUES ({number})")
    row = con.execute("SELECT count(*), sum(i) FROM lake.t").fetchone()
    assert row == (4 * ROWS + 4, 4 * ROWS * (ROWS - 1) // 2 + 6)
    assert len(con.execute("SELECT i FROM lake.t LIMIT 30000").fetchall()) == 30_000
    con.execute("DELETE FROM lake.t")
    assert con.execute("SELECT count(*) FROM lake.t").fetchone() == (0,)
    con.close()
