"""Marked secrets through every SQL door and every trouble: no text of Penstock's holds a mark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import duckdb
import pytest
from harness import AZURE_ACCOUNT, IS_DUCKDB_2, connect
from troubled_server import MARK, TROUBLES, troubled

DUCKDBS_OWN = re.compile(
    r"No files found that match the pattern|Table with name .* does not exist|CSV Error on Line"
    r"|error.*sniffing file|Cannot open database|while sniffing|No magic bytes found"
    r"|too small to be a Parquet file"
)
"""Begins of texts that DuckDB writes itself, with the path as it was typed."""


@pytest.fixture(params=[*TROUBLES, "answers"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    with troubled(request.param) as host:
        yield host


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that gives up soon."""
    con = connect()
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_retry_max_ms = 20")
    con.execute("SET penstock_request_deadline_ms = 200; SET penstock_connect_timeout_ms = 500")
    yield con
    con.close()


def urls(host: str) -> list[str]:
    return [
        f"http://{host}/d/x.csv?sv=1&se=2&sig={MARK}",
        f"http://{host}/d/*.csv?sv=1&sig={MARK}",
        f"http://{host}/x.csv?X-Amz-Signature={MARK}&X-Amz-Security-Token={MARK}",
        f"http://{host}/x.csv?AWSAccessKeyId={MARK}&Signature={MARK}%3D&Expires=1",
        f"http://{host}/x.csv?X-Goog-Signature={MARK}&X-Goog-Credential={MARK}",
        f"http://{host}/x.csv?hdnts=exp=1~hmac={MARK}&subscription-key={MARK}&pass-me={MARK}",
        f"http://user:{MARK}@{host}/x.csv",
        f"https://{host}/x.csv?sv=1&sig={MARK}",
        f"az://c/x.csv?sv=1&sp=r&sig={MARK}",
        f"az://c/d/*.csv?sv=1&sp=r&sig={MARK}",
        f"az://c/dir?sv=1&sig={MARK}/x.csv",
        f"s3://b/x.csv?s3_access_key_id={MARK}&s3_secret_access_key={MARK}",
        f"s3://b/x.csv?s3_secret_acces_key={MARK}",
    ]


STATEMENTS = [
    "FROM read_csv('{}')",
    "FROM read_text('{}')",
    "FROM read_parquet('{}')",
    "FROM glob('{}')",
    "EXPLAIN ANALYZE FROM read_csv('{}')",
    "EXPLAIN (ANALYZE, FORMAT json) FROM read_csv('{}')",
    "COPY (SELECT 1 AS a) TO '{}' (FORMAT csv)",
    "COPY (SELECT 1 AS a) TO '{}' (FORMAT parquet)",
    "COPY (SELECT 1 AS a, 2 AS p) TO '{}' (FORMAT csv, PARTITION_BY (p), OVERWRITE)",
    "ATTACH '{}' AS other (READ_ONLY)",
]


LOGGED = ["FROM read_text('{}')", "COPY (FROM range(9)) TO '{}' (FORMAT csv)"]
"""Statements that read and write a file without asking DuckDB for its name."""


def judge(text: str, what: str) -> None:
    """DuckDB quotes the statement, and paths in errors of its own; all else is Penstock's."""
    ours = text.split("\nLINE ")[0]
    if not DUCKDBS_OWN.search(ours):
        assert MARK not in ours, f"{what}: {text}"


def run(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        rows = con.execute(statement).fetchall()
    except duckdb.Error as error:
        judge(str(error), statement)
    else:
        # Names that a listing gives back are paths as they were typed.
        if "FORMAT json" in statement:
            told = json.loads(rows[0][1])
            ours = str(told.get("penstock", told.get("extra_info")))
            assert MARK not in ours and "slowest_request_url" in ours, f"{statement}: {rows}"
        elif "ANALYZE" in statement:
            box = str(rows).partition("Penstock")[2].partition("Total Time")[0]
            assert MARK not in box, f"{statement}: {rows}"


def test_no_statement_shows_a_secret_whatever_goes_wrong(
    host: str, con: duckdb.DuckDBPyConnection, capfd: pytest.CaptureFixture[str]
) -> None:
    con.execute("SET s3_endpoint = ?", [host])
    con.execute("SET s3_use_ssl = false; SET s3_url_style = 'path'")
    string = f"BlobEndpoint=http://{host}/{AZURE_ACCOUNT};AccountName={AZURE_ACCOUNT}"
    con.execute("SET azure_storage_connection_string = ?", [string])
    for url in urls(host):
        for statement in STATEMENTS:
            run(con, statement.format(url))
    for table in ("penstock_requests()", "penstock_cache()", "penstock_stats()"):
        assert MARK not in str(con.execute(f"FROM {table}").fetchall()), table
    said = capfd.readouterr()
    assert MARK not in said.out + said.err


def test_no_log_of_duckdb_shows_a_secret_of_a_path(
    host: str, con: duckdb.DuckDBPyConnection
) -> None:
    """The log of files has each file by its path; that of queries has the statement as it is."""
    con.execute("CALL enable_logging(level = 'trace')")
    con.execute("SET s3_endpoint = ?", [host])
    con.execute("SET s3_use_ssl = false; SET s3_url_style = 'path'")
    string = f"BlobEndpoint=http://{host}/{AZURE_ACCOUNT};AccountName={AZURE_ACCOUNT}"
    con.execute("SET azure_storage_connection_string = ?", [string])
    for url in urls(host):
        for statement in LOGGED:
            run(con, statement.format(url))
    rows = con.execute(
        "SELECT type, message FROM duckdb_logs WHERE contains(message, ?)", [MARK]
    ).fetchall()
    # These have the text of the statement as it was typed, or what DuckDB says of its operators.
    theirs = {"QueryLog", "Metrics", *(["PhysicalOperator"] if IS_DUCKDB_2 else [])}
    assert {row[0] for row in rows} <= theirs, rows[:5]
    files = "SELECT DISTINCT op FROM duckdb_logs_parsed('FileSystem') WHERE path LIKE '%sig=***%'"
    ops = {op for (op,) in con.execute(files).fetchall()}
    assert ops >= {"OPEN", "WRITE"}, ops


def test_no_statement_shows_a_credential_of_a_secret(
    host: str, con: duckdb.DuckDBPyConnection
) -> None:
    s3 = f"TYPE s3, ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false"
    base = f"http://{host}/{AZURE_ACCOUNT}"
    name = f"ACCOUNT_NAME '{AZURE_ACCOUNT}', ENDPOINT '{base}'"
    for url, secret in [
        ("s3://b/x.csv", f"{s3}, KEY_ID '{MARK}', SECRET '{MARK}', SESSION_TOKEN '{MARK}'"),
        (f"http://{host}/x.csv", f"TYPE http, BEARER_TOKEN '{MARK}'"),
        ("http://x.invalid/x.csv", f"TYPE http, HTTP_PROXY 'http://u:{MARK}@{host}'"),
        ("az://c/x.csv", f"TYPE azure, CONNECTION_STRING 'sv=1&sig={MARK}', {name}"),
        ("az://c/x.csv", f"TYPE azure, CONNECTION_STRING '{base}/c?sv=1&sig={MARK}'"),
        ("az://c/x.csv", f"TYPE azure, CONNECTION_STRING 'AccountName=a;AcountKey={MARK}'"),
        ("az://c/x.csv", f"TYPE azure, PROVIDER access_token, ACCESS_TOKEN '{MARK}', {name}"),
    ]:
        con.execute(f"CREATE OR REPLACE SECRET s ({secret})")
        for statement in STATEMENTS:
            run(con, statement.format(url))
        assert MARK not in str(con.execute("FROM penstock_requests()").fetchall())
