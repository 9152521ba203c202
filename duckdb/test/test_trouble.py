"""Bad input and trouble: the right data, or an error that names object, cause and cure."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import duckdb
import pytest
from harness import AZURE_ACCOUNT, AZURE_KEY, Fake, connect, start_fake

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
    ("fault", "cause"),
    [
        ("wrong-range=+1", "another range than asked"),
        ("wrong-range=-1", "another range than asked"),
        ("html", "proxy"),
        ("lie-length=-10", ""),
        ("truncate=1000", ""),
        ("ignore-range", "range"),
    ],
)
def test_a_lying_server_gives_no_wrong_answer(
    fault: str, cause: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute(RETRIES)
    con.execute("SET penstock_request_deadline_ms = 500")
    url = table(con, store, "trouble/lied.parquet")
    store.arm(f"{fault},method=GET")
    try:
        got = answer(con, url)
    except duckdb.Error as error:
        assert url in str(error)
        assert cause in str(error)
    else:
        assert got == RIGHT
        assert fault not in ("html", "truncate=1000")


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_proxy_that_answers_html_is_named(
    method: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute(RETRIES)
    url = store.url("trouble/page.csv")
    store.arm(f"html,method={method}")
    statement = f"FROM '{url}'" if method == "GET" else f"COPY (SELECT 1 AS v) TO '{url}'"
    with pytest.raises(duckdb.Error) as caught:
        con.execute(statement)
    for part in (url, "proxy"):
        assert part in str(caught.value)
    assert len(store.requests()) <= 8, "a page that stays is not asked for long"
    store.reset()
    assert con.execute(f"FROM glob('{url}*')").fetchall() == []


def test_503_for_ten_seconds_only_slows(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = table(con, store, "trouble/slow.parquet")
    store.arm("status=503")
    timer = threading.Timer(10, store.reset)
    timer.start()
    began = time.monotonic()
    assert answer(con, url) == RIGHT
    assert time.monotonic() - began >= 9
    timer.join()


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
    assert caught.value.reason == "Service Unavailable"


def test_failures_are_told_in_the_words_of_httpfs(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url("trouble/words.csv")
    with pytest.raises(duckdb.HTTPException) as missing:
        con.execute(f"FROM '{url}'")
    assert f"HTTP GET error on '{url}' (HTTP 404 Not Found). " in str(missing.value)
    assert (missing.value.status_code, missing.value.reason) == (404, "Not Found")
    store.arm("status=403")
    with pytest.raises(duckdb.HTTPException) as refused:
        con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
    assert f"Unable to connect to URL {url}: Forbidden (HTTP code 403). " in str(refused.value)
    con.execute("SET penstock_request_deadline_ms = 300; SET penstock_retry_base_ms = 1")
    with pytest.raises(duckdb.IOException) as unreached:
        con.execute("FROM 'http://127.0.0.1:1/x.csv'")
    assert "error for HTTP HEAD to 'http://127.0.0.1:1/x.csv'. " in str(unreached.value)
    assert not isinstance(unreached.value, duckdb.HTTPException)
    with pytest.raises(duckdb.InvalidInputException, match=r"Globs \(`\*`\) for generic HTTP"):
        con.execute("FROM 'http://127.0.0.1:1/*.csv'")


def test_a_missing_account_is_told_in_the_words_of_azure() -> None:
    with pytest.raises(duckdb.InvalidInputException, match=r"^Invalid Input Error: No valid Azure"):
        connect().execute("FROM 'az://container/x.csv'")


def test_a_403_is_told_at_once_and_shows_no_secret(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    store.arm("status=403")
    with pytest.raises(duckdb.HTTPException, match=r"trouble/denied.csv") as caught:
        con.execute(f"FROM '{store.url('trouble/denied.csv')}'")
    assert f"secret '{store.kind}_secret'" in str(caught.value)
    assert len(store.requests()) == 1
    assert AZURE_KEY not in str(caught.value)


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_wrong_key_shows_neither_key(kind: str, fakes: dict[str, Fake]) -> None:
    con = connect()
    wrong = "hunter2hunter2"
    url = fakes[kind].url("trouble/x.csv")
    secret = fakes[kind].secret.replace("'test'", f"'{wrong}'").replace(AZURE_KEY, wrong + "aa")
    con.execute(f"CREATE SECRET s ({secret})")
    for statement in (f"COPY (SELECT 1) TO '{url}'", f"FROM '{url}'"):
        with pytest.raises(duckdb.HTTPException) as caught:
            con.execute(statement)
        for part in (url, "secret 's'"):
            assert part in str(caught.value)
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


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_without_such_files_says_how_to_read_it(
    slash: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    root = store.url("trouble/directory")
    con.execute(
        f"COPY (SELECT i, i % 2 AS p FROM range(10) t(i)) TO '{root}' "
        "(FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    rows = con.execute(f"SELECT count(*) FROM read_parquet('{root}{slash}')").fetchone()
    assert rows == (10,), "a directory stands for the files of the reader's own kind"
    for read in ("read_csv", "read_json", "read_text"):
        with pytest.raises(duckdb.Error) as caught:
            con.execute(f"FROM {read}('{root}{slash}')")
        assert f"{root}{slash}" in str(caught.value)
        assert f"to read a directory use `{root}/*.parquet`" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("AccountName;AccountKey=c2VjcmV0a2V5", "AccountName"),
        ("AccountName=x;AccountKey=c2VjcmV0%a2V5", "base64"),
        ("BlobEndpoint=:;AccountKey=c2VjcmV0a2V5", "BlobEndpoint"),
        ("AccountName=x;AccountKey=c2VjcmV0a2V5;AccountKey=c2VjcmV0a2V5", "twice"),
    ],
)
def test_a_malformed_connection_string_is_named_and_not_shown(text: str, cause: str) -> None:
    con = connect()
    con.execute(f"CREATE SECRET a (TYPE azure, CONNECTION_STRING '{text}')")
    for statement in ("FROM 'az://trouble/x.csv'", "COPY (SELECT 1) TO 'az://trouble/x.csv'"):
        with pytest.raises(duckdb.Error) as caught:
            con.execute(statement)
        assert "az://trouble/" in str(caught.value)
        assert cause in str(caught.value)
        assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("offset_s", [3600, -3600])
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_clock_off_by_an_hour(kind: str, offset_s: int) -> None:
    fake = start_fake(kind, "--clock-offset-s", str(offset_s))
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret})")
        url = fake.url("trouble/clock.csv")
        with pytest.raises(duckdb.HTTPException) as caught:
            con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
        ours = "behind" if offset_s > 0 else "ahead of"
        for part in (url, f"{ours} the server's", "set the clock"):
            assert part in str(caught.value)
        assert AZURE_KEY not in str(caught.value)
    finally:
        fake.stop()


def test_an_expired_signature_is_named_and_not_shown(fakes: dict[str, Fake]) -> None:
    con = connect()
    sas = "sv=2021-08-06&ss=b&srt=sco&sp=rwlc&se=2020-01-01T00:00:00Z&sig=aHVudGVyMg%3D%3D"
    string = f"BlobEndpoint=http://{fakes['azure'].address}/{AZURE_ACCOUNT};"
    con.execute(
        f"CREATE SECRET s (TYPE azure, CONNECTION_STRING '{string}SharedAccessSignature={sas}')"
    )
    with pytest.raises(duckdb.HTTPException) as caught:
        con.execute("FROM 'az://trouble/x.csv'")
    for part in ("az://trouble/x.csv", "secret 's'", "its expiry (se=)"):
        assert part in str(caught.value)
    assert "aHVudGVyMg" not in str(caught.value)
    shown = con.execute("SELECT url, error FROM penstock_requests()").fetchall()
    assert "aHVudGVyMg" not in str(shown)


def test_an_expired_token() -> None:
    fake = start_fake("s3", "--session-token", "fresh")
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret}, SESSION_TOKEN 'staletoken')")
        with pytest.raises(duckdb.HTTPException) as caught:
            con.execute("COPY (SELECT 1) TO 's3://trouble/x.csv'")
        for part in ("s3://trouble/x.csv", "secret 's'"):
            assert part in str(caught.value)
        assert "staletoken" not in str(caught.value)
        con.execute(f"CREATE OR REPLACE SECRET s ({fake.secret}, SESSION_TOKEN 'fresh')")
        con.execute("COPY (SELECT 1) TO 's3://trouble/x.csv'")
    finally:
        fake.stop()


# A name that another extension or a local directory may have is not ours to refuse: `b2://` and
# `ks3://` are schemes of other stores, one letter from ours.
@pytest.mark.parametrize("scheme", ["foo", "s4", "azz"])
def test_an_unknown_scheme_stays_duckdbs_business(
    scheme: str, con: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(duckdb.IOException, match=rf'No files found.*"{scheme}://trouble/x.csv"'):
        con.execute(f"FROM '{scheme}://trouble/x.csv'")
    with pytest.raises(duckdb.IOException, match=rf"{scheme}://trouble/x.csv"):
        con.execute(f"COPY (SELECT 1) TO '{scheme}://trouble/x.csv'")


def test_schemes_are_taken_in_any_case(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    lower = store.url("trouble/capitals")
    upper = lower.replace(lower[: lower.index(":")], lower[: lower.index(":")].upper())
    con.execute(f"COPY (SELECT 1 AS v) TO '{upper}/one.parquet'")
    con.execute(
        f"COPY (SELECT i, i % 2 AS p FROM range(10) t(i)) TO '{upper}/parts' "
        "(FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    for root in (lower, upper):
        assert con.execute(f"FROM '{root}/one.parquet'").fetchall() == [(1,)]
        rows = con.execute(f"SELECT count(*) FROM '{root}/parts/*/*.parquet'").fetchone()
        assert rows == (10,)
        files = con.execute(f"FROM glob('{root}/**')").fetchall()
        assert len(files) == 3
        assert all(file.startswith(f"{root}/") for (file,) in files)


class Stranger(threading.Thread):
    """A server that is no store: it says `greeting` and hangs up."""

    def __init__(self, greeting: bytes) -> None:
        super().__init__()
        self.greeting = greeting
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                client.sendall(self.greeting)
                client.recv(1)

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join()


@pytest.fixture(params=["ssh", "postgres", "mysql", "tls"])
def stranger(request: pytest.FixtureRequest) -> Iterator[Stranger]:
    """What may listen on a port that was mistaken for the store's."""
    greeting = {
        "ssh": b"SSH-2.0-OpenSSH_9.9\r\n",
        "postgres": b"",
        "mysql": b"J\x00\x00\x00\x0a8.4.0\x00",
        "tls": b"\x15\x03\x01\x00\x02\x02\x46",
    }[request.param]
    server = Stranger(greeting)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("use_ssl", ["false", "true"])
def test_a_wrong_port_is_told_within_seconds(stranger: Stranger, use_ssl: str) -> None:
    con = connect()
    con.execute(
        "CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hunter2', REGION 'us-east-1', "
        f"ENDPOINT '{stranger.address}', URL_STYLE 'path', USE_SSL {use_ssl})"
    )
    began = time.monotonic()
    with pytest.raises(duckdb.Error) as caught:
        con.execute("FROM 's3://trouble/x.csv'")
    assert time.monotonic() - began < 15
    text = str(caught.value)
    assert "s3://trouble/x.csv" in text
    assert "port" in text or "TLS" in text, text
    assert "hunter2" not in text


def test_a_host_that_does_not_exist_is_told_within_seconds() -> None:
    con = connect()
    con.execute(
        "CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hunter2', REGION 'us-east-1', "
        "ENDPOINT 'no-such-host.invalid', URL_STYLE 'path')"
    )
    began = time.monotonic()
    with pytest.raises(duckdb.IOException, match=r"s3://trouble/x.csv.*cannot be resolved"):
        con.execute("FROM 's3://trouble/x.csv'")
    assert time.monotonic() - began < 30, "the default deadline is two minutes"


def test_appending_is_refused_clearly(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    with pytest.raises(duckdb.Error, match=r"READ_ONLY|read-only"):
        con.execute(f"ATTACH '{store.url('trouble/new.db')}' AS new (READ_WRITE)")
