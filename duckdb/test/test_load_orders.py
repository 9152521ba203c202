"""httpfs, azure and aws: loaded before, after, or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import duckdb
import pytest
from harness import EXTENSION, Fake, connect, in_a_process, load_penstock, load_pypi

OTHERS = ("httpfs", "azure", "aws")
ORDERS = [
    order
    for count in range(len(OTHERS) + 1)
    for some in permutations(OTHERS, count)
    for at in range(count + 1)
    for order in [(*some[:at], "penstock", *some[at:])]
]


def load(con: duckdb.DuckDBPyConnection, name: str) -> None:
    if name == "penstock":
        load_penstock(con)
    else:
        load_pypi(con, name)


def sent(con: duckdb.DuckDBPyConnection) -> int:
    row = con.execute("SELECT value FROM penstock_stats() WHERE name = 'requests'").fetchone()
    assert row
    return int(row[0])


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_every_order_reads_and_writes(order: tuple[str, ...], fakes: dict[str, Fake]) -> None:
    con = connect(load=False)
    for name in order:
        load(con, name)
    for kind, fake in fakes.items():
        fake.reset()
        con.execute(f"CREATE SECRET {kind} ({fake.secret})")
        before = sent(con)
        con.execute(f"COPY (SELECT 42 AS i) TO '{fake.url('orders/x.csv')}'")
        assert con.execute(f"FROM '{fake.url('orders/x.csv')}'").fetchall() == [(42,)]
        assert sent(con) - before == len(fake.requests()), "every request was ours"
        con.execute(f"DROP SECRET {kind}")
    con.close()


@pytest.mark.parametrize("name", OTHERS)
def test_secret_types_survive_a_failed_load(name: str, tmp_path: Path) -> None:
    con = connect()
    broken = tmp_path / f"{name}.duckdb_extension"
    broken.write_bytes(b"no extension")
    with pytest.raises(duckdb.Error):
        con.execute(f"LOAD '{broken}'")
    con.execute("CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')")
    con.execute("CREATE SECRET c (TYPE s3, PROVIDER credential_chain, CHAIN 'env')")
    con.execute("CREATE SECRET a (TYPE azure, PROVIDER managed_identity, ACCOUNT_NAME 'x')")
    # and the real one still loads
    load_pypi(con, name)


def test_a_secret_made_by_us_is_used_after_httpfs_came(fakes: dict[str, Fake]) -> None:
    con = connect()
    con.execute(f"CREATE SECRET s ({fakes['s3'].secret})")
    load_pypi(con, "httpfs")
    con.execute("COPY (SELECT 1 AS i) TO 's3://orders/y.csv'")
    assert con.execute("FROM 's3://orders/y.csv'").fetchall() == [(1,)]
    con.execute(f"CREATE OR REPLACE SECRET s ({fakes['s3'].secret})")
    assert con.execute("FROM 's3://orders/y.csv'").fetchall() == [(1,)]


@pytest.mark.parametrize("maker", ["penstock", "httpfs"])
def test_persistent_secrets(maker: str, fakes: dict[str, Fake], tmp_path: Path) -> None:
    first = connect(load=False, secret_directory=str(tmp_path))
    load(first, maker)
    first.execute(f"CREATE PERSISTENT SECRET kept ({fakes['s3'].secret})")
    first.close()
    second = connect(secret_directory=str(tmp_path))
    second.execute("COPY (SELECT 7 AS i) TO 's3://orders/kept.csv'")
    assert second.execute("FROM 's3://orders/kept.csv'").fetchall() == [(7,)]
    second.execute("DROP SECRET kept")
    assert second.execute("SELECT count(*) FROM duckdb_secrets()").fetchone() == (0,)


def test_credential_chain_reads_the_environment(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    rest = f"REGION 'us-east-1', ENDPOINT '{fakes['s3'].address}', URL_STYLE 'path', USE_SSL false"
    for others in ((), ("aws",), ("httpfs", "aws")):
        con = connect()
        for name in others:
            load_pypi(con, name)
        con.execute(f"CREATE SECRET s (TYPE s3, PROVIDER credential_chain, CHAIN 'env', {rest})")
        con.execute("COPY (SELECT 1 AS i) TO 's3://orders/chain.csv'")
        con.close()


def test_settings_of_httpfs_keep_their_types() -> None:
    settings = "SELECT name, input_type, value FROM duckdb_settings()"
    plain = {row[0] for row in connect(load=False).execute(settings).fetchall()}
    ours = {row[0]: row[1:] for row in connect().execute(settings).fetchall()}
    theirs_con = connect(load=False)
    for name in OTHERS:
        load_pypi(theirs_con, name)
    rows = theirs_con.execute(settings).fetchall()
    theirs = {row[0]: row[1:] for row in rows if row[0] not in plain}
    assert "http_timeout" in theirs
    types = {name: ours[name][0] if name in ours else None for name in theirs}
    assert types == {name: row[0] for name, row in theirs.items()}
    # azure gives some defaults in other types than their settings have.
    of_s3 = {name: row for name, row in theirs.items() if name.startswith("s3_")}
    assert {name: ours[name] for name in of_s3} == of_s3


@pytest.mark.parametrize("first", ["penstock", "httpfs"])
def test_a_setting_that_is_not_followed_is_told_in_either_order(
    first: str, fakes: dict[str, Fake]
) -> None:
    con = connect(load=False)
    for name in ("penstock", "httpfs") if first == "penstock" else ("httpfs", "penstock"):
        load(con, name)
    con.execute("CALL enable_logging(level = 'warning')")
    con.execute(f"CREATE SECRET s ({fakes['s3'].secret})")
    con.execute("SET http_retries = 7; SET http_timeout = 60")
    con.execute("COPY (SELECT 1 AS i) TO 's3://orders/told.csv'")
    told = con.execute("SELECT message FROM duckdb_logs WHERE log_level = 'WARNING'").fetchall()
    assert [message for (message,) in told if "http_retries" in message] == [told[0][0]], told


@pytest.mark.parametrize("first", ["penstock", "httpfs"])
def test_the_environment_that_httpfs_copies_is_put_aside(
    first: str, fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fakes["s3"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("DUCKDB_S3_ENDPOINT", fake.address)
    monkeypatch.setenv("DUCKDB_S3_USE_SSL", "False")
    con = connect(load=False)
    for name in ("penstock", "httpfs") if first == "penstock" else ("httpfs", "penstock"):
        load(con, name)
    shown = con.execute("SELECT current_setting('s3_access_key_id')").fetchone()
    assert shown == ("test",), "httpfs copies it"
    copy = "COPY (SELECT 1 AS i) TO 's3://orders/copied.csv'"
    con.execute(copy)
    con.execute("SET enable_global_s3_configuration = false")
    con.execute(f"SET s3_endpoint = '{fake.address}'; SET s3_use_ssl = false")
    with pytest.raises(duckdb.Error, match=r"403|denied|credentials"):
        con.execute(copy)
    con.execute("SET s3_access_key_id = 'test'; SET s3_secret_access_key = 'test'")
    con.execute(copy)


def values(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return dict(con.execute("SELECT name, value FROM duckdb_settings()").fetchall())


def test_httpfs_gets_its_callbacks() -> None:
    con = connect()
    con.execute("SET GLOBAL httpfs_connection_caching = true")
    with pytest.raises(duckdb.InvalidInputException, match="are known"):
        con.execute("SET httpfs_client_implementation = 'wasm'")
    before = values(con)
    con.execute("SET http_timeout = 7; SET httpfs_client_implementation = 'curl'")
    load_pypi(con, "httpfs")
    own = "only `curl`, `httplib` and `default` are currently supported"
    with pytest.raises(duckdb.InvalidInputException, match=own):
        con.execute("SET httpfs_client_implementation = 'wasm'")
    con.execute("SET httpfs_client_implementation = 'httplib'")
    about = "SELECT name, description FROM duckdb_settings() WHERE name LIKE 'httpfs_c%'"
    assert dict(con.execute(about).fetchall()) == {
        "httpfs_client_implementation": "Select which is the HTTPUtil implementation to be used",
        "httpfs_connection_caching": "Enable connection caching for HTTP requests",
    }
    load_pypi(con, "azure")
    load_pypi(con, "aws")
    after = values(con)
    changed = {"http_timeout": "7", "httpfs_client_implementation": "httplib"}
    assert after.keys() == before.keys()
    assert {name: after[name] for name in before if after[name] != before[name]} == changed
    con.execute("RESET httpfs_client_implementation; RESET GLOBAL httpfs_connection_caching")
    assert values(con)["httpfs_client_implementation"] == "default"


def test_callbacks_stay_ours_where_httpfs_does_not_load(tmp_path: Path) -> None:
    con = connect()
    broken = tmp_path / "httpfs.duckdb_extension"
    broken.write_bytes(b"no extension")
    before = values(con)
    with pytest.raises(duckdb.Error):
        con.execute(f"LOAD '{broken}'")
    with pytest.raises(duckdb.InvalidInputException, match="are known"):
        con.execute("SET httpfs_client_implementation = 'wasm'")
    assert values(con) == before


def load_together(con: duckdb.DuckDBPyConnection) -> None:
    gate = threading.Barrier(len(OTHERS))

    def load_one(name: str) -> None:
        cursor = con.cursor()
        gate.wait()
        load_pypi(cursor, name)

    with ThreadPoolExecutor(len(OTHERS)) as threads:
        list(threads.map(load_one, OTHERS))


def test_extensions_load_at_the_same_time() -> None:
    """What Penstock puts back after one must not stand in the way of another."""
    for _ in range(10):
        con = connect()
        load_together(con)
        con.execute("CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')")
        con.execute("CREATE SECRET a (TYPE azure, PROVIDER managed_identity, ACCOUNT_NAME 'a')")
        con.close()


def test_attach_works_with_and_without_httpfs(fakes: dict[str, Fake], tmp_path: Path) -> None:
    for others in ((), ("httpfs",)):
        con = connect()
        for name in others:
            load_pypi(con, name)
        con.execute(f"CREATE SECRET s ({fakes['s3'].secret})")
        local = tmp_path / f"local{len(others)}.db"
        con.execute(f"ATTACH '{local}' AS l; CREATE TABLE l.t AS SELECT 5 AS i; DETACH l")
        blob = f"(SELECT content FROM read_blob('{local}'))"
        con.execute(f"COPY {blob} TO 's3://orders/r.db' (FORMAT blob)")
        con.execute("ATTACH 's3://orders/r.db' AS r")
        assert con.execute("FROM r.t").fetchall() == [(5,)]
        con.close()


TOUCHED_BY_A_SCAN = """
import re, sys
from pathlib import Path
from harness import connect, load_penstock, load_pypi

def touched_kib():
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    code = [it for it in maps if re.match(r"\\S+ r-xp .*libduckdb.so\\n", it)]
    return sum(int(re.search(r"Rss: +(\\d+) kB", it)[1]) for it in code)

con = connect(load=False)
if sys.argv[2] == "httpfs":
    load_pypi(con, "httpfs")
load_penstock(con)
con.execute(f"CREATE SECRET s ({sys.argv[1]})")
con.execute("ATTACH 's3://orders/code.db' AS r")
before = touched_kib()
con.execute("SELECT sum(hash(i)) FROM r.t WHERE i % 7 = 3").fetchall()
print(before, touched_kib() - before)
"""


@pytest.mark.parametrize("others", ["none", "httpfs"])
def test_tables_behind_our_urls_are_scanned_by_the_duckdb_that_runs(
    fakes: dict[str, Fake], tmp_path: Path, others: str
) -> None:
    """What the extension is linked against is a second copy of DuckDB, which runs no plan."""
    con = connect()
    con.execute(f"CREATE SECRET s ({fakes['s3'].secret})")
    local = tmp_path / "code.db"
    con.execute(f"ATTACH '{local}' AS l; CREATE TABLE l.t AS FROM range(100_000) t(i); DETACH l")
    blob = f"(SELECT content FROM read_blob('{local}'))"
    con.execute(f"COPY {blob} TO 's3://orders/code.db' (FORMAT blob)")
    con.close()
    before, by_scan = map(int, in_a_process(TOUCHED_BY_A_SCAN, fakes["s3"].secret, others).split())
    # One file holds only what the extension calls; there is no second library then.
    is_one_file = not EXTENSION.with_name("libduckdb.so").exists()
    assert (before == 0) == is_one_file
    assert by_scan == 0
