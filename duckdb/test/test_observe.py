"""What a person at the prompt sees of requests, caches, statements and functions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import Fake, connect, scanner, start_fake, stats
from nvme import attached, format_volume

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


def box(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The lines of our box in EXPLAIN ANALYZE; none where there is no box."""
    text = str(con.execute(f"EXPLAIN ANALYZE {sql}").fetchall()[0][1])
    lines = [line.strip("│ ") for line in text.splitlines()]
    if "Penstock" not in lines:
        return []
    begin = lines.index("Penstock")
    return lines[begin : lines.index("└──────────────────────────────────────────────┘", begin)]


def profile(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """What the JSON of EXPLAIN ANALYZE says of us."""
    text = con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {sql}").fetchall()[0][1]
    return ours(json.loads(text))


def ours(told: dict[str, Any]) -> dict[str, Any]:
    """Our values in a profile of JSON: DuckDB 1.5 has them as text in `extra_info`."""
    found = {
        name.removeprefix("penstock."): text
        for name, text in told.get("extra_info", {}).items()
        if name.startswith("penstock.")
    }
    values = told.get("penstock", found)
    return {name: value if name.endswith("_url") else int(value) for name, value in values.items()}


def waits(told: dict[str, Any]) -> dict[str, int]:
    """Microseconds by what was waited for, zeros too."""
    names = ["link", "store", "memory", "device"]
    return {name: told.get(f"wait_{name}_time_us", 0) for name in names}


@contextmanager
def slow(*options: str) -> Iterator[tuple[Fake, duckdb.DuckDBPyConnection]]:
    """A fake S3 behind a link, and a database with one thread that reads it."""
    fake = start_fake("s3", *options)
    try:
        with scanner(fake) as con:
            yield fake, con
    finally:
        fake.stop()


def test_the_box_says_what_was_read_and_drops_what_is_zero(con: duckdb.DuckDBPyConnection) -> None:
    write(con, "s3://seen/box.csv", rows=300_000)
    lines = box(con, "SELECT count(*) FROM 's3://seen/box.csv'")
    text = "\n".join(lines)
    for said in ["requests: ", "GET ", "read: ", "rate: ", "slowest request: ", "processor: "]:
        assert said in text, text
    assert "s3://seen/box.csv" in lines
    for zero in ["PUT", "written", "retries", "errors", "memory", "device", "volume", "wasted"]:
        assert zero not in text.split("HTTP Stats")[0], text
    assert len({len(line) for line in text.splitlines()}) > 1
    assert box(con, "SELECT sum(i) FROM range(1000000) t(i)") == []
    told = box(con, "COPY (FROM range(10)) TO 's3://seen/boxed.csv'")
    assert "PUT 1" in told and not any("read" in line for line in told), told


def test_the_json_profile_has_what_the_box_has(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    write(con, "s3://seen/json.csv", rows=300_000)
    told = profile(con, "SELECT count(*) FROM 's3://seen/json.csv'")
    assert told["slowest_request_url"] == "s3://seen/json.csv"
    assert told["requests"] == told["requests_get"] + told.get("requests_head", 0)
    size = con.execute("SELECT size FROM read_blob('s3://seen/json.csv')").fetchone()
    assert size is not None and told["bytes_read"] >= size[0]
    assert told["bytes_per_second"] > 0
    assert told["processor_time_us"] > 0
    assert 0 not in told.values(), told
    assert profile(con, "SELECT sum(i) FROM range(1000000) t(i)") == {}
    saved = tmp_path / "profile.json"
    con.execute(f"SET enable_profiling = 'json'; SET profiling_output = '{saved}'")
    for begin, end in [("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")]:
        con.execute(begin)
        write(con, "s3://seen/saved.csv")
        told = ours(json.loads(saved.read_text()))
        assert (told["requests_put"], told["requests"]) == (1, 1), (begin, told)
        con.execute(end)


def test_a_slow_store_is_waited_for() -> None:
    with slow("--latency-ms", "300") as (_, con):
        write(con, "s3://seen/slow.parquet", rows=100_000)
        forget(con)
        told = profile(con, "SELECT sum(i) FROM 's3://seen/slow.parquet'")
        assert told["slowest_request_us"] >= 300_000
        # On a busy machine bytes come late from any server.
        assert waits(told)["store"] > waits(told)["link"], told
        assert (waits(told)["memory"], waits(told)["device"]) == (0, 0), told
        forget(con)
        text = "\n".join(box(con, "SELECT sum(i) FROM 's3://seen/slow.parquet'"))
        assert "waited for the store: " in text and "memory" not in text, text


def test_a_narrow_link_is_waited_for_and_its_rate_is_told() -> None:
    with slow("--bandwidth-mbit", "32") as (_, con):
        con.execute("COPY (SELECT hash(i) AS h FROM range(200000) t(i)) TO 's3://seen/narrow.csv'")
        forget(con)
        began = time.monotonic()
        told = profile(con, "SELECT count(*), sum(h) FROM 's3://seen/narrow.csv'")
        seconds = time.monotonic() - began
        assert waits(told)["link"] > waits(told)["store"], told
        assert waits(told)["link"] > told["processor_time_us"], told
        # 32 Mbit are 4 MB. On a busy machine the link of the fake is slower than that.
        assert told["bytes_read"] / seconds < told["bytes_per_second"] < 5_000_000, told


def test_no_work_counts_twice_on_threads_that_work_while_they_wait() -> None:
    with slow("--latency-ms", "20") as (_, con):
        for file in range(40):
            con.execute(f"COPY (FROM range(1000) t(i)) TO 's3://seen/glob/{file}.parquet'")
        forget(con)
        began = time.monotonic()
        told = profile(con, "SELECT sum(i) FROM 's3://seen/glob/*.parquet'")
        seconds = time.monotonic() - began
        # DuckDB 2.0 has four threads for input and output besides.
        assert 0 < told["processor_time_us"] < 5 * seconds * 1e6, told


def test_a_writer_waits_for_memory() -> None:
    # Memory is free again two round trips after the upload began: writing is faster than that.
    with slow("--latency-ms", "2000") as (_, con):
        con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
        con.execute("SET GLOBAL penstock_part_size_bytes = '16MiB'")
        copy = "COPY (SELECT repeat('x', 4000) AS s FROM range(20000)) TO 's3://seen/w.csv'"
        told = profile(con, copy)
        assert told["bytes_written"] > 64 << 20, told
        assert waits(told)["memory"] > 0, told


def test_what_was_fetched_ahead_is_told() -> None:
    with slow("--latency-ms", "20") as (_, con):
        copy = "COPY (SELECT hash(i) AS h FROM range(2000000) t(i)) TO 's3://seen/ahead.csv'"
        con.execute(copy)
        # That of DuckDB 2.0 keeps text files, too.
        con.execute("SET GLOBAL enable_external_file_cache = false")
        forget(con)
        told = profile(con, "SELECT count(*), sum(h) FROM 's3://seen/ahead.csv'")
        assert 1 << 20 < told["read_ahead_hit_bytes"] <= told["bytes_read"], told
        forget(con)
        lines = box(con, "SELECT count(*), sum(h) FROM 's3://seen/ahead.csv'")
        assert any(line.startswith("read-ahead: hit ") for line in lines), lines


def test_reads_of_a_volume_are_told(tmp_path: Path) -> None:
    volume = format_volume(tmp_path / "disk.img")
    with attached(volume) as con:
        con.execute("CREATE TABLE t AS SELECT hash(i) AS h FROM range(2000000) t(i)")
    scan = "SELECT count(*), sum(h) FROM t"
    with attached(volume, options="(READ_ONLY)") as con:
        told = profile(con, scan)
        assert told["volume_reads"] > 1 and told["volume_bytes_read"] > 8 << 20, told
        for name in ["volume_bytes_per_second", "slowest_volume_read_us", "volume_read_time_us"]:
            assert told[name] > 0, told
        assert "requests" not in told and "bytes_read" not in told
        assert told["slowest_volume_read_us"] <= told["volume_read_time_us"]
        by_statement = con.execute(
            "SELECT value FROM penstock_stats(by_statement := true) WHERE name = 'volume_reads'"
        ).fetchall()
        assert (told["volume_reads"],) in by_statement
        assert "volume_reads" not in profile(con, scan), "DuckDB has the blocks in memory"
    with attached(volume, options="(READ_ONLY)") as con:
        text = "\n".join(box(con, scan))
        for said in ["volumes: ", " reads, ", "rate of volumes: ", "slowest read: "]:
            assert said in text, text
        assert "waited for devices: " in text and "requests" not in text, text


def test_a_profile_of_what_is_not_ours_has_nothing_of_us(tmp_path: Path) -> None:
    with connect() as con:
        con.execute(f"COPY (FROM range(10)) TO '{tmp_path}/x.csv'")
        assert profile(con, f"FROM '{tmp_path}/x.csv'") == {}
        assert box(con, f"FROM '{tmp_path}/x.csv'") == []
