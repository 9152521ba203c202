"""What DuckDB does with a database file, done on a volume."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from harness import connect
from nvme import attached, format_volume, penstock, url, value


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty volume on a file."""
    return format_volume(tmp_path / "disk.img", "512MiB")


def test_transactions_of_several_threads(volume: Path) -> None:
    with attached(volume) as con:
        con.execute("CREATE TABLE t (thread INTEGER, i BIGINT, text VARCHAR)")

        def write(thread: int) -> None:
            mine = con.cursor()
            for number in range(40):
                mine.execute("BEGIN")
                mine.execute(
                    f"INSERT INTO d.t SELECT {thread}, i, repeat('x', i % 900) "
                    f"FROM range({number * 50}, {number * 50 + 50}) r(i)"
                )
                mine.execute("ROLLBACK" if number % 5 == 4 else "COMMIT")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
    with attached(volume) as con:
        rows = con.execute("SELECT thread, count(*), sum(i) FROM t GROUP BY ALL ORDER BY 1")
        kept = sum(i for i in range(2000) if i // 50 % 5 != 4)
        assert rows.fetchall() == [(thread, 1600, kept) for thread in range(4)]


def test_strings_longer_than_a_block_outlive_a_restart(volume: Path) -> None:
    """From the log, and from blocks; found by an index."""
    lengths = [300_000, 1_000_000]
    wanted = [(f"{length}", length, f"{length}" * 3) for length in lengths]
    held = "SELECT key, length(text), text[-{0}:] FROM t WHERE key = '{1}'"
    with attached(volume) as con:
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        con.execute("CREATE TABLE t (key VARCHAR PRIMARY KEY, text VARCHAR)")
        for length in lengths:
            con.execute(
                f"INSERT INTO t VALUES ('{length}', right(repeat('{length}', {length}), {length}))"
            )
    for checkpoint in [True, False]:
        with attached(volume) as con:
            for row in wanted:
                found = con.execute(held.format(len(row[2]), row[0])).fetchall()
                assert found == [row], f"before a checkpoint: {checkpoint}"
            if checkpoint:
                con.execute("CHECKPOINT")


def test_readers_and_a_writer_while_checkpoints_run(volume: Path) -> None:
    with attached(volume) as con:
        con.execute("CREATE TABLE t AS SELECT i, repeat('a', 50) AS text FROM range(200000) r(i)")
        stop = threading.Event()

        def read() -> int:
            mine = con.cursor()
            rounds = 0
            while not stop.is_set() or rounds == 0:
                count, least = mine.execute("SELECT count(*), min(i) FROM d.t").fetchone() or (0, 1)
                assert count >= 200000 and least == 0
                rounds += 1
            return rounds

        def write() -> int:
            mine = con.cursor()
            number = 0
            while not stop.is_set() or number == 0:
                mine.execute(f"INSERT INTO d.t VALUES ({200000 + number}, 'b')")
                number += 1
            return number

        with ThreadPoolExecutor(3) as threads:
            readers = [threads.submit(read) for _ in range(2)]
            writer = threads.submit(write)
            try:
                for _ in range(20):
                    con.execute("CHECKPOINT d")
            finally:
                stop.set()
            assert all(reader.result() > 0 for reader in readers)
            written = writer.result()
    with attached(volume) as con:
        assert value(con, "SELECT count(*) FROM t WHERE text = 'b'") == written


def test_what_is_deleted_gives_its_room_back(volume: Path) -> None:
    with attached(volume) as con:
        for _ in range(8):
            con.execute("CREATE TABLE t AS SELECT i, hash(i) AS h FROM range(5000000) r(i)")
            con.execute("CHECKPOINT")
            con.execute("DROP TABLE t")
            con.execute("CHECKPOINT")
    size = int(penstock("ls", volume).split()[0])
    # One round takes 40 MB.
    assert size < 60 << 20


@pytest.mark.parametrize("closed", [True, False])
def test_a_file_goes_in_and_out(closed: bool, volume: Path, tmp_path: Path) -> None:
    source, back = tmp_path / "source.duckdb", tmp_path / "back.duckdb"
    stock = duckdb.connect(str(source))
    stock.execute("CREATE TABLE t AS SELECT i, hash(i) AS h FROM range(100000) r(i)")
    stock.execute("CHECKPOINT")
    if not closed:
        stock.execute("PRAGMA disable_checkpoint_on_shutdown")
        stock.execute("INSERT INTO t VALUES (-1, 1)")
    stock.close()
    penstock("import", volume, source, "--db", "sales")
    with attached(volume, "sales") as con:
        assert value(con, "SELECT count(*) FROM t") == 100000 + (not closed)
        con.execute("INSERT INTO t SELECT i, hash(i) FROM range(100000, 200000) r(i)")
        con.execute("CREATE INDEX by_i ON t (i)")
    penstock("export", volume, back, "--db", "sales")
    with duckdb.connect(str(back)) as con:
        assert value(con, "SELECT count(*) FROM t") == 200000 + (not closed)
        assert value(con, "SELECT h = hash(150000) FROM t WHERE i = 150000") is True
    with connect() as con:
        # DuckDB copies between the two just as well.
        con.execute(f"ATTACH '{back}' AS file")
        con.execute(f"ATTACH '{url(volume, 'copy')}' AS copy")
        con.execute("COPY FROM DATABASE file TO copy")
        assert value(con, "SELECT bit_xor(h) FROM copy.t") == value(
            con, "SELECT bit_xor(h) FROM file.t"
        )
