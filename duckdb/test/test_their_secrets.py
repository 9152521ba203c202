"""Secrets of httpfs: made anew after a refusal, of Hugging Face, and http secrets for S3."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import Fake, connect

URL = "s3://their/secret.csv"


@pytest.fixture
def fake(con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake]) -> Fake:
    """The fake S3, with a file in it."""
    con.execute(f"COPY (SELECT 7 AS i) TO '{URL}'")
    fakes["s3"].reset()
    return fakes["s3"]


def wrong(fake: Fake, more: str) -> duckdb.DuckDBPyConnection:
    """A database with the log on, and a secret that the fake refuses."""
    con = connect()
    con.execute("CALL enable_logging(level = 'info')")
    secret = fake.secret.replace("KEY_ID 'test', SECRET 'test'", "KEY_ID 'bogus', SECRET 'hunter2'")
    con.execute(f"CREATE SECRET s ({secret}, {more})")
    return con


def refreshes(con: duckdb.DuckDBPyConnection) -> list[str]:
    found = con.execute(
        "SELECT message FROM duckdb_logs WHERE message LIKE 'Successfully refreshed secret%'"
    ).fetchall()
    return [row[0] for row in found]


def test_a_refused_secret_is_made_anew_from_its_refresh_info(fake: Fake) -> None:
    con = wrong(fake, "REFRESH_INFO MAP {'KEY_ID': 'test', 'SECRET': 'test'}")
    for _ in range(2):
        assert con.execute(f"FROM '{URL}'").fetchall() == [(7,)]
        con.execute("CALL penstock_clear_cache()")
    assert refreshes(con) == ["Successfully refreshed secret: s, new key_id: test"]
    assert [request["status"] for request in fake.requests()].count(403) == 1
    shown = con.execute("SELECT secret_string FROM duckdb_secrets()").fetchone()
    assert "hunter2" not in str(shown)
    assert "'test'" not in str(shown)


def test_a_refresh_that_changes_nothing_leaves_the_refusal(fake: Fake) -> None:
    con = wrong(fake, "REFRESH 'auto'")
    with pytest.raises(duckdb.HTTPException, match="403"):
        con.execute(f"FROM '{URL}'")
    assert refreshes(con) == ["Successfully refreshed secret: s, new key_id: bogus"]
    shown = con.execute("SELECT secret_string FROM duckdb_secrets()").fetchone()
    assert "hunter2" not in str(shown)


def test_any_value_of_refresh_asks_for_it(fake: Fake) -> None:
    """As httpfs has it, whose own test says REFRESH 1."""
    con = wrong(fake, "REFRESH 1")
    with pytest.raises(duckdb.HTTPException, match="403"):
        con.execute(f"FROM '{URL}'")
    assert refreshes(con) == ["Successfully refreshed secret: s, new key_id: bogus"]


def test_headers_are_made_anew_as_well(fake: Fake) -> None:
    headers = "EXTRA_HTTP_HEADERS MAP {'X-One': '1'}"
    con = wrong(fake, f"REFRESH 'auto', {headers}")
    with pytest.raises(duckdb.HTTPException, match="403"):
        con.execute(f"FROM '{URL}'")
    assert refreshes(con) == ["Successfully refreshed secret: s, new key_id: bogus"]
    own = "'KEY_ID': 'test', 'SECRET': 'test', 'extra_http_headers': '{X-Two=2}'"
    con = wrong(fake, f"REFRESH_INFO MAP {{{own}}}")
    assert con.execute(f"FROM '{URL}'").fetchall() == [(7,)]
    assert refreshes(con) == ["Successfully refreshed secret: s, new key_id: test"]


def test_a_refresh_that_cannot_be_is_told(fake: Fake) -> None:
    con = wrong(fake, "REFRESH_INFO MAP {'NO_SUCH_KEY': 'x'}")
    told = "Exception thrown while trying to refresh secret s: `no_such_key` is no option"
    with pytest.raises(duckdb.HTTPException, match=told):
        con.execute(f"FROM '{URL}'")
    assert refreshes(con) == []
    with pytest.raises(duckdb.InvalidInputException, match="at the same time"):
        con.execute("CREATE SECRET t (TYPE s3, REFRESH 'auto', REFRESH_INFO MAP {'KEY_ID': 'x'})")


def test_secrets_of_hugging_face_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    con = connect(allow_unredacted_secrets="true")
    con.execute("CREATE SECRET a (TYPE huggingface, TOKEN 'hunter2')")
    con.execute("CREATE SECRET b (TYPE huggingface, PROVIDER credential_chain)")
    listed = "SELECT provider, scope, contains(secret_string, 'hunter2') FROM duckdb_secrets"
    rows = [("config", ["hf://"]), ("credential_chain", ["hf://"])]
    for redacted in (True, False):
        found = con.execute(f"{listed}(redact := {redacted}) ORDER BY name").fetchall()
        assert found == [(*row, not redacted) for row in rows]


def test_a_proxy_of_an_http_secret_is_for_s3_too(fake: Fake) -> None:
    con = connect()
    con.execute(f"CREATE SECRET s ({fake.secret})")
    con.execute("CREATE SECRET h (TYPE http, HTTP_PROXY 'http://127.0.0.1:1')")
    con.execute("SET penstock_request_deadline_ms = 300; SET penstock_retry_base_ms = 1")
    with pytest.raises(duckdb.IOException, match=r"127\.0\.0\.1:1"):
        con.execute(f"FROM '{URL}'")
    con.execute("SET merge_http_secret_into_s3_request = false")
    assert con.execute(f"FROM '{URL}'").fetchall() == [(7,)]
    con.execute("RESET merge_http_secret_into_s3_request; DROP SECRET h")
    headers = "MAP {'X-One': '1', 'Authorization': 'Bearer of-the-web'}"
    con.execute(f"CREATE SECRET h (TYPE http, EXTRA_HTTP_HEADERS {headers})")
    assert con.execute(f"FROM '{URL}'").fetchall() == [(7,)]
