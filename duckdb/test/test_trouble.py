"""Bad input and trouble: the right data, or an error that names object, cause and cure."""

from __future__ import annotations

import duckdb
import pytest
from harness import AZURE_KEY, Fake, connect, start_fake

RETRIES = "SET penstock_retry_base_ms = 1; SET penstock_retry_max_ms = 20"


def table(con: duckdb.DuckDBPyConnection, store: Fake, name: str, rows: int = 200_000) -> str:
    """Writes a Parquet file of several row groups and forgets what is known of it."""
    url = store.url(name)
    con.execute(
        f"COPY (SELECT i, hash(i) AS h FROM range({rows}) t(i)) TO '{url}' (ROW_GROUP_SIZE 30000)"
    )
    con.execute("CALL penstock_clear_cache()")
    store.reset()
    return url


def answer(con: duckdb.DuckDBPyConnection, url: str) -> tuple[int, int]:
    row = con.execute(f"SELECT count(*), sum(i) FROM '{url}' WHERE h IS NOT NULL").fetchone()
    assert row
    return int(row[0]), int(row[1])


RIGHT = (200_000, sum(range(200_000)))


@pytest.mark.parametrize(
    "fault",
    [
        "status=503,times=3",
        "status=500,times=3",
        "status=429,times=2,retry-after=0",
        "reset,times=3",
        "cut=1000,times=3",
        "truncate=1000,times=2",
        "latency=20",
    ],
)
def test_a_scan_survives(fault: str, con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    con.execute(RETRIES)
    url = table(con, store, "trouble/scan.parquet")
    store.arm(f"{fault},method=GET")
    assert answer(con, url) == RIGHT


@pytest.mark.parametrize(
    "fault",
    ["status=503,times=3", "reset,times=3", "reset-upload=100,times=3", "lost-answer,times=1"],
)
def test_a_copy_survives(fault: str, con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    con.execute(RETRIES)
    store.arm(f"{fault},method=PUT")
    url = store.url("trouble/copied.parquet")
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(200000) t(i)) TO '{url}'")
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    assert answer(con, url) == RIGHT


@pytest.mark.parametrize(
    "fault", ["wrong-range=+1", "wrong-range=-1", "html", "lie-length=-10", "ignore-range"]
)
def test_a_lying_server_gives_no_wrong_answer(
    fault: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute(RETRIES)
    con.execute("SET penstock_request_deadline_ms = 500")
    url = table(con, store, "trouble/lied.parquet")
    store.arm(f"{fault},method=GET")
    try:
        got = answer(con, url)
    except duckdb.Error as error:
        assert "trouble/lied.parquet" in str(error)
    else:
        assert got == RIGHT


def test_an_object_replaced_between_open_and_read_is_an_error(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = table(con, store, "trouble/replaced.parquet", rows=2_000_000)
    store.arm("replace,method=GET,nth=3,times=1")
    with pytest.raises(duckdb.Error, match=r"trouble/replaced.parquet.*changed"):
        answer(con, url)
    store.reset()


def test_a_store_that_stays_down_is_told_within_the_deadline(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute(RETRIES)
    con.execute("SET penstock_request_deadline_ms = 300")
    store.arm("status=503")
    with pytest.raises(duckdb.HTTPException, match=r"trouble/down.csv.*503") as caught:
        con.execute(f"FROM '{store.url('trouble/down.csv')}'")
    assert caught.value.status_code == 503


def test_a_403_is_told_at_once_and_shows_no_secret(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    store.arm("status=403")
    with pytest.raises(duckdb.PermissionException, match=r"trouble/denied.csv") as caught:
        con.execute(f"FROM '{store.url('trouble/denied.csv')}'")
    assert len(store.requests()) == 1
    assert AZURE_KEY not in str(caught.value)


def test_a_wrong_key_shows_neither_key(fakes: dict[str, Fake]) -> None:
    con = connect()
    wrong = "hunter2hunter2"
    con.execute("CREATE SECRET s (" + fakes["s3"].secret.replace("'test'", f"'{wrong}'") + ")")
    with pytest.raises(duckdb.PermissionException, match=r"s3://trouble/x.csv") as caught:
        con.execute("COPY (SELECT 1) TO 's3://trouble/x.csv'")
    assert wrong not in str(caught.value)
    shown = con.execute("SELECT url, error FROM penstock_requests()").fetchall()
    assert wrong not in str(shown)


def test_no_secret_at_all_says_so() -> None:
    con = connect()
    con.execute("SET s3_endpoint = '127.0.0.1:1'; SET s3_use_ssl = false")
    con.execute("SET s3_url_style = 'path'; SET s3_region = 'us-east-1'")
    con.execute(f"{RETRIES}; SET penstock_request_deadline_ms = 200")
    with pytest.raises(duckdb.Error, match=r"s3://trouble/x.csv"):
        con.execute("FROM 's3://trouble/x.csv'")


def test_missing_bucket_and_object_are_named(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    with pytest.raises(duckdb.IOException, match=r"missing-bucket/x.csv"):
        con.execute(f"FROM '{store.url('missing-bucket/x.csv')}'")
    with pytest.raises(duckdb.Error, match="missing-bucket"):
        con.execute(f"COPY (SELECT 1) TO '{store.url('missing-bucket/x.csv')}'")
    with pytest.raises(duckdb.IOException, match=r"trouble/nothing.csv"):
        con.execute(f"FROM '{store.url('trouble/nothing.csv')}'")


@pytest.mark.parametrize(
    "text", ["AccountName", "AccountName=x;AccountKey=no%base64", "BlobEndpoint=:"]
)
def test_a_malformed_connection_string_is_named_and_not_shown(text: str) -> None:
    con = connect()
    con.execute(f"CREATE SECRET a (TYPE azure, CONNECTION_STRING '{text};AccountKey=c2VjcmV0a2V5')")
    with pytest.raises(duckdb.Error) as caught:
        con.execute("FROM 'az://trouble/x.csv'")
    assert "c2VjcmV0a2V5" not in str(caught.value)


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_clock_off_by_an_hour(kind: str) -> None:
    fake = start_fake(kind, "--clock-offset-s", "3600")
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret})")
        url = fake.url("trouble/clock.csv")
        try:
            con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
        except duckdb.PermissionException as error:
            assert "clock" in str(error).lower()
        else:
            assert con.execute(f"FROM '{url}'").fetchall() == [(1,)]
    finally:
        fake.stop()


def test_an_expired_token(fakes: dict[str, Fake]) -> None:
    fake = start_fake("s3", "--session-token", "fresh")
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret}, SESSION_TOKEN 'staletoken')")
        with pytest.raises(duckdb.PermissionException) as caught:
            con.execute("COPY (SELECT 1) TO 's3://trouble/x.csv'")
        assert "staletoken" not in str(caught.value)
        con.execute(f"CREATE OR REPLACE SECRET s ({fake.secret}, SESSION_TOKEN 'fresh')")
        con.execute("COPY (SELECT 1) TO 's3://trouble/x.csv'")
    finally:
        fake.stop()


def test_an_unknown_scheme_stays_duckdbs_business(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error):
        con.execute("FROM 's4://trouble/x.csv'")


def test_appending_is_refused_clearly(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    with pytest.raises(duckdb.Error, match=r"READ_ONLY|read-only"):
        con.execute(f"ATTACH '{store.url('trouble/new.db')}' AS new (READ_WRITE)")
