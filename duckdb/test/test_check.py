"""`CALL penstock_check()`: what differs for whoever moves from httpfs, azure and aws."""

from __future__ import annotations

from pathlib import Path

import duckdb
import fsspec
import pytest
from harness import Fake, connect, load_penstock, load_pypi

AWS = [
    "AWS_ACCESS_KEY_ID",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def checked(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str, str]]:
    return con.execute("CALL penstock_check()").fetchall()


def names(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return [(area, name) for area, name, _, _ in checked(con)]


def test_nothing_differs_in_a_new_database() -> None:
    con = connect()
    assert checked(con) == []
    columns = con.execute("DESCRIBE FROM penstock_check()").fetchall()
    assert [row[0] for row in columns] == ["area", "name", "finding", "cure"]
    about = "SELECT description, examples FROM duckdb_functions() WHERE function_name = ?"
    told = con.execute(about, ["penstock_check"]).fetchone()
    assert told
    assert "moves from httpfs" in told[0]
    assert told[1] == ["CALL penstock_check()"]


def test_settings_that_are_followed_otherwise_are_told() -> None:
    con = connect()
    con.execute("SET s3_region = 'eu-west-1'; SET s3_secret_access_key = 'hunter2'")
    con.execute("SET s3_use_ssl = true; SET force_download = false; SET ca_cert_file = ''")
    assert checked(con) == [], "what is followed is no row"
    con.execute("SET http_timeout = 30; SET http_retries = 3; SET GLOBAL http_keep_alive = false")
    con.execute("SET s3_url_style = 'handwritten'")
    told = {name: (area, finding, cure) for area, name, finding, cure in checked(con)}
    assert set(told) == {"http_timeout", "http_retries", "http_keep_alive", "s3_url_style"}
    assert {row[0] for row in told.values()} == {"setting"}
    assert "penstock_connect_timeout_ms and penstock_stall_timeout_ms" in told["http_timeout"][1]
    assert "penstock_request_deadline_ms" in told["http_retries"][1]
    assert "refused" in told["s3_url_style"][1]
    other = con.cursor()
    assert names(other) == [("setting", "http_keep_alive")], "of this session"
    con.execute("RESET http_timeout; RESET http_retries; RESET GLOBAL http_keep_alive")
    assert names(con) == [("setting", "s3_url_style")]


def test_defaults_of_httpfs_are_no_settings_of_a_user() -> None:
    con = connect(load=False)
    load_pypi(con, "httpfs")
    load_pypi(con, "azure")
    load_penstock(con)
    assert names(con) == [("extension", "azure"), ("extension", "httpfs")]
    con.execute("SET http_retry_backoff = 3")
    assert ("setting", "http_retry_backoff") in names(con)


def test_variables_in_force_are_told_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hunter2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://hunter2")
    monkeypatch.setenv("DUCKDB_S3_ENDPOINT", "hunter2:9000")
    monkeypatch.setenv("DUCKDB_S3_USE_SSL", "hunter2")
    con = connect()
    assert names(con) == [
        ("environment", "AWS_ACCESS_KEY_ID"),
        ("environment", "DUCKDB_S3_USE_SSL"),
    ]
    assert "hunter2" not in str(checked(con))
    con.execute("SET s3_use_ssl = false; SET s3_access_key_id = 'own'")
    assert checked(con) == []
    con.execute("RESET s3_access_key_id; SET enable_global_s3_configuration = false")
    assert checked(con) == []


def test_secrets_that_are_read_otherwise_are_told() -> None:
    con = connect()
    con.execute("CREATE SECRET good (TYPE s3, KEY_ID 'k', SECRET 's', SCOPE 's3://lake/part-')")
    con.execute("CREATE SECRET web (TYPE http, BEARER_TOKEN 't', SCOPE 'https://h.example')")
    con.execute("CREATE SECRET blob (TYPE azure, PROVIDER managed_identity, ACCOUNT_NAME 'a')")
    con.execute("CREATE SECRET faces (TYPE huggingface, TOKEN 'hunter2')")
    assert checked(con) == []
    con.execute("CREATE SECRET cut (TYPE s3, KEY_ID 'k', SECRET 's', SCOPE 's3://lake-')")
    con.execute("CREATE SECRET halves (TYPE http, BEARER_TOKEN 'hunter2', SCOPE 'http')")
    told = {name: finding for area, name, finding, _ in checked(con) if area == "secret"}
    assert set(told) == {"cut", "halves"}
    assert "'s3://lake-' ends in the middle of a name" in told["cut"]
    assert "does not cover https://" in told["halves"]
    assert "hunter2" not in str(told)


def test_a_scope_is_compared_with_what_was_asked_for(fakes: dict[str, Fake]) -> None:
    con = connect()
    con.execute(f"CREATE SECRET s ({fakes['s3'].secret}, SCOPE 's3://lake')")
    con.execute(f"CREATE SECRET other ({fakes['s3'].secret}, SCOPE 's3://lake-2/')")
    con.execute("COPY (SELECT 1 AS i) TO 's3://lake/x.csv'")
    assert checked(con) == []
    con.execute("COPY (SELECT 1 AS i) TO 's3://lake-2/x.csv'")
    ((_, name, finding, _),) = checked(con)
    assert name == "s"
    assert "does not cover s3://lake-2/" in finding


def test_a_provider_and_an_option_that_penstock_does_not_know_are_told(tmp_path: Path) -> None:
    """As another version of httpfs, or an extension that is not there, may have left them."""
    made = connect(secret_directory=str(tmp_path))
    made.execute("CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'k', SECRET 's', REGION 'eu-west-1')")
    made.close()
    file = tmp_path / "s.duckdb_secret"
    written = file.read_bytes()
    for old, new, told in (
        (b"config", b"confog", "does not know its provider `confog`"),
        (b"region", b"regiom", "no store knows its option `regiom`"),
    ):
        file.write_bytes(written.replace(old, new))
        file.chmod(0o600)
        ((area, name, finding, _),) = checked(connect(secret_directory=str(tmp_path)))
        assert (area, name) == ("secret", "s")
        assert told in finding


def test_secrets_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """A file that is damaged fails every look for a secret, whoever looks."""
    file = tmp_path / "s.duckdb_secret"
    file.write_bytes(b"no secret")
    file.chmod(0o600)
    ((area, _, finding, cure),) = checked(connect(secret_directory=str(tmp_path)))
    assert area == "secret"
    assert "cannot be read" in finding
    assert "secret_directory" in cure


@pytest.mark.parametrize("first", ["penstock", "others"])
def test_extensions_that_hold_the_same_schemes_are_told(first: str) -> None:
    con = connect(load=first == "penstock")
    load_pypi(con, "httpfs")
    load_pypi(con, "azure")
    if first != "penstock":
        load_penstock(con)
    told = {name: (finding, cure) for area, name, finding, cure in checked(con)}
    assert set(told) == {"httpfs", "azure"}
    assert told["httpfs"][0].startswith("Penstock serves s3://, s3a://, s3n://")
    assert told["httpfs"][0].endswith("http://, https:// in its place")
    assert "LOAD azure" in told["azure"][1]
    con.execute("CALL penstock_wrap('httpfs')")
    wrapped = {name: (area, finding, cure) for area, name, finding, cure in checked(con)}
    systems = {"S3FileSystem", "HTTPFileSystem", "HuggingFaceFileSystem"}
    assert set(wrapped) == {"azure", *systems}
    assert wrapped["HTTPFileSystem"] == (
        "file system",
        "it serves http://, https://, and Penstock does not",
        "CALL penstock_unwrap('HTTPFileSystem')",
    )


def test_a_file_system_that_python_registered_first_is_told() -> None:
    con = connect(load=False)
    con.register_filesystem(fsspec.filesystem("memory"))
    load_penstock(con)
    assert checked(con) == [], "it has a scheme of its own"


def test_penstock_disabled_as_a_whole_is_told() -> None:
    con = connect()
    con.execute("SET disabled_filesystems = 'HTTPFileSystem'")
    assert checked(con) == [], "obeyed"
    con.execute("SET disabled_filesystems = 'HTTPFileSystem,PenstockFileSystem'")
    assert names(con) == [("file system", "PenstockFileSystem")]


def test_nobody_is_asked() -> None:
    con = connect()
    con.execute("CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET 's', ENDPOINT '127.0.0.1:1')")
    con.execute("SET http_retries = 3")
    assert names(con) == [("setting", "http_retries")]
    assert con.execute("SELECT count(*) FROM penstock_requests()").fetchone() == (0,)
