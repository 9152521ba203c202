"""A secret that is replaced while a statement runs: the statement goes on with the new one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import zlib
from collections.abc import Iterator
from urllib.parse import quote

import duckdb
import pytest
from harness import AZURE_ACCOUNT, AZURE_KEY, Fake, connect, start_fake, wait_until
from test_interruption import fired

ROWS = 2_000_000
LARGE = f"SELECT i, hash(i) AS h FROM range({ROWS}) t(i)"
OLD, NEW = "2040-01-01", "2041-01-01"
EXPIRED = {"s3": "status=400,code=ExpiredToken", "azure": "status=403,code=AuthenticationFailed"}
COMMIT = {"s3": "op=CompleteMultipartUpload", "azure": "op=PutBlockList"}


def secret(store: Fake, mark: str) -> str:
    """The options of a secret with a token that has this mark in each of its requests."""
    if store.kind == "s3":
        return f"{store.secret}, SESSION_TOKEN '{mark}'"
    fields = {
        "sv": "2018-11-09",
        "ss": "b",
        "srt": "sco",
        "sp": "rwdlac",
        "se": f"{mark}T00:00:00Z",
    }
    order = [fields["sp"], "b", "sco", "", fields["se"], "", "", fields["sv"]]
    text = "\n".join([AZURE_ACCOUNT, *order]) + "\n"
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    fields["sig"] = base64.b64encode(digest).decode()
    sas = "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())
    return (
        "TYPE azure, CONNECTION_STRING "
        f"'BlobEndpoint=http://{store.address}/{AZURE_ACCOUNT};SharedAccessSignature={sas}'"
    )


@pytest.fixture
def running(store: Fake) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the old secret."""
    con = connect()
    con.execute(f"CREATE SECRET s ({secret(store, OLD)})")
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_request_deadline_ms = 2000")
    yield con
    con.close()


@pytest.fixture
def url(store: Fake, request: pytest.FixtureRequest) -> str:
    """A name that no other test has, and that no reader takes for a directory's."""
    return store.url(f"replaced/{zlib.crc32(request.node.nodeid.encode()):x}.data")


def replaced_amid(
    con: duckdb.DuckDBPyConnection, store: Fake, options: str, *more: str
) -> threading.Thread:
    """Holds the first request of a statement until its secret is replaced and the old one ended."""
    store.arm("latency=30000,nth=1")

    def replace() -> None:
        wait_until(lambda: fired(store), "the first request")
        con.cursor().execute(f"CREATE OR REPLACE SECRET s ({options})")
        # At once: what follows the first request meets one or the other.
        store.tell("PUT", "faults", "\n".join([f"{EXPIRED[store.kind]},as={OLD}", *more]))

    thread = threading.Thread(target=replace)
    thread.start()
    return thread


def test_an_upload_goes_on_with_the_new_secret(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    thread = replaced_amid(running, store, secret(store, NEW))
    running.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT parquet)")
    thread.join()
    assert any(count for count in store.tell("GET", "faults")), "the old one was refused"
    found = running.execute(f"SELECT count(*), sum(i) FROM read_parquet('{url}')").fetchone()
    assert found == (ROWS, sum(range(ROWS)))


def test_an_upload_that_fails_is_aborted_with_the_new_secret(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    thread = replaced_amid(running, store, secret(store, NEW), f"status=507,{COMMIT[store.kind]}")
    with pytest.raises(duckdb.Error, match="507"):
        running.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT parquet)")
    thread.join()
    if store.kind == "s3":
        aborted = "AbortMultipartUpload"
        wait_until(lambda: aborted in {r["operation"] for r in store.requests()}, aborted)
        wait_until(lambda: store.unfinished_uploads(url) == [], "the end of the upload")
    store.reset()
    assert running.execute(f"FROM glob('{url}*')").fetchall() == []


def test_an_interrupted_upload_is_aborted_with_the_new_secret(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    thread = replaced_amid(running, store, secret(store, NEW), f"stall=60000,{COMMIT[store.kind]}")

    def interrupt() -> None:
        thread.join()
        wait_until(lambda: store.tell("GET", "faults")[1] > 0, "the end of the upload")
        running.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(duckdb.InterruptException):
        running.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT parquet)")
    interrupting.join()
    if store.kind == "s3":
        wait_until(lambda: store.unfinished_uploads(url) == [], "the abort")
    store.reset()
    assert running.execute(f"FROM glob('{url}*')").fetchall() == []


@pytest.mark.parametrize("threads", [1, 4])
def test_a_scan_goes_on_with_the_new_secret(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str, threads: int
) -> None:
    for number in range(4):
        running.execute(
            f"COPY (SELECT i, hash(i) AS h FROM range(200000) t(i)) TO '{url}/{number}.parquet'"
        )
    running.execute(f"CALL penstock_clear_cache(); SET threads = {threads}")
    store.reset()
    thread = replaced_amid(running, store, secret(store, NEW))
    found = running.execute(f"SELECT count(*), sum(i) FROM '{url}/*.parquet'").fetchone()
    thread.join()
    assert found == (800000, 4 * sum(range(200000)))
    assert any(count for count in store.tell("GET", "faults")), "the old one was refused"


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_new_secret_is_used_as_it_is_before_its_refresh_info(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    """Nobody has refused it, though somebody has refused the one before."""
    for number in range(4):
        running.execute(f"COPY (SELECT i FROM range(1000) t(i)) TO '{url}/{number}.parquet'")
    running.execute("CALL penstock_clear_cache(); CALL enable_logging(level = 'info')")
    store.reset()
    again = "REFRESH_INFO MAP {'KEY_ID': 'other', 'SECRET': 'other'}"
    thread = replaced_amid(running, store, f"{secret(store, NEW)}, {again}")
    found = running.execute(f"SELECT count(*) FROM '{url}/*.parquet'").fetchone()
    thread.join()
    assert found == (4000,)
    assert any(count for count in store.tell("GET", "faults")), "the old one was refused"
    made = "SELECT count(*) FROM duckdb_logs WHERE message LIKE 'Successfully refreshed secret%'"
    assert running.execute(made).fetchone() == (0,)
    # Once it is refused itself, it is made anew.
    running.execute("CALL penstock_clear_cache()")
    store.arm(f"{EXPIRED['s3']},as={NEW}")
    with pytest.raises(duckdb.HTTPException, match=r"40[03]"):
        running.execute(f"SELECT count(*) FROM '{url}/*.parquet'")
    assert running.execute(made).fetchone() == (1,)


def test_in_a_transaction_that_cannot_see_it_the_new_secret_is_used_too(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    running.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT parquet)")
    running.execute("BEGIN; SELECT 1")
    running.cursor().execute(f"CREATE OR REPLACE SECRET s ({secret(store, NEW)})")
    store.arm(f"{EXPIRED[store.kind]},as={OLD}")
    for _ in range(2):
        running.execute("CALL penstock_clear_cache()")
        assert running.execute(f"SELECT v FROM read_parquet('{url}')").fetchall() == [(7,)]
    running.execute("COMMIT")


def test_a_refusal_stands_where_the_secret_is_the_same(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    running.execute(f"COPY (SELECT 7 AS v) TO '{url}' (FORMAT csv)")
    running.execute("CALL penstock_clear_cache()")
    store.reset()
    store.arm(f"{EXPIRED[store.kind]},as={OLD}")
    with pytest.raises(duckdb.Error, match="refused"):
        running.execute(f"FROM read_csv('{url}', columns = {{'v': 'INTEGER'}})")
    assert len(store.requests()) == 1, "it was not sent again"


def test_a_new_secret_that_is_refused_too_ends_the_statement(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    thread = replaced_amid(running, store, secret(store, NEW), f"{EXPIRED[store.kind]},as={NEW}")
    with pytest.raises(duckdb.Error, match="refused"):
        running.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT parquet)")
    thread.join()


def test_a_statement_does_not_follow_its_secret_to_another_server(
    running: duckdb.DuckDBPyConnection, store: Fake, url: str
) -> None:
    other = start_fake(store.kind)
    try:
        thread = replaced_amid(running, store, secret(other, NEW))
        with pytest.raises(duckdb.Error, match="refused"):
            running.execute(f"COPY ({LARGE}) TO '{url}' (FORMAT parquet)")
        thread.join()
        assert other.requests() == []
    finally:
        other.stop()
