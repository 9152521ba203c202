"""What a person at the prompt sees of requests, caches, statements and functions."""

from __future__ import annotations

import duckdb
import pytest
from harness import Fake, stats

WHERE = "SELECT {} FROM penstock_requests() WHERE url LIKE '%{}%' ORDER BY number"


def seen(con: duckdb.DuckDBPyConnection, columns: str, part: str) -> list[tuple[object, ...]]:
    """Of the requests whose URL has this part."""
    return con.execute(WHERE.format(columns, part)).fetchall()


def write(con: duckdb.DuckDBPyConnection, url: str, rows: int = 1000) -> None:
    con.execute(f"COPY (FROM range({rows}) t(i)) TO '{url}'")


def forget(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL penstock_clear_cache()")


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_requests_tell_url_statement_cause_and_attempt(
    fakes: dict[str, Fake], con: duckdb.DuckDBPyConnection, kind: str
) -> None:
    store = fakes[kind]
    store.reset()
    url = store.url("seen/dir/told.parquet")
    write(con, url)
    assert set(seen(con, "url, cause, attempt", "told.parquet")) == {(url, "write", 1)}
    forget(con)
    store.arm("status=503,method=GET,times=1")
    assert con.execute(f"SELECT count(*) FROM '{url}'").fetchone() == (1000,)
    found = seen(con, "cause, attempt, status, statement", "told.parquet")
    read = [row for row in found if row[0] != "write"]
    # Azure serves no suffix: a file whose size is not known is opened by its beginning.
    cause = "footer" if kind == "s3" else "open"
    assert [row[:3] for row in read][:2] == [(cause, 1, 503), (cause, 2, 206)], found
    assert len({row[3] for row in read}) == 1, "one statement"
    assert read[0][3] not in (None, found[0][3]), "another one than what wrote it"
    wire = seen(con, "DISTINCT request_url LIKE 'http://127.0.0.1:%'", "told.parquet")
    assert wire == [(True,)]
    con.execute(f"FROM glob('{store.url('seen/dir/*')}')").fetchall()
    assert "list" in {row[0] for row in seen(con, "cause", store.url("seen/dir"))}


def test_reads_and_removals_tell_their_causes(con: duckdb.DuckDBPyConnection) -> None:
    copy = "COPY (SELECT i, i % 4 AS p, hash(i) AS h FROM range(400000) t(i)) TO 's3://seen/causes'"
    for _ in range(2):
        con.execute(f"{copy} (FORMAT parquet, PARTITION_BY p, OVERWRITE)")
    forget(con)
    con.execute("SET enable_external_file_cache = false")
    con.execute("SELECT sum(i), sum(h % 7) FROM 's3://seen/causes/*/*.parquet'").fetchall()
    causes = {row[0] for row in seen(con, "cause", "seen/causes")}
    assert {"write", "delete", "list"} <= causes, causes
    assert causes & {"read", "ahead"} and "other" not in causes, causes


def test_the_spelling_of_the_user_stays(
    fakes: dict[str, Fake], con: duckdb.DuckDBPyConnection
) -> None:
    write(con, "s3a://spelt/x.csv")
    con.execute("FROM 's3a://spelt/x.csv'").fetchall()
    assert {row[0] for row in seen(con, "url", "spelt/x.csv")} == {"s3a://spelt/x.csv"}
    cached = con.execute("SELECT DISTINCT url FROM penstock_cache() WHERE url LIKE '%spelt/%'")
    assert cached.fetchall() == [("s3a://spelt/x.csv",)]
    wire = con.execute("SELECT DISTINCT object FROM penstock_cache() WHERE url LIKE '%spelt/%'")
    assert fakes["s3"].address in str(wire.fetchall())


def test_no_signature_is_shown(fakes: dict[str, Fake], con: duckdb.DuckDBPyConnection) -> None:
    url = f"http://{fakes['s3'].address}/seen/none.csv?X-Amz-Signature=abcdef"
    with pytest.raises(duckdb.Error):
        con.execute(f"FROM read_csv('{url}')")
    found = seen(con, "url, request_url", "none.csv")
    assert found and "abcdef" not in str(found)
    assert "X-Amz-Signature=***" in str(found[0][0])


def test_the_statement_is_the_one_of_duckdbs_log(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL enable_logging('QueryLog')")
    write(con, "s3://seen/logged.csv")
    con.execute("CALL disable_logging()")
    logged = con.execute(
        "SELECT query_id FROM duckdb_logs WHERE message LIKE 'COPY%logged.csv%'"
    ).fetchall()
    assert logged == list(set(seen(con, "statement", "logged.csv")))


def test_what_tidies_up_counts_for_its_statement(
    fakes: dict[str, Fake], con: duckdb.DuckDBPyConnection
) -> None:
    sql = "COPY (SELECT i // 500 AS p, CASE WHEN i = 999 THEN error('stop') END FROM range(1000)"
    with pytest.raises(duckdb.Error, match="stop"):
        con.execute(f"{sql} t(i)) TO 's3://seen/failed' (FORMAT csv, PARTITION_BY p)")
    found = seen(con, "statement", "seen/failed")
    assert len(set(found)) <= 1, found


def test_reset_begins_to_count_anew(con: duckdb.DuckDBPyConnection) -> None:
    write(con, "s3://seen/reset.csv")
    assert stats(con)["requests_put"] > 0
    assert con.execute("CALL penstock_reset_stats()").fetchall() == [(True,)]
    assert stats(con)["requests_put"] == 0
    rows = con.execute("SELECT count(*) FROM penstock_stats(by_statement := true)").fetchall()
    assert rows == [(0,)]
    write(con, "s3://seen/reset.csv")
    assert stats(con)["requests_put"] == 1


def test_statements_have_rows_of_their_own(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL penstock_reset_stats()")
    for number in range(3):
        write(con, f"s3://seen/own{number}.csv", rows=10**number)
        con.execute("SELECT 1").fetchall()
    puts = con.execute(
        "SELECT statement, value, elapsed_us > 0, started_at <= now()::TIMESTAMP "
        "FROM penstock_stats(by_statement := true) WHERE name = 'requests_put' ORDER BY statement"
    ).fetchall()
    assert [row[1:] for row in puts] == [(1, True, True)] * 3
    written = con.execute(
        "SELECT value FROM penstock_stats(by_statement := true) "
        "WHERE area = 'requests' AND name = 'bytes_written' ORDER BY statement"
    ).fetchall()
    assert written == sorted(written)
    assert len({row[0] for row in puts}) == 3
    assert [(row[0],) for row in puts] == sorted(set(seen(con, "statement", "seen/own")))
    plain = con.execute("SELECT count(*) FROM penstock_stats(by_statement := false)").fetchall()
    assert plain == con.execute("SELECT count(*) FROM penstock_stats()").fetchall()


def test_no_more_statements_than_a_hundred_are_remembered(con: duckdb.DuckDBPyConnection) -> None:
    write(con, "s3://seen/many.csv")
    for _ in range(110):
        con.execute("FROM 's3://seen/many.csv'").fetchall()
    rows = con.execute("SELECT DISTINCT statement FROM penstock_stats(by_statement := true)")
    assert 90 <= len(rows.fetchall()) <= 100


def test_counters_are_grouped_by_area(con: duckdb.DuckDBPyConnection) -> None:
    areas = con.execute("SELECT DISTINCT area FROM penstock_stats()").fetchall()
    wanted = {"requests", "reads", "cache", "uploads", "memory", "devices"}
    assert wanted <= {area for (area,) in areas}
    grouped = con.execute("SELECT area, sum(value) FROM penstock_stats() GROUP BY area").fetchall()
    assert len(grouped) == len(areas)


def test_every_function_describes_itself(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT function_name, description, examples, parameters FROM duckdb_functions() "
        "WHERE function_name LIKE 'penstock%'"
    ).fetchall()
    named = {row[0]: row for row in rows}
    assert {"penstock_stats", "penstock_reset_stats", "penstock_version", "penstock_wrap"} <= set(
        named
    )
    for name, description, examples, _ in rows:
        assert description and examples, f"{name} says nothing of itself"
        assert name in examples[0]
    assert named["penstock_wrap"][3] == ["file_system"]
    assert "by_statement" in named["penstock_stats"][3]


def test_the_version_is_told(con: duckdb.DuckDBPyConnection) -> None:
    told = con.execute("SELECT penstock_version(), penstock_version() FROM range(2)").fetchall()
    loaded = con.execute(
        "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'penstock'"
    ).fetchone()
    assert len(set(told)) == 1 and told[0][0][0].isdigit()
    assert loaded is not None
