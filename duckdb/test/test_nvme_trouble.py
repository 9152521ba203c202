"""What goes wrong with a volume under ATTACH: clear errors, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from harness import connect
from nvme import BINARY, attached, format_volume, penstock, url, value

COPY_BYTES = 256 * 4096


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty volume on a file."""
    return format_volume(tmp_path / "disk.img", "64MiB")


def refusal(sql: str, *before: str) -> str:
    """The error of a statement in a fresh DuckDB."""
    with connect() as con:
        for statement in before:
            con.execute(statement)
        with pytest.raises(duckdb.Error) as error:
            con.execute(sql)
    return str(error.value)


def test_a_url_that_is_wrong(volume: Path, tmp_path: Path) -> None:
    nothing, image = tmp_path / "none.img", tmp_path / "foreign.img"
    image.write_bytes(b"\0" * (8 << 20))
    for sql, told in [
        (f"ATTACH 'nvme://{nothing}?db=a'", f"penstock nvme format {nothing}"),
        ("ATTACH 'nvme:///dev/ng99n9?db=a'", "ls /dev/ng*"),
        (f"ATTACH 'nvme://{image}?db=a'", f"penstock nvme format {image}"),
        (f"ATTACH 'nvme://{image}?db=a' (READ_ONLY)", f"penstock nvme format {image}"),
        (f"ATTACH 'nvme://{volume}'", "?db=sales"),
        (f"ATTACH 'nvme://{volume}?db=a&io=urin'", "Did you mean uring?"),
        (f"ATTACH 'nvme://{volume}?db=a&queues=treads'", "Did you mean thread?"),
        (f"ATTACH 'nvme://{volume}?db=a&depth=0'", "not between 1 and 1024"),
        (f"ATTACH 'nvme://{volume}?db=a&wait=pol'", "Did you mean poll?"),
        (f"ATTACH 'nvme://{volume}?db=a&io=direct&wait=poll'", "there is nothing to poll"),
        (f"ATTACH 'nvme://{volume}?db=a&ios=uring'", "Did you mean io?"),
        (f"ATTACH 'nvme://{volume}?db=a&io=passthrough'", "/dev/ng0n1"),
        (f"ATTACH 'nvme://{volume}?db=a' (READ_ONLY)", "does not exist"),
        ("SET penstock_nvme_io = 'urin'", "Did you mean uring?"),
        ("SET penstock_nvme_queues = 'two'", "single, pool, thread"),
        ("SET penstock_nvme_wait = 'two'", "sleep, poll"),
    ]:
        assert told in refusal(sql), (sql, refusal(sql))
    penstock("import", volume, made_by_stock(tmp_path), "--db", "sales")
    assert "sales" in refusal(f"ATTACH 'nvme://{volume}'")


def made_by_stock(tmp_path: Path) -> Path:
    """A small database file."""
    path = tmp_path / "stock.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS i")
    return path


def test_the_same_database_twice(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.img").symlink_to(volume)
    with connect() as con:
        con.execute(f"ATTACH '{url(volume, 'a')}' AS first")
        for spelling in [volume, "disk.img", "./disk.img", "link.img"]:
            with pytest.raises(duckdb.Error, match="already attached by database"):
                con.execute(f"ATTACH 'NVME://{spelling}?db=a' AS second")
        for asked in ["io=direct", "queues=pool", "depth=8", "wait=poll"]:
            told = rf"io=uring, queues=thread, depth=32 and wait=sleep; this asks for {asked}\b"
            with pytest.raises(duckdb.Error, match=told):
                con.execute(f"ATTACH 'nvme://disk.img?db=b&{asked}' AS second")
        con.execute("SET penstock_nvme_io = 'direct'")
        con.execute("DETACH first")
        con.execute("ATTACH 'nvme://disk.img?db=b' AS second")
        assert "io=direct" in str(
            value(con, "SELECT path FROM duckdb_databases() WHERE database_name = 'second'")
        )
        con.execute("DETACH second")
        con.execute(f"ATTACH '{url(volume, 'a', io='uring')}' AS first")
        with pytest.raises(duckdb.Error, match="this asks for io=direct"):
            con.execute("ATTACH 'nvme://disk.img?db=b' AS second")
        con.execute("ATTACH 'nvme://disk.img?db=b&io=auto' AS second")


def test_another_process(volume: Path) -> None:
    program = (
        "import sys; from nvme import *; from pathlib import Path\n"
        "attached(Path(sys.argv[1]), options=sys.argv[2]).close()"
    )

    def other(options: str) -> str:
        command = [sys.executable, "-c", program, str(volume), options]
        here = Path(__file__).parent
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        return done.stderr

    assert other("") == ""
    with attached(volume):
        for options in ["", "(READ_ONLY)"]:
            assert "another process has the device open" in other(options)
        done = subprocess.run(
            [BINARY, "nvme", "ls", volume], capture_output=True, text=True, check=False
        )
        assert "another process has the device open" in done.stderr
    with attached(volume, options="(READ_ONLY)"):
        assert other("(READ_ONLY)") == ""
        assert "another process has the device open" in other("")
    assert other("") == ""


def test_a_read_only_database_beside_others(volume: Path) -> None:
    with connect() as con:
        con.execute(f"ATTACH '{url(volume, 'a')}' AS a")
        con.execute("CREATE TABLE a.t AS SELECT 1 AS i")
        con.execute(f"ATTACH '{url(volume, 'b')}' AS b")
        con.execute("CREATE TABLE b.t AS SELECT 2 AS i")
        con.execute("DETACH a")
        con.execute(f"ATTACH '{url(volume, 'a')}' AS a (READ_ONLY)")
        assert value(con, "SELECT a.t.i + b.t.i FROM a.t, b.t") == 3
        con.execute("INSERT INTO b.t VALUES (3)")
        con.execute("DETACH b")
        con.execute("DETACH a")
        con.execute(f"ATTACH '{url(volume, 'a')}' AS a (READ_ONLY)")
        with pytest.raises(duckdb.Error, match="open already read-only"):
            con.execute(f"ATTACH '{url(volume, 'b')}' AS b")


def test_a_device_that_fills_up_loses_nothing(volume: Path) -> None:
    rows = "SELECT i, hash(i) AS h FROM range({}, {}) r(i)"
    with attached(volume) as con:
        con.execute("CREATE TABLE t AS " + rows.format(0, 1000000))
        con.execute("CHECKPOINT")
        with pytest.raises(duckdb.Error, match=r"bytes more are needed.*penstock nvme grow"):
            con.execute("CREATE TABLE u AS " + rows.format(0, 20000000))
        done = 1000000
        with pytest.raises(duckdb.Error, match="bytes more are needed"):
            for _ in range(1000):
                con.execute("INSERT INTO t " + rows.format(done, done + 100000))
                done += 100000
        assert value(con, "SELECT count(*) FROM t") == done
    for _ in range(2):
        with attached(volume) as con:
            assert value(con, "SELECT count(*) FROM t") == done
            assert value(con, "SELECT bit_xor(h) FROM t") == value(
                con, f"SELECT bit_xor(hash(i)) FROM range({done}) r(i)"
            )
        with volume.open("r+b") as file:
            file.truncate(256 << 20)
        penstock("grow", volume)
        with attached(volume) as con:
            con.execute("INSERT INTO t " + rows.format(done, done + 1000000))
            done += 1000000


def test_damage_to_the_tables(volume: Path) -> None:
    with attached(volume) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS i")
    whole = volume.read_bytes()
    starts = [0, COPY_BYTES, len(whole) - COPY_BYTES]

    def damage(*places: int) -> None:
        bytes_ = bytearray(whole)
        for place in places:
            bytes_[place + 40 : place + 44] = b"\xff\xff\xff\xff"
        volume.write_bytes(bytes_)

    for spared in range(3):
        damage(*(start for index, start in enumerate(starts) if index != spared))
        with attached(volume) as con:
            assert value(con, "SELECT i FROM t") == 42
        assert penstock("check", volume).count("sound") == 3
    damage(*starts)
    assert "no copy of the volume's table is sound" in refusal(f"ATTACH '{url(volume)}'")


def crc64(bytes_: bytes | bytearray) -> int:
    """CRC-64/NVME, bit by bit."""
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in bytes_:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x9A6C9329AC4BC9B5 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFFFFFFFFFF


def test_a_volume_of_a_newer_format(volume: Path) -> None:
    bytes_ = bytearray(volume.read_bytes())
    for start in [0, COPY_BYTES, len(bytes_) - COPY_BYTES]:
        length = 64 + int.from_bytes(bytes_[start + 12 : start + 16], "little")
        bytes_[start + 8] += 1
        bytes_[start + 16 : start + 24] = bytes(8)
        bytes_[start + 16 : start + 24] = crc64(bytes_[start : start + length]).to_bytes(
            8, "little"
        )
    volume.write_bytes(bytes_)
    assert "Use a newer Penstock" in refusal(f"ATTACH '{url(volume)}'")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_what_copy_wrote_is_there_after_the_end(kind: str, volume: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from nvme import *\n"
        f"con = connect(); con.execute(\"COPY (FROM range(300000)) TO '{url(volume, kind)}' "
        f'(FORMAT {kind})")'
    )
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True)
    out = tmp_path / f"out.{kind}"
    penstock("export", volume, out, "--db", kind)
    with connect() as con:
        assert value(con, f"SELECT sum(#1) FROM '{out}'") == 300000 * 299999 // 2


def test_a_database_that_is_being_written_is_not_imported(volume: Path, tmp_path: Path) -> None:
    source = made_by_stock(tmp_path)
    with duckdb.connect(str(source)) as con:
        con.execute("INSERT INTO t VALUES (43)")
        command = [str(BINARY), "nvme", "import", str(volume), str(source), "--db", "sales"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode and "open for writing" in done.stderr, done.stderr
    penstock("import", volume, source, "--db", "sales")


# Lets the kernel refuse io_uring_setup (425 on every architecture), as containers do.
FORBID_IO_URING = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *it) for it in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
"""


def test_where_io_uring_is_forbidden_databases_go_without_unless_asked(volume: Path) -> None:
    program = FORBID_IO_URING + (
        "from nvme import *\n"
        f"con = attached(Path({str(volume)!r}))\n"
        "con.execute('CREATE TABLE t AS SELECT 42 AS i; CHECKPOINT')\n"
        f"try: attached(Path({str(volume)!r}), io='uring')\n"
        "except duckdb.Error as error: print(error)\n"
        "con.close()\n"
        f"try: attached(Path({str(volume)!r}), io='uring')\n"
        "except duckdb.Error as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "with io=direct" in done.stdout and "io=direct, or allow it" in done.stdout, done.stdout
    with attached(volume) as con:
        assert value(con, "SELECT i FROM t") == 42
