"""Settings of httpfs, azure and aws where none of them is loaded: followed, or told instead."""

from __future__ import annotations

import re

import duckdb
import pytest
from harness import ROOT, Fake, connect


def warnings(con: duckdb.DuckDBPyConnection) -> list[str]:
    rows = con.execute("SELECT message FROM duckdb_logs WHERE log_level = 'WARNING'").fetchall()
    return [row[0] for row in rows]


@pytest.fixture
def logging() -> duckdb.DuckDBPyConnection:
    con = connect()
    con.execute("CALL enable_logging(level = 'warning')")
    return con


def test_a_setting_that_is_not_followed_is_told_once(logging: duckdb.DuckDBPyConnection) -> None:
    logging.execute("SET force_download = true; SET force_download = true; SET http_retries = 7")
    told = warnings(logging)
    assert len(told) == 2, told
    assert '"force_download" changes nothing in Penstock' in told[0]
    assert "penstock_request_deadline_ms" in told[1]


def test_what_asks_for_what_penstock_does_is_not_told(logging: duckdb.DuckDBPyConnection) -> None:
    logging.execute("SET force_download = false; SET httpfs_connection_caching = true")
    logging.execute("SET enable_server_cert_verification = true; SET http_timeout = 5")
    assert warnings(logging) == []


def test_every_name_can_be_set_and_reset() -> None:
    con = connect()
    assert con.execute("SELECT current_setting('s3_session_token')").fetchone() == (None,)
    page = (ROOT / "docs/reference.md").read_text()
    section = page.split("## Settings of httpfs, azure and aws", 1)[1].split("\n## ", 1)[0]
    names = re.findall(r"(?m)^\| `(\w+)`", section)
    assert len(names) > 50
    for name in names:
        known = con.execute(
            "SELECT input_type, value FROM duckdb_settings() WHERE name = ?", [name]
        ).fetchone()
        assert known, name
        number = known[1] if known[1] not in ("", "NULL", None) else "1"
        value = {"BOOLEAN": "true", "VARCHAR": "'default'", "VARCHAR[]": "['x']"}.get(known[0])
        if known[0].startswith("MAP"):
            value = "MAP {'X-A': 'b'}"
        con.execute(f"SET {name} = {value or number}")
        con.execute(f"RESET {name}")
    con.close()


def test_a_timeout_of_theirs_is_followed(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("their/slow.csv")
    con.execute(f"COPY (SELECT 1 AS i) TO '{url}'")
    con.execute("SET http_timeout = 1; SET http_retry_wait_ms = 1")
    con.execute("SET penstock_request_deadline_ms = 1500; CALL penstock_clear_cache()")
    store.arm("stall=60000,method=GET")
    with pytest.raises(duckdb.IOException, match=r"gave up after [2-9] attempts"):
        con.execute(f"FROM '{url}'").fetchall()


def test_values_that_httpfs_refuses_are_refused() -> None:
    con = connect()
    with pytest.raises(duckdb.InvalidInputException, match="Unsupported option for httpfs_client"):
        con.execute("SET httpfs_client_implementation = 'wget'")
    with pytest.raises(duckdb.InvalidInputException, match="valid option for ca_cert_file"):
        con.execute("SET ca_cert_file = NULL")
    con.execute("SET httpfs_client_implementation = 'curl'; SET ca_cert_file = 'README.md'")
    kept = con.execute("SELECT current_setting('ca_cert_file')").fetchone()
    assert kept
    assert str(kept[0]).endswith("/README.md")


VARIABLES = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "DUCKDB_S3_USE_SSL": "false",
    "DUCKDB_S3_REQUESTER_PAYS": "true",
    "DUCKDB_S3_KMS_KEY_ID": "kms-of-the-environment",
}


def test_the_environment_is_obeyed_shown_and_put_aside(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fakes["s3"]
    fake.reset()
    for name, text in (VARIABLES | {"DUCKDB_S3_ENDPOINT": fake.address}).items():
        monkeypatch.setenv(name, text)
    con = connect()
    shown = {
        name: con.execute(f"SELECT current_setting('s3_{name}')::VARCHAR").fetchone()
        for name in ("region", "endpoint", "use_ssl", "requester_pays", "kms_key_id")
    }
    assert shown == {
        "region": ("us-east-1",),
        "endpoint": (fake.address,),
        "use_ssl": ("false",),
        "requester_pays": ("true",),
        "kms_key_id": ("kms-of-the-environment",),
    }
    secret = con.execute("SELECT current_setting('s3_secret_access_key')").fetchone()
    assert secret == (None,), "a query cannot read credentials"
    con.execute("SET s3_kms_key_id = ''")
    for scheme in ("s3", "r2"):
        con.execute(f"COPY (SELECT 1 AS i) TO '{scheme}://their/environment.csv'")
        rows = con.execute(f"FROM '{scheme}://their/environment.csv'").fetchall()
        assert rows == [(1,)]
    con.execute("SET s3_access_key_id = ''")
    with pytest.raises(duckdb.Error, match=r"403|denied|credentials"):
        con.execute("COPY (SELECT 2 AS i) TO 's3://their/environment.csv'")
    con.execute("RESET s3_access_key_id")
    con.execute("COPY (SELECT 2 AS i) TO 's3://their/environment.csv'")
    port = fake.address.rpartition(":")[2]
    con.execute("SET enable_global_s3_configuration = false")
    con.execute(f"SET s3_endpoint = 'http://localhost:{port}'")
    with pytest.raises(duckdb.Error, match=r"403|denied|credentials"):
        con.execute("COPY (SELECT 3 AS i) TO 's3://their/environment.csv'")


def test_a_wrong_variable_of_theirs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKDB_S3_USE_SSL", "maybe")
    with pytest.raises(duckdb.InvalidInputException, match="DUCKDB_S3_USE_SSL"):
        connect()
