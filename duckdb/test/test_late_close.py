"""Files whose writer closes them late: in a destructor, behind the statement, or never."""

from __future__ import annotations

import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import duckdb
import pytest
from harness import Fake, connect, load_pypi, need_package
from test_interruption import interrupt_when_asked

# The extension excel closes its file in a destructor, after the statement's last operator has run.
SMALL = "SELECT i FROM range(3000) t(i)"
# More than one part of 5 MiB, since hashes do not compress well.
LARGE = (
    "SELECT i, hash(i)::VARCHAR AS a, hash(i + 1)::VARCHAR AS b, hash(i + 2)::VARCHAR AS c, "
    "hash(i + 3)::VARCHAR AS d FROM range(160000) t(i)"
)
SIZES = {"small": (SMALL, 3000), "parts": (LARGE, 160000)}
# What GDAL writes from start to end, with the extension that it wants.
DRIVERS = {"GeoJSON": "geojson", "FlatGeobuf": "fgb", "KML": "kml"}
POINTS = "SELECT i, ST_Point(i, i) AS g FROM range(3000) t(i)"
FAULTS = ["status=403,method=PUT", "reset,method=PUT"]


@pytest.fixture(params=["true", "false"])
def late(request: pytest.FixtureRequest, store: Fake) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extensions of others, with and without overlapping uploads."""
    con = connect()
    for name in ("excel", "spatial"):
        load_pypi(con, name)
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"SET penstock_upload_overlap_enabled = {request.param}")
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_request_deadline_ms = 500")
    con.execute("SET penstock_part_size_bytes = '5MiB'")
    yield con
    con.close()


def url_of(store: Fake, request: pytest.FixtureRequest, extension: str) -> str:
    """A name that no other test has."""
    return store.url(f"late/{zlib.crc32(request.node.nodeid.encode()):x}.{extension}")


def names(con: duckdb.DuckDBPyConnection, url: str) -> list[str]:
    """What is there under this name and those that begin so."""
    con.execute("CALL penstock_clear_cache()")
    return [row[0] for row in con.execute(f"SELECT file FROM glob('{url}*')").fetchall()]


def rows(con: duckdb.DuckDBPyConnection, url: str) -> int:
    found = con.execute(f"SELECT count(*) FROM read_xlsx('{url}', header = true)").fetchone()
    assert found
    return int(found[0])


def refusals(con: duckdb.DuckDBPyConnection, url: str) -> int:
    """Requests of this object that `penstock_requests()` tells as failed."""
    key = url.split("/", 3)[3]
    found = con.execute(
        "SELECT count(*) FROM penstock_requests() "
        f"WHERE url LIKE '%{key}%' AND status NOT BETWEEN 200 AND 299"
    ).fetchone()
    assert found
    return int(found[0])


@pytest.mark.parametrize("size", list(SIZES))
def test_a_file_that_is_closed_late_is_there(
    late: duckdb.DuckDBPyConnection, store: Fake, size: str, request: pytest.FixtureRequest
) -> None:
    query, count = SIZES[size]
    url = url_of(store, request, "xlsx")
    copied = late.execute(f"COPY ({query}) TO '{url}' (FORMAT xlsx, HEADER true)").fetchone()
    assert copied == (count,)
    parts = {"UploadPart", "PutBlock"} & {r["operation"] for r in store.requests()}
    assert bool(parts) == (size == "parts")
    assert rows(late, url) == count


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_late_close_that_fails_fails_the_statement(
    late: duckdb.DuckDBPyConnection,
    store: Fake,
    fault: str,
    size: str,
    request: pytest.FixtureRequest,
) -> None:
    url = url_of(store, request, "xlsx")
    store.arm(fault)
    with pytest.raises(duckdb.Error, match=url.split("/")[-1]):
        late.execute(f"COPY ({SIZES[size][0]}) TO '{url}' (FORMAT xlsx)")
    assert refusals(late, url) > 0
    store.reset()
    assert names(late, url) == []
    assert late.execute("SELECT 42").fetchone() == (42,), "it is told once"


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_file_of_gdal_is_there(
    late: duckdb.DuckDBPyConnection, store: Fake, driver: str, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, DRIVERS[driver])
    late.execute(f"COPY ({POINTS}) TO '{url}' (FORMAT gdal, DRIVER '{driver}')")
    size = late.execute(f"SELECT size FROM read_blob('{url}')").fetchone()
    assert size
    assert size[0] > 3000 * 10


@pytest.mark.parametrize("driver", list(DRIVERS))
@pytest.mark.parametrize("fault", FAULTS)
def test_the_cause_is_told_where_gdal_hides_it(
    late: duckdb.DuckDBPyConnection,
    store: Fake,
    fault: str,
    driver: str,
    request: pytest.FixtureRequest,
) -> None:
    url = url_of(store, request, DRIVERS[driver])
    store.arm(fault)
    with pytest.raises(duckdb.Error) as raised:
        late.execute(f"COPY ({POINTS}) TO '{url}' (FORMAT gdal, DRIVER '{driver}')")
    told = str(raised.value)
    assert url in told
    assert "403" in told or "connection" in told, told
    store.reset()
    assert names(late, url) == []


@pytest.mark.parametrize(
    ("driver", "extension"), [("GPX", "gpx"), ("MapInfo File", "tab"), ("ESRI Shapefile", "shp")]
)
def test_the_cause_of_a_refused_open_is_in_the_error_of_gdal(
    late: duckdb.DuckDBPyConnection,
    store: Fake,
    driver: str,
    extension: str,
    request: pytest.FixtureRequest,
) -> None:
    """These drivers write at any place of a file, which objects do not have."""
    url = url_of(store, request, extension)
    with pytest.raises(duckdb.Error, match="objects are written whole"):
        late.execute(f"COPY ({POINTS}) TO '{url}' (FORMAT gdal, DRIVER '{driver}')")
    assert names(late, url) == []


def test_in_a_transaction_the_next_statement_tells_of_a_late_close(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "xlsx")
    late.execute("CREATE TABLE t (i INTEGER)")
    store.arm("status=403,method=PUT")
    late.execute("BEGIN; INSERT INTO t VALUES (1)")
    late.execute(f"COPY ({SMALL}) TO '{url}' (FORMAT xlsx)")
    with pytest.raises(duckdb.Error, match=url.split("/")[-1]) as raised:
        late.execute("COMMIT")
    assert "run it again" in str(raised.value)
    late.execute("COMMIT")
    assert late.execute("SELECT count(*) FROM t").fetchone() == (1,)
    store.reset()
    assert names(late, url) == []


def test_in_a_transaction_a_file_that_is_closed_late_is_there(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "xlsx")
    late.execute("BEGIN")
    late.execute(f"COPY ({SMALL}) TO '{url}' (FORMAT xlsx, HEADER true)")
    assert rows(late, url) == 3000
    late.execute("COMMIT")


@pytest.mark.parametrize("end", ["DEALLOCATE p", "EXECUTE p", "close"])
def test_a_prepared_copy_closes_its_file_when_it_is_dropped_or_runs_again(
    late: duckdb.DuckDBPyConnection, store: Fake, end: str, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "xlsx")
    writer = late.cursor()
    writer.execute(f"PREPARE p AS COPY ({SMALL}) TO '{url}' (FORMAT xlsx, HEADER true)")
    assert writer.execute("EXECUTE p").fetchone() == (3000,)
    if end == "close":
        writer.close()
    else:
        writer.execute(end)
    assert rows(late, url) == 3000


@pytest.mark.parametrize("end", ["DEALLOCATE p", "EXECUTE p", "close"])
def test_a_prepared_copy_that_cannot_close_its_file_fails_a_statement(
    late: duckdb.DuckDBPyConnection, store: Fake, end: str, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "xlsx")
    writer = late.cursor()
    writer.execute(f"PREPARE p AS COPY ({SMALL}) TO '{url}' (FORMAT xlsx)")
    writer.execute("EXECUTE p")
    store.arm("status=403,method=PUT")
    with pytest.raises(duckdb.Error, match=url.split("/")[-1]):
        if end == "close":
            writer.close()
            late.execute("SELECT 42")
        else:
            writer.execute(end)
            # One that writes files itself leaves it to the next.
            writer.execute("SELECT 42")
    store.reset()
    assert late.execute("SELECT 42").fetchone() == (42,), "it is told once"


@pytest.mark.parametrize("size", list(SIZES))
def test_a_statement_that_fails_publishes_no_half_file(
    late: duckdb.DuckDBPyConnection, store: Fake, size: str, request: pytest.FixtureRequest
) -> None:
    query, count = SIZES[size]
    url = url_of(store, request, "xlsx")
    late.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT xlsx, HEADER true)")
    store.reset()
    bad = f"SELECT *, CASE WHEN i = {count - 1} THEN error('stop here') END AS e FROM ({query})"
    with pytest.raises(duckdb.Error, match="stop here"):
        late.execute(f"COPY ({bad}) TO '{url}' (FORMAT xlsx)")
    assert rows(late, url) == 1
    assert "DELETE" not in {r["method"] for r in store.requests() if "uploadId" not in str(r)}


def test_an_interrupted_statement_publishes_no_half_file(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "xlsx")
    store.arm("stall=60000,method=PUT")
    thread = interrupt_when_asked(late, store)
    with pytest.raises(duckdb.InterruptException):
        late.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT xlsx)")
    thread.join()
    store.reset()
    assert names(late, url) == []


def test_an_interrupt_in_a_late_close_is_told(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    """The rows are counted by then, and only the upload is still to come."""
    url = url_of(store, request, "xlsx")
    late.execute("SET penstock_request_deadline_ms = 60000")
    store.arm("stall=60000,method=PUT")
    thread = interrupt_when_asked(late, store)
    with pytest.raises(duckdb.InterruptException):
        late.execute(f"COPY ({SMALL}) TO '{url}' (FORMAT xlsx)")
    thread.join()
    store.reset()
    assert names(late, url) == []


def test_a_prepared_copy_that_failed_removes_nothing_when_it_is_dropped(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "parquet")
    late.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT parquet)")
    late.execute("CREATE TABLE t AS FROM range(10) t(i)")
    late.execute(
        "PREPARE p AS COPY (SELECT CASE WHEN i = 9 THEN error('stop here') END AS e FROM t) "
        f"TO '{url}' (FORMAT parquet)"
    )
    with pytest.raises(duckdb.Error, match="stop here"):
        late.execute("EXECUTE p")
    late.execute("DEALLOCATE p")
    assert late.execute(f"SELECT v FROM '{url}'").fetchall() == [(7,)]


def prepared(con: duckdb.DuckDBPyConnection, url: str, count: int) -> duckdb.DuckDBPyConnection:
    """A connection with so many statements that have run, and whose files close when it does."""
    writer = con.cursor()
    for number in range(count):
        writer.execute(f"PREPARE p{number} AS COPY ({SMALL}) TO '{url}{number}.xlsx' (FORMAT xlsx)")
        writer.execute(f"EXECUTE p{number}")
    return writer


@pytest.mark.parametrize("count", [2, 7])
def test_of_many_late_failures_the_first_few_are_named_and_the_others_counted(
    late: duckdb.DuckDBPyConnection, store: Fake, count: int, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request, "")
    writer = prepared(late, url, count)
    store.arm("status=403,method=PUT")
    writer.close()
    with pytest.raises(duckdb.Error) as raised:
        late.execute("SELECT 42")
    told = str(raised.value)
    named = {number for number in range(count) if f"{number}.xlsx" in told}
    assert f"{count} files" in told
    assert len(named) == min(count, 3)
    assert (f"{count - 3} others" in told) == (count > 3)
    failed = late.execute(
        "SELECT DISTINCT url FROM penstock_requests() WHERE status = 403 AND url LIKE '%.xlsx'"
    ).fetchall()
    mine = {row[0] for row in failed if url.split("/")[-1] in row[0]}
    assert len(mine) == count
    store.reset()
    assert late.execute("SELECT 42").fetchone() == (42,), "it is told once"


LEFT = """
import sys, time
from harness import connect, load_pypi
from test_late_close import prepared

con = connect()
load_pypi(con, "excel")
con.execute(f"CREATE SECRET s ({sys.argv[2]})")
writer = prepared(con, sys.argv[1], 3)
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
writer.close()
con.close()
print(time.monotonic() - began)
"""


@pytest.mark.parametrize("fault", ["status=403,method=PUT", "status=503,method=PUT"])
def test_a_late_failure_that_no_statement_follows_is_told_at_the_end_which_comes_soon(
    store: Fake, fault: str, request: pytest.FixtureRequest
) -> None:
    need_package("duckdb-extension-excel")
    url = url_of(store, request, "")
    command = [sys.executable, "-c", LEFT, url, store.secret]
    here = Path(__file__).parent
    with subprocess.Popen(
        command, cwd=here, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        store.arm(fault)
        took, said = process.communicate("go\n", timeout=100)
    assert process.returncode == 0, said
    store.reset()
    assert "penstock: 3 files" in said
    for number in range(3):
        assert f"{number}.xlsx" in said
    # All files together have 15 seconds; each has a last attempt after them.
    assert float(took) < 40


def test_many_connections_close_late_together(
    late: duckdb.DuckDBPyConnection, store: Fake, request: pytest.FixtureRequest
) -> None:
    """A failure is told to the connection whose file it is."""
    url = url_of(store, request, "")
    store.arm("status=403,method=PUT,key=*3.xlsx")
    failed: list[int] = []

    def copy(number: int) -> None:
        con = late.cursor()
        try:
            con.execute(f"COPY ({SMALL}) TO '{url}{number}.xlsx' (FORMAT xlsx)")
        except duckdb.Error as error:
            assert f"{number}.xlsx" in str(error)
            failed.append(number)

    threads = [threading.Thread(target=copy, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.reset()
    assert failed == [3]
    assert len(names(late, url)) == 5
