"""Wrap mode: which file systems are wrapped, by which names, and by which settings."""

from __future__ import annotations

import duckdb
import fsspec
import pytest
from harness import Fake, connect, stats
from wrapping import ONE_READ_AT_A_TIME, load_other, wrapped


def test_names_that_cannot_be_wrapped(toy: Fake) -> None:
    con = connect()
    for name, message in {
        "httpfs": "not loaded. LOAD httpfs comes first",
        "AZURE": "not loaded",
        "htpfs": 'file systems that are there: none"?$|"httpfs", "azure"',
        "penstock": "parallel already",
        "PenstockFileSystem": "parallel already",
        "": "no file system of this name",
    }.items():
        with pytest.raises(duckdb.InvalidInputException, match=message):
            con.execute(f"CALL penstock_wrap('{name}')")
    with pytest.raises(duckdb.InvalidInputException, match="cannot be NULL"):
        con.execute("CALL penstock_wrap(NULL)")
    load_other(con, toy)
    with pytest.raises(duckdb.InvalidInputException, match=r'are there: .*"ToyFileSystem"'):
        con.execute("CALL penstock_wrap('toy')")
    with pytest.raises(duckdb.InvalidInputException, match=r"is not wrapped.*systems: none"):
        con.execute("CALL penstock_unwrap('httpfs')")
    con.execute("EXPLAIN FROM penstock_wrap('httpfs')")
    with pytest.raises(duckdb.InvalidInputException, match="is not wrapped"):
        con.execute("CALL penstock_unwrap('httpfs')")
    con.execute("CALL penstock_wrap('ToyFileSystem')")
    with pytest.raises(duckdb.InvalidInputException, match='systems: "ToyFileSystem"'):
        con.execute("CALL penstock_unwrap('azure')")
    with pytest.raises(duckdb.InvalidInputException, match="parallel already"):
        con.execute("CALL penstock_wrap('Penstock(ToyFileSystem)')")


def test_names_are_taken_in_any_case(toy: Fake) -> None:
    con = connect()
    load_other(con, toy)
    for name in ("s3filesystem", "S3FILESYSTEM"):
        rows = con.execute(f"CALL penstock_wrap('{name}')").fetchall()
        assert rows == [("S3FileSystem", "wrapped")]
        rows = con.execute(f"CALL penstock_unwrap('{name}')").fetchall()
        assert rows == [("S3FileSystem", "unwrapped")]


def test_a_system_that_penstock_does_not_know(toy: Fake) -> None:
    """Its URLs are not ours, and the first read of a file shows whether there are ranges."""
    con = wrapped(toy)
    con.execute("CALL penstock_unwrap('httpfs'); CALL penstock_wrap('ToyFileSystem')")
    con.execute(f"SET threads = 1; SET enable_external_file_cache = false; {ONE_READ_AT_A_TIME}")
    url = "toy://toy/wrap/unknown.parquet"
    rows = "(SELECT hash(i) AS h FROM range(900000) t(i))"
    con.execute(f"COPY {rows} TO '{url}' (COMPRESSION uncompressed, ROW_GROUP_SIZE 307200)")
    query = "SELECT count(*), bit_xor(h) FROM {}"
    expected = con.execute(query.format(rows)).fetchone()
    assert con.execute(query.format(f"'{url}'")).fetchone() == expected
    assert stats(con)["wrapped_reads"] > stats(con)["wrapped_reads_split"] > 0
    assert stats(con)["requests"] == 0


def test_a_system_that_duckdb_asks_first_is_refused() -> None:
    con = connect()
    files = fsspec.filesystem("memory")
    files.pipe("/asked-first.csv", b"i\n7\n")
    con.register_filesystem(files)
    with pytest.raises(duckdb.NotImplementedException, match='wrap "memory": it was set by'):
        con.execute("CALL penstock_wrap('memory')")
    assert con.execute("FROM 'memory://asked-first.csv'").fetchall() == [(7,)]


def test_a_disabled_system_stays_disabled(toy: Fake) -> None:
    con = wrapped(toy)
    con.execute("SET disabled_filesystems = 'S3FileSystem'")
    with pytest.raises(duckdb.PermissionException, match="S3FileSystem has been disabled"):
        con.execute("FROM read_blob('s3://toy/wrap/blob')").fetchall()
    with pytest.raises(duckdb.PermissionException, match="S3FileSystem has been disabled"):
        con.execute("CALL penstock_wrap('S3FileSystem')")


def test_settings_out_of_range() -> None:
    con = connect()
    for setting, value, message in (
        ("io_threads", "0", "outside 1 to 256"),
        ("chunk_size_bytes", "'1KiB'", "outside"),
        ("max_fanout", "0", "outside 1 to 256"),
        ("min_bytes", "'-1'", "not a byte size"),
        ("auto_fanout_overhead_ms", "1000000", "outside 0 to 600000"),
        ("dedicated_handles", "NULL", "cannot be NULL"),
    ):
        with pytest.raises(duckdb.InvalidInputException, match=message):
            con.execute(f"SET penstock_parallel_read_{setting} = {value}")
