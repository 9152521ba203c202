"""Settings of httpfs, azure and aws where none of them is loaded: followed, or told instead."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_a_value_that_equals_a_default_is_a_value(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets it wants it, and not what Penstock has otherwise."""
    fake = fakes["s3"]
    monkeypatch.setenv("PENSTOCK_STALL_TIMEOUT_MS", "200")
    con = connect()
    con.execute(f"CREATE SECRET s ({fake.secret}); SET penstock_retry_base_ms = 1")
    con.execute("COPY (SELECT 1 AS i) TO 's3://their/default.csv'")

    def waits() -> bool:
        """Whether a request waits until the store breaks it, and is not given up before."""
        fake.reset()
        fake.arm("stall=1500,method=GET,times=1")
        (before,) = con.execute("SELECT max(number) FROM penstock_requests()").fetchone() or (0,)
        con.execute("CALL penstock_clear_cache(); FROM 's3://their/default.csv'").fetchall()
        longest = "SELECT max(duration_us) FROM penstock_requests() WHERE number > ?"
        (took_us,) = con.execute(longest, [before]).fetchone() or (0,)
        return bool(took_us >= 1_500_000)

    assert not waits(), "for 200 ms, and then it asks again"
    con.execute("SET http_timeout = 30")
    assert waits(), "httpfs's default, but set"
    con.execute("SET penstock_stall_timeout_ms = 200")
    assert not waits(), "ours counts before theirs, also where it is what the environment has"
    con.execute("RESET penstock_stall_timeout_ms")
    assert waits()
    con.execute("RESET http_timeout")
    assert not waits()
    # RESET has given this session a value, on DuckDB 1.5: another one sees that of the database.
    con = con.cursor()
    con.execute("SET penstock_retry_base_ms = 1; SET GLOBAL http_timeout = 30")
    assert waits()
    con.execute("RESET GLOBAL http_timeout")
    assert not waits()


def test_defaults_that_somebody_sets_are_told_and_no_others(
    logging: duckdb.DuckDBPyConnection, fakes: dict[str, Fake]
) -> None:
    logging.execute(f"CREATE SECRET s ({fakes['s3'].secret})")
    read = "COPY (FROM range(1)) TO 's3://their/told.csv'"
    logging.execute(read)
    logging.execute("RESET http_retries; RESET GLOBAL http_retries; RESET SESSION http_retries")
    logging.execute(read)
    assert warnings(logging) == []
    logging.cursor().execute(f"SET GLOBAL http_retries = 3; {read}")
    (told,) = warnings(logging)
    assert '"http_retries" changes nothing' in told


def test_the_marks_of_defaults_are_seen_by_nobody() -> None:
    con = connect()
    for name, kind in (("http_timeout", "UBIGINT"), ("s3_url_style", "VARCHAR")):
        of = f"current_setting('{name}')"
        assert con.execute(f"SELECT typeof({of})").fetchone() == (kind,)
        con.execute(f"CREATE OR REPLACE TABLE kept AS SELECT {of} AS v UNION ALL SELECT {of}")
        assert con.execute("SELECT count(DISTINCT v), count(*) FROM kept").fetchone() == (1, 2)
        assert con.execute(f"FROM kept WHERE v = {of}").fetchall() != []
    listed = "SELECT value FROM duckdb_settings() WHERE name IN ('http_timeout', 's3_url_style')"
    assert sorted(con.execute(listed).fetchall()) == [("30",), ("vhost",)]


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


def test_what_is_set_counts_where_the_environment_has_the_same(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fakes["s3"]
    fake.reset()
    environment = VARIABLES | {"DUCKDB_S3_ENDPOINT": fake.address}
    del environment["DUCKDB_S3_KMS_KEY_ID"]
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    con = connect()
    con.execute("SET enable_global_s3_configuration = false")
    con.execute(f"SET s3_endpoint = '{fake.address}'; SET s3_use_ssl = false")
    copy = "COPY (SELECT 1 AS i) TO 's3://their/same.csv'"
    with pytest.raises(duckdb.Error, match=r"403|denied|credentials"):
        con.execute(copy)
    assert fake.requests() != [], "the endpoint is that of the setting"
    con.execute("SET GLOBAL s3_access_key_id = 'test'; SET s3_secret_access_key = 'test'")
    con.execute(copy)
    con.execute("RESET s3_endpoint; RESET enable_global_s3_configuration")
    con.execute(copy)
    shown = con.execute("SELECT current_setting('s3_endpoint')").fetchone()
    assert shown == (fake.address,)


@pytest.mark.parametrize("text", ["off", "OFF", "no", "n", "f", "0", "False"])
def test_a_flag_of_the_environment_is_what_duckdb_takes_for_one(
    text: str, fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (VARIABLES | {"DUCKDB_S3_ENDPOINT": fakes["s3"].address}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DUCKDB_S3_USE_SSL", text)
    con = connect()
    assert con.execute("SELECT current_setting('s3_use_ssl')").fetchone() == (False,)
    con.execute("SET s3_kms_key_id = ''; COPY (SELECT 1 AS i) TO 's3://their/flag.csv'")


def test_a_wrong_variable_of_theirs_fails_what_needs_it(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKDB_S3_USE_SSL", "maybe")
    con = connect()
    con.execute("SET s3_region = 'us-east-1'; SET s3_url_style = 'path'")
    con.execute(f"SET s3_endpoint = '{fakes['s3'].address}'")
    con.execute("SET s3_access_key_id = 'test'; SET s3_secret_access_key = 'test'")
    with pytest.raises(duckdb.InvalidInputException, match="DUCKDB_S3_USE_SSL takes true or false"):
        con.execute("COPY (SELECT 1 AS i) TO 's3://their/wrong.csv'")
    con.execute("SET s3_use_ssl = false; COPY (SELECT 1 AS i) TO 's3://their/wrong.csv'")


def test_a_ca_cert_file_without_certificates_is_told_as_httpfs_does(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("no certificate")
    con = connect()
    con.execute(f"SET ca_cert_file = '{file}'")
    told = "^IO Error: Problem with the SSL CA cert .* 'https://127.0.0.1:1/x'.*ca_cert_file /"
    with pytest.raises(duckdb.IOException, match=told) as caught:
        con.execute("FROM read_blob('https://127.0.0.1:1/x')")
    assert "penstock_ca_file" not in str(caught.value)
    with pytest.raises(duckdb.InvalidInputException, match="penstock_ca_file"):
        con.execute(f"SET penstock_ca_file = '{file}'")
