"""Logs and the box of EXPLAIN ANALYZE as tools for httpfs and azure read them."""

from __future__ import annotations

import duckdb
from harness import Fake

PARSED = "FROM duckdb_logs_parsed('HTTP')"


def written(con: duckdb.DuckDBPyConnection, store: Fake, log: str) -> str:
    """The URL of a file that was read with the log on."""
    url = store.url("their/log.csv")
    con.execute(f"COPY (SELECT 7 AS i) TO '{url}'")
    con.execute("CALL penstock_clear_cache()")
    con.execute(f"CALL enable_logging('{log}')")
    assert con.execute(f"FROM '{url}'").fetchall() == [(7,)]
    return url


def test_rows_have_reason_times_and_headers(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    written(con, store, "HTTP")
    row = con.execute(
        "SELECT response.reason, request.start_time IS NOT NULL, request.duration_ms >= 0, "
        "starts_with(request.headers['user-agent'], 'duckdb'), request.headers['authorization'], "
        f"len(map_keys(response.headers)) > 0 {PARSED}"
    ).fetchall()[-1]
    assert row[0] in {"OK", "Partial Content"}
    assert row[1:] == (True, True, True, None, True)
    assert "Signature" not in str(con.execute("SELECT message FROM duckdb_logs").fetchall())


def test_settings_of_azure_count(con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake]) -> None:
    con.execute("SET azure_http_logging_redact_headers = 'x-ms-version'")
    url = written(con, fakes["azure"], "HTTP")
    found = con.execute(f"SELECT DISTINCT request.headers['x-ms-version'] {PARSED}").fetchall()
    assert found == [(None,)]
    con.execute("CALL truncate_duckdb_logs(); SET azure_http_logging = false")
    con.execute("CALL penstock_clear_cache()")
    con.execute(f"FROM '{url}'").fetchall()
    assert con.execute(f"SELECT count(*) {PARSED}").fetchone() == (0,)


def test_connections_are_told(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = written(con, store, "HTTPFSInfo")
    con.execute("CALL penstock_clear_cache()")
    con.execute(f"FROM '{url}'").fetchall()
    told = [row[0] for row in con.execute("SELECT message FROM duckdb_logs").fetchall()]
    assert told
    assert all("connection_cache_hit" in row or "connection_cache_miss" in row for row in told)
    assert f'"host":"http://{store.address}"' in told[-1]


def test_the_box_has_the_counts_of_httpfs(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = written(con, store, "HTTP")
    con.execute("CALL penstock_clear_cache()")
    shown = con.execute(f"EXPLAIN ANALYZE FROM '{url}'").fetchall()[-1][-1]
    text = "\n".join(line.strip("│ ") for line in str(shown).splitlines())
    for part in ("HTTP Stats: in: ", "#GET: ", "#PUT: 0", "#POST: 0", "#DELETE: 0"):
        assert part in text, text
