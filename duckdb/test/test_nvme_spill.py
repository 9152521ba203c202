"""temp_directory on a volume: what memory cannot hold goes to the device, and leaves it again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from harness import connect, wait_until
from nvme import format_volume, penstock, url, value

SORT = "SELECT i, hash(i) AS h, repeat('x', 40) || i AS text FROM range({}) r(i) ORDER BY h"


def spilling(volume: Path, directory: str = "temp") -> duckdb.DuckDBPyConnection:
    """DuckDB with little memory that spills to the volume."""
    con = connect()
    con.execute("SET threads = 2")
    con.execute("SET enable_progress_bar = false")
    con.execute("SET memory_limit = '100MB'")
    con.execute(f"SET temp_directory = 'nvme://{volume}?{directory}'")
    return con


def free(volume: Path) -> str:
    """What `check` says of the room that is left."""
    return penstock("check", volume).splitlines()[-1]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty volume on a file."""
    return format_volume(tmp_path / "disk.img", "1GiB")


@pytest.mark.parametrize("directory", ["temp", "temp=spill&io=file&queues=pool"])
def test_a_sort_and_a_join_larger_than_memory(directory: str, volume: Path) -> None:
    empty = free(volume)
    with spilling(volume, directory) as con:
        # Values longer than a block have files of their own.
        con.execute("CREATE TABLE big (s VARCHAR)")
        for letter in range(50):
            con.execute(f"INSERT INTO big SELECT repeat(chr({65 + letter % 26}), 1000000)")
        con.execute("CREATE TABLE t AS " + SORT.format(2000000))
        rows = con.execute("SELECT path FROM duckdb_temporary_files()").fetchall()
        assert rows and all(path.startswith("nvme://") for (path,) in rows)
        assert value(con, "SELECT count(*) FROM t JOIN t u USING (h)") == 2000000
        con.execute("DROP TABLE t")
        assert value(con, "SELECT sum(length(s)) FROM big") == 50000000
    assert free(volume) == empty


def told(con: duckdb.DuckDBPyConnection, name: str) -> int:
    """What is counted under a name, of all queues."""
    found = value(con, f"SELECT sum(value)::BIGINT FROM penstock_stats() WHERE name = '{name}'")
    assert found is None or isinstance(found, int)
    return found or 0


@pytest.mark.parametrize(("limit", "beside"), [("1GiB", "0"), ("64MiB", "0"), ("64MiB", "8GiB")])
def test_what_spills_stays_in_memory_as_long_as_there_is_some(
    limit: str, beside: str, volume: Path
) -> None:
    with connect() as con:
        con.execute(f"SET GLOBAL penstock_memory_limit_bytes = '{limit}'")
        con.execute(f"SET GLOBAL penstock_nvme_spill_memory_bytes = '{beside}'")
        con.execute("SET threads = 2; SET memory_limit = '100MB'")
        con.execute("SET enable_progress_bar = false")
        con.execute(f"SET temp_directory = 'nvme://{volume}?temp'")
        before = told(con, "device_bytes_written")
        con.execute("CREATE TABLE t AS " + SORT.format(3000000))
        spilled = value(con, "SELECT sum(size) FROM duckdb_temporary_files()")
        assert isinstance(spilled, int) and spilled > 40 << 20
        written = told(con, "device_bytes_written") - before
        held = told(con, "memory_of_spills_bytes_now")
        within = told(con, "memory_of_volumes_bytes_now")
        if beside != "0":
            assert (written, within) == (0, 0)
            assert held > 40 << 20
        elif limit == "1GiB":
            assert written == 0
            assert within >= held > 40 << 20
        else:
            assert written > 8 << 20
            assert 8 << 20 < held <= 32 << 20
        sums = "SELECT count(*), bit_xor(hash(text)) FROM {}"
        rows = "SELECT repeat('x', 40) || i AS text FROM range(3000000) r(i)"
        found = con.execute(sums.format("t")).fetchone()
        assert found == con.execute(sums.format(f"({rows})")).fetchone()
        con.execute("DROP TABLE t")
        wait_until(lambda: told(con, "memory_of_spills_bytes_now") <= 8 << 20, "giving it back")


@pytest.mark.parametrize("scope", ["", "GLOBAL "])
def test_a_limit_that_is_set_holds_for_what_spills_next(scope: str, volume: Path) -> None:
    with spilling(volume) as con:
        # A statement that opens a volume: from here on statements say what the limits are.
        con.execute(f"ATTACH '{url(volume)}' AS d")
        before = told(con, "device_bytes_written")
        con.execute(f"SET {scope}penstock_nvme_spill_memory_bytes = 0")
        con.execute(f"SET {scope}penstock_memory_limit_bytes = '64MiB'")
        con.execute("CREATE TABLE t AS " + SORT.format(3000000))
        assert told(con, "device_bytes_written") - before > 8 << 20
        assert told(con, "memory_of_spills_beside_bytes_now") == 0


def test_a_limit_that_is_lowered_pushes_out_what_was_spilled(volume: Path) -> None:
    with spilling(volume) as con:
        con.execute("CREATE TABLE t AS " + SORT.format(3000000))
        # Beside DuckDB's limit, in no account: so the sum is told by both.
        beside = told(con, "memory_of_spills_beside_bytes_now")
        assert beside == told(con, "memory_of_spills_bytes_now") > 40 << 20
        assert told(con, "memory_held_bytes_now") == 0
        before = told(con, "device_bytes_written")
        con.execute("SET GLOBAL penstock_memory_limit_bytes = '64MiB'")
        con.execute("SET GLOBAL penstock_nvme_spill_memory_bytes = 0")
        wait_until(lambda: told(con, "memory_of_spills_beside_bytes_now") == 0, "its going")
        assert 0 < told(con, "memory_of_spills_bytes_now") <= 32 << 20
        assert told(con, "device_bytes_written") - before >= beside - (34 << 20)
        assert value(con, "SELECT bit_xor(h) FROM t") == value(
            con, "SELECT bit_xor(hash(i)) FROM range(3000000) r(i)"
        )


def test_beside_a_database_on_the_same_device(volume: Path) -> None:
    with spilling(volume) as con:
        con.execute(f"ATTACH '{url(volume)}' AS d")
        con.execute("CREATE TABLE d.t AS " + SORT.format(2000000))
        con.execute("CHECKPOINT d")
        before = "SELECT h, lag(h, 1, 0::UBIGINT) OVER () AS before FROM d.t"
        assert value(con, f"SELECT bool_and(h >= before) FROM ({before})") is True
    assert penstock("ls", volume).split()[1] == "main_db"


def test_two_databases_of_a_process_do_not_meet(volume: Path) -> None:
    with spilling(volume) as one, spilling(volume) as two:
        one.execute("CREATE TABLE t AS " + SORT.format(2000000))
        two.execute("CREATE TABLE t AS " + SORT.format(1500000))
        for con, count in [(one, 2000000), (two, 1500000)]:
            assert value(con, "SELECT bit_xor(h) FROM t") == value(
                con, f"SELECT bit_xor(hash(i)) FROM range({count}) r(i)"
            )


def test_what_is_spilled_is_found_without_a_look_at_the_devices_name(volume: Path) -> None:
    with spilling(volume) as con:
        # A file of its own for each value, and blocks of others.
        con.execute("CREATE TABLE big (s VARCHAR)")
        for letter in range(50):
            con.execute(f"INSERT INTO big SELECT repeat(chr({65 + letter % 26}), 1000000)")
        con.execute("CREATE TABLE t AS " + SORT.format(2000000))
        volume.rename(volume.with_name("renamed.img"))
        assert value(con, "SELECT count(*) FROM t JOIN t u USING (h)") == 2000000
        con.execute("DROP TABLE t")
        assert value(con, "SELECT sum(length(s)) FROM big") == 50000000


def test_after_a_kill_nothing_is_left(volume: Path) -> None:
    empty = free(volume)
    program = (
        "import sys; from test_nvme_spill import *\n"
        "con = spilling(Path(sys.argv[1]))\n"
        "con.execute('CREATE TABLE t AS ' + SORT.format(2000000))\n"
        "print(value(con, 'SELECT sum(size) FROM duckdb_temporary_files()'), flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, volume],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    assert int(process.stdout.readline()) > 10 << 20
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert free(volume) == empty


def test_a_device_without_room_ends_the_query_only(tmp_path: Path) -> None:
    volume = format_volume(tmp_path / "small.img", "32MiB")
    with spilling(volume) as con:
        con.execute(f"ATTACH '{url(volume)}' AS d")
        con.execute("CREATE TABLE d.t AS SELECT 42 AS i")
        told = r"small\.img\?temp/duckdb_temp_\S+: \d+ bytes more are needed"
        with pytest.raises(duckdb.Error, match=told):
            con.execute("CREATE TABLE t AS " + SORT.format(3000000))
        con.execute("INSERT INTO d.t VALUES (43)")
        con.execute("CHECKPOINT d")
        assert value(con, "SELECT sum(i) FROM d.t") == 85


def test_a_place_that_cannot_be_spilled_to(volume: Path) -> None:
    for directory, told in [("db=a", "no directory for spilling"), ("temp&io=x", "io=x")]:
        with spilling(volume, directory) as con, pytest.raises(duckdb.Error, match=told):
            con.execute("CREATE TABLE t AS " + SORT.format(2000000))
