"""ATTACH 'nvme://…': a read-write database on a volume, in one process."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from harness import IS_DUCKDB_2, connect
from nvme import attached, format_volume, penstock, url, value


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty volume on a file."""
    return format_volume(tmp_path / "disk.img")


@pytest.mark.parametrize("queues", ["thread", "pool", "single", "sync"])
@pytest.mark.parametrize("io", ["uring", "uring&wait=poll", "direct", "file"])
def test_what_is_written_is_there_the_next_time(io: str, queues: str, volume: Path) -> None:
    with attached(volume, io=io, queues=queues) as con:
        con.execute("CREATE TABLE t AS SELECT i, hash(i) AS h FROM range(300000) t(i)")
        con.execute("CHECKPOINT")
        con.execute("INSERT INTO t SELECT i, hash(i) FROM range(300000, 300010) t(i)")
    with attached(volume, options="(READ_ONLY)") as con:
        assert value(con, "SELECT count(*) FROM t") == 300010
        assert value(con, "SELECT bit_xor(h) FROM t") == value(
            con, "SELECT bit_xor(hash(i)) FROM range(300010) t(i)"
        )
        with pytest.raises(duckdb.Error, match="read-only"):
            con.execute("INSERT INTO t VALUES (1, 1)")


def test_a_database_has_its_own_name_and_the_device_is_free_after_detach(volume: Path) -> None:
    with connect() as con:
        con.execute(f"ATTACH '{url(volume, 'sales')}'")
        con.execute(f"ATTACH '{url(volume, 'stock')}'")
        con.execute("CREATE TABLE sales.t AS SELECT 1 AS i")
        con.execute("CREATE TABLE stock.t AS SELECT 2 AS i")
        assert value(con, "SELECT i FROM stock.t") == 2
        con.execute("DETACH sales")
        con.execute("DETACH stock")
        assert penstock("ls", volume).split()[1::2] == ["sales", "stock"]
        con.execute(f"ATTACH '{url(volume, 'sales')}'")
        assert value(con, "SELECT i FROM sales.t") == 1


def test_databases_and_spills_go_on_without_external_access(volume: Path) -> None:
    with attached(volume) as con:
        con.execute(f"SET temp_directory = 'nvme://{volume}?temp'")
        con.execute("SET enable_external_access = false")
        # The log is opened only now, by a name that DuckDB has listed another way.
        con.execute("CREATE TABLE t AS SELECT i, hash(i) AS h FROM range(3000000) t(i)")
        con.execute("CHECKPOINT")
        con.execute("INSERT INTO t VALUES (-1, 0)")
        con.execute("SET threads = 1; SET memory_limit = '40MB'")
        assert value(con, "SELECT count(*) FROM (FROM t ORDER BY h OFFSET 10)") == 2999991
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"ATTACH '{url(volume, 'other')}' AS other")
    with attached(volume, options="(READ_ONLY)") as con:
        assert value(con, "SELECT count(*) FROM t") == 3000001


def test_a_pattern_finds_databases_by_their_names(volume: Path) -> None:
    with connect() as con:
        for name in ["sales", "stock", "old"]:
            con.execute(f"ATTACH '{url(volume, name)}' AS {name}")

        def found(pattern: str) -> list[str]:
            rows = con.execute(f"SELECT file FROM glob('{url(volume, pattern)}')").fetchall()
            return [file for (file,) in rows]

        assert found("s*") == [url(volume, "sales"), url(volume, "stock")]
        assert found("*") == [url(volume, name) for name in ["old", "sales", "stock"]]
        assert found("old") == [url(volume, "old")]
        assert found("x*") == []
        assert con.execute(f"FROM read_blob('{url(volume, 'x*')}')").fetchall() == []
        with pytest.raises(duckdb.InvalidInputException, match="named, not looked for by a patt"):
            con.execute("FROM glob('nvme:///dev/ng*?db=sales')")
    # Who looked has not kept it open.
    assert penstock("ls", volume).split()[1::2] == ["old", "sales", "stock"]


def test_the_queues_of_a_database_are_counted(volume: Path) -> None:
    with attached(volume) as con:
        con.execute("SET threads = 2")
        con.execute("CREATE TABLE t AS SELECT hash(i) AS h FROM range(2000000) r(i)")
        con.execute("CHECKPOINT")
    with attached(volume) as con:
        con.execute("SET threads = 2")
        con.execute("SELECT bit_xor(h) FROM t").fetchall()
        device = "FROM penstock_stats() WHERE device = ?"
        told = [str(volume)]
        counts = dict(
            con.execute(f"SELECT name, sum(value)::BIGINT {device} GROUP BY name", told).fetchall()
        )
        commands = sum(counts[f"device_{what}"] for what in ("reads", "writes", "flushes", "trims"))
        assert counts["device_bytes_read"] > 2_000_000
        assert counts["device_latency"] == commands > 10
        most = con.execute(f"SELECT max(value) {device} AND name = 'device_in_flight_most'", told)
        assert (most.fetchone() or [0])[0] >= 1
        queues = con.execute(f"SELECT count(DISTINCT queue) {device}", told).fetchone()
        assert queues is not None and queues[0] >= 2
        bounds = con.execute(
            f"SELECT upto_us {device} AND name = 'device_latency' AND queue = "
            f"(SELECT min(queue) {device} AND name = 'device_latency')",
            told * 2,
        ).fetchall()
        rising = [bound for (bound,) in bounds if bound is not None]
        assert rising and rising == sorted(set(rising))


@pytest.mark.parametrize("name", ["orders.parquet", "a/b", "a\\b", "..", "tmp_x", "100%"])
def test_copy_replaces_a_file_whole_or_not_at_all(
    name: str, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(volume.parent)
    with connect() as con:
        for number, at in enumerate([volume, volume, Path(volume.name)]):
            target = url(at, name)
            con.execute(f"COPY (SELECT {number} AS v FROM range(9)) TO '{target}' (FORMAT parquet)")
            assert value(con, f"SELECT sum(v) FROM read_parquet('{target}')") == number * 9
            assert penstock("ls", volume).splitlines()[0].endswith(f"  {name}")
        # Fails when most of it is written.
        rows = "SELECT if(i = 2999999, error('no'), i) AS v FROM range(3000000) t(i)"
        with pytest.raises(duckdb.Error, match="no"):
            con.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")
        assert value(con, f"SELECT sum(v) FROM read_parquet('{target}')") == 18
        con.execute(f"COPY (SELECT 3 AS v) TO '{target}' (FORMAT parquet)")
        assert value(con, f"SELECT sum(v) FROM read_parquet('{target}')") == 3
        assert penstock("ls", volume).split()[1::2] == [name]


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"])
def test_copy_does_not_replace_a_database_that_is_attached(options: str, volume: Path) -> None:
    with attached(volume, "sales") as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS i")
        # The volume can be written.
        con.execute(f"ATTACH '{url(volume, 'other')}'")
        con.execute(f"USE memory; DETACH d; ATTACH '{url(volume, 'sales')}' AS d {options}")
        for how in ["parquet", "csv", "parquet, USE_TMP_FILE false", "csv, USE_TMP_FILE false"]:
            # Before anything is written: its rows would fail.
            copy = f"COPY (SELECT error('row')) TO '{url(volume, 'sales')}' (FORMAT {how})"
            if IS_DUCKDB_2:
                # It binds no such statement.
                with pytest.raises(duckdb.Error, match="belongs to an attached database"):
                    con.execute(copy)
                continue
            con.execute(f"EXPLAIN {copy}")
            con.execute(f"PREPARE p AS {copy}")
            for statement in [copy, "EXECUTE p", "EXECUTE p"]:
                with pytest.raises(duckdb.Error, match="sales: it is open already"):
                    con.execute(statement)
        found = con.execute(f"FROM glob('{url(volume, '*')}')").fetchall()
        assert found == [(url(volume, "other"),), (url(volume, "sales"),)]
        assert value(con, "SELECT i FROM d.t") == 1
        con.execute(f"DETACH d; ATTACH '{url(volume, 'sales')}' AS d")
        con.execute("INSERT INTO d.t VALUES (1); CHECKPOINT d; DETACH d")
        con.execute(f"COPY (SELECT 2 AS i) TO '{url(volume, 'sales')}' (FORMAT parquet)")
        assert value(con, f"SELECT i FROM read_parquet('{url(volume, 'sales')}')") == 2


@pytest.mark.parametrize("many", ["PER_THREAD_OUTPUT", "PARTITION_BY (i)", "FILE_SIZE_BYTES 9"])
def test_a_volume_has_no_directories_for_files(many: str, volume: Path) -> None:
    with attached(volume, "sales") as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS i, 2 AS j; CHECKPOINT")
        # DuckDB 2.0 refuses to write a database that is attached before it asks us.
        for name in ["new"] if IS_DUCKDB_2 else ["sales", "new"]:
            with pytest.raises(duckdb.Error, match=f"a volume has none for.*{many[:9]}"):
                con.execute(f"COPY t TO '{url(volume, name)}' ({many}, OVERWRITE)")
        told = "COPY writes a table to a file of its own|A volume has no directories"
        with pytest.raises(duckdb.Error, match=told):
            con.execute(f"EXPORT DATABASE '{url(volume, 'new')}'")
        con.execute("CHECKPOINT")
        assert con.execute(f"FROM glob('{url(volume, '*')}')").fetchall() == [
            (url(volume, "sales"),)
        ]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_what_should_last_does_not_go_where_duckdb_spills(kind: str, volume: Path) -> None:
    spilling = f"nvme://{volume}?temp=x"
    with attached(volume, "sales") as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS i")
        for statement in [
            f"COPY t TO '{spilling}/orders.{kind}'",
            f"COPY t TO '{spilling}/orders.{kind}' (FORMAT {kind}, USE_TMP_FILE false)",
            f"EXPORT DATABASE d TO '{spilling}' (FORMAT {kind})",
            f"IMPORT DATABASE '{spilling}'",
            f"ATTACH '{spilling}/orders.db' AS e",
        ]:
            # DuckDB 2.0 opens some of them before it looks for a file beside.
            told = (
                "x/.*which is gone.* Name what lies|is a directory for spilling|has no directories"
            )
            with pytest.raises(duckdb.Error, match=told):
                con.execute(statement)
        for statement in [
            f"EXPORT DATABASE d TO 'nvme://{volume}' (FORMAT {kind})",
            f"IMPORT DATABASE 'nvme://{volume}'",
            f"ATTACH 'nvme://{volume}/sales' AS e",
        ]:
            with pytest.raises(duckdb.Error, match="A volume has no directories: EXPORT DATABASE"):
                con.execute(statement)


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("when", ["while it is planned", "while it is scanned"])
def test_a_statement_reads_one_file_or_fails(when: str, is_held: bool, volume: Path) -> None:
    target, groups = url(volume, "orders.parquet"), 8
    options = "FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 20480"

    def put(to: duckdb.DuckDBPyConnection, number: int) -> None:
        rows = f"SELECT i, {number} + hash(i) % 1 AS v FROM range({groups * 20480}) r(i)"
        to.execute(f"COPY ({rows}) TO '{target}' ({options})")

    with connect() as writer, connect() as reader:
        if is_held:
            writer.execute(f"ATTACH '{url(volume, 'sales')}'")
        put(writer, 1)
        calls: list[int] = []

        def replace(row: int) -> int:
            # Twice: the second one may lie where the one that is being read did.
            if not calls:
                calls.append(row)
                put(writer, 2)
                put(writer, 3)
            return 0

        reader.create_function("replace_it", replace, [int], int)
        reader.execute("SET threads = 1")
        # A call with a constant is made by the optimizer, behind the look at the footer.
        row = "7" if when == "while it is planned" else "i"
        query = (
            f"SELECT max(replace_it({row})), min(v), max(v), count(*) FROM read_parquet('{target}')"
        )
        with pytest.raises(
            duckdb.Error, match=r"was replaced while it was (read|open)[^|]*Run the statement again"
        ):
            reader.execute(query).fetchall()
        assert calls
        again = reader.execute(query).fetchall()
        assert again == [(0, 3, 3, groups * 20480)]
