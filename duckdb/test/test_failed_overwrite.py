"""A failed COPY over what exists: nothing is removed that it did not make itself."""

from __future__ import annotations

import threading

import duckdb
import pytest
from harness import Fake, connect, wait_until
from test_interruption import fired, interrupt_when_asked

LARGE = "SELECT hash(i) AS v FROM range(2000000) t(i)"
# The request that makes a large object visible.
COMMIT = {"s3": "op=CompleteMultipartUpload", "azure": "op=PutBlockList"}


@pytest.fixture(params=["true", "false"])
def overlap(request: pytest.FixtureRequest, con: duckdb.DuckDBPyConnection) -> str:
    """Whether parts go out while further ones are made; set on the connection."""
    con.execute(f"SET penstock_upload_overlap_enabled = {request.param}")
    return str(request.param)


def old(con: duckdb.DuckDBPyConnection, store: Fake, name: str) -> str:
    """An object that exists, and nothing remembered of it."""
    url = store.url(f"overwritten/{name}")
    con.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT parquet)")
    con.execute("CALL penstock_clear_cache()")
    store.reset()
    return url


def assert_kept(con: duckdb.DuckDBPyConnection, store: Fake, url: str) -> None:
    deletes = [r for r in store.requests() if r["method"] == "DELETE" and "uploadId" not in str(r)]
    assert not deletes
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    assert con.execute(f"SELECT v FROM '{url}'").fetchall() == [(7,)]


@pytest.mark.parametrize("status", [403, 507])
@pytest.mark.parametrize("size", ["small", "parts", "commit"])
def test_a_refused_overwrite_keeps_the_old(
    overlap: str, status: int, size: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_request_deadline_ms = 500")
    url = old(con, store, f"refused-{overlap}-{status}-{size}.parquet")
    store.arm(f"status={status}," + (COMMIT[store.kind] if size == "commit" else "method=PUT"))
    query = "SELECT 8 AS v" if size == "small" else LARGE
    with pytest.raises(duckdb.Error, match="refused"):
        con.execute(f"COPY ({query}) TO '{url}' (FORMAT parquet)")
    assert_kept(con, store, url)


@pytest.mark.parametrize("size", ["small", "parts", "commit"])
def test_an_interrupted_overwrite_keeps_the_old(
    overlap: str, size: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = old(con, store, f"interrupted-{overlap}-{size}.parquet")
    store.arm("stall=60000," + (COMMIT[store.kind] if size == "commit" else "method=PUT"))
    thread = interrupt_when_asked(con, store)
    query = "SELECT 8 AS v" if size == "small" else LARGE
    with pytest.raises(duckdb.InterruptException):
        con.execute(f"COPY ({query}) TO '{url}' (FORMAT parquet)")
    thread.join()
    assert_kept(con, store, url)


def test_another_writers_object_survives(
    overlap: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute("SET penstock_retry_base_ms = 1")
    url = store.url(f"overwritten/contested-{overlap}.parquet")
    # Ours is cut after the other's, which is the second, and refused when it is tried again.
    store.arm("stall=2000,method=PUT,nth=1", "status=403,method=PUT,nth=3-")
    failures: list[duckdb.Error] = []

    def ours() -> None:
        try:
            con.execute(f"COPY (SELECT 8 AS v) TO '{url}' (FORMAT parquet)")
        except duckdb.Error as error:
            failures.append(error)

    thread = threading.Thread(target=ours)
    thread.start()
    wait_until(lambda: fired(store), "our upload")
    other = connect()
    other.execute(f"CREATE SECRET s ({store.secret})")
    other.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT parquet)")
    thread.join()
    assert len(failures) == 1
    assert_kept(other, store, url)


def test_refused_partitions_keep_their_files(
    overlap: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root = store.url(f"overwritten/parts-{overlap}")

    def copy(value: int) -> str:
        return (
            f"COPY (SELECT {value} AS v, i AS p FROM range(4) t(i)) TO '{root}' "
            "(FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
        )

    con.execute(copy(7))
    store.reset()
    store.arm("status=403,method=PUT,key=*p=1/*", "status=403,method=PUT,key=*p=2/*")
    with pytest.raises(duckdb.Error, match="p="):
        con.execute(copy(8))
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    rows = con.execute(f"SELECT p, v FROM '{root}/*/*.parquet' ORDER BY p").fetchall()
    assert [row for row in rows if row[0] in (1, 2)] == [(1, 7), (2, 7)]


def test_a_failed_copy_of_new_names_leaves_nothing(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root = store.url("overwritten/new")
    store.arm("status=403,method=PUT,key=*p=2/*")
    with pytest.raises(duckdb.Error, match="p=2"):
        con.execute(
            f"COPY (SELECT i, i % 5 AS p FROM range(100) t(i)) TO '{root}' "
            "(FORMAT parquet, PARTITION_BY (p))"
        )
    store.reset()
    assert con.execute(f"FROM glob('{root}/**')").fetchall() == []


def test_requests_are_fetched_without_a_time_zone(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    old(con, store, "times.parquet")
    row = con.execute("SELECT typeof(started_at) FROM penstock_requests() LIMIT 1").fetchone()
    assert row == ("TIMESTAMP",)
    assert con.execute("FROM penstock_requests()").fetchall()
