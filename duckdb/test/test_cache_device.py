"""The disk cache on a device instead of a directory: a file that is used as one, a loop device."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import duckdb
import pytest
from harness import ROOT, Fake, connect, second_process
from nvme import has_loop_devices, loop_device, not_run

ROWS = "SELECT i, hash(i) AS h FROM range(300000) t(i)"


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The binary, whatever comes of it."""
    command = [str(ROOT / "build" / "penstock"), "nvme", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def reader(store: Fake, device: str) -> duckdb.DuckDBPyConnection:
    """A new database that remembers nothing, with the cache on a device."""
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"SET GLOBAL penstock_cache_dir = 'nvme://{device}'")
    con.execute("SET GLOBAL penstock_cache_validation = 'never'")
    return con


def total(con: duckdb.DuckDBPyConnection, url: str) -> tuple[int, ...]:
    row = con.execute(f"SELECT count(*), sum(h), sum(i) FROM '{url}'").fetchone()
    assert row
    return row


@pytest.fixture
def url(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    name = store.url("cached/t.parquet")
    con.execute(f"COPY ({ROWS}) TO '{name}'")
    store.reset()
    return name


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "cache.img"
    done = penstock("format", "--cache", str(path), "--size", "64MiB")
    assert done.returncode == 0, done.stderr
    assert "a cache of" in done.stdout
    return path


@pytest.mark.parametrize("how", ["", "?io=uring", "?io=direct&queues=pool", "?io=file"])
def test_a_warm_read_asks_nothing_also_after_a_restart(
    store: Fake, url: str, device: Path, how: str
) -> None:
    first = reader(store, f"{device}{how}")
    answer = total(first, url)
    assert store.requests() != []
    first.close()
    for _ in range(2):
        store.reset()
        again = reader(store, f"{device}{how}")
        assert total(again, url) == answer
        assert store.requests() == []
        held = again.execute(
            "SELECT cached_bytes > 2000000 FROM penstock_cache() WHERE cache = 'disk'"
        )
        assert held.fetchall() == [(True,)]
        again.close()


def test_a_block_device_is_a_cache_like_a_file(store: Fake, url: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(64 << 20))
    # Where there are none, the file has to do.
    has_loop = has_loop_devices()
    if not has_loop:
        not_run("test_cache_device: a cache on a block device")
    with loop_device(image, "--sector-size", "4096") if has_loop else nullcontext(image) as device:
        done = penstock("format", "--cache", str(device))
        assert done.returncode == 0, done.stderr
        first = reader(store, f"{device}")
        answer = total(first, url)
        assert store.requests() != []
        first.close()
        for how in ("", "?io=uring&queues=single", "?io=direct&queues=pool", "?io=file"):
            store.reset()
            again = reader(store, f"{device}{how}")
            assert total(again, url) == answer
            assert store.requests() == [], how
            read = again.execute(
                "SELECT sum(value) FROM penstock_stats() "
                "WHERE name = 'device_bytes_read' AND device = ?",
                [str(device)],
            ).fetchone()
            assert read is not None and read[0] > 2_000_000, how
            again.close()


def test_the_queues_of_the_device_are_counted(store: Fake, url: str, device: Path) -> None:
    first = reader(store, str(device))
    total(first, url)
    first.close()
    con = reader(store, str(device))
    total(con, url)
    rows = con.execute(
        "SELECT name, sum(value)::BIGINT FROM penstock_stats() WHERE device = ? GROUP BY name",
        [str(device)],
    ).fetchall()
    counts = dict(rows)
    assert counts["device_bytes_read"] > 2_000_000
    assert counts["device_bytes_written"] > 2_000_000
    commands = sum(counts[f"device_{what}"] for what in ("reads", "writes", "flushes", "trims"))
    assert counts["device_latency"] == commands
    assert counts["device_in_flight_now"] == 0
    queues = con.execute(
        "SELECT count(DISTINCT queue) FROM penstock_stats() WHERE device = ?", [str(device)]
    ).fetchone()
    assert queues is not None
    assert queues[0] >= 2, "the thread that writes has one, and those that read"
    con.close()


def test_clearing_lasts(store: Fake, url: str, device: Path) -> None:
    first = reader(store, str(device))
    total(first, url)
    first.execute("CALL penstock_clear_cache()")
    assert first.execute("SELECT count(*) FROM penstock_cache()").fetchone() == (0,)
    first.close()
    again = reader(store, str(device))
    assert again.execute("SELECT count(*) FROM penstock_cache()").fetchone() == (0,)
    again.close()


def test_damage_costs_a_request_and_no_answer(store: Fake, url: str, device: Path) -> None:
    first = reader(store, str(device))
    answer = total(first, url)
    first.close()
    content = bytearray(device.read_bytes())
    for at in range(70_000, len(content) - 5000, 4096):
        content[at] ^= 0xFF
    device.write_bytes(content)
    second = reader(store, str(device))
    assert total(second, url) == answer
    second.close()


def test_another_process_goes_without_and_says_so_once(store: Fake, url: str, device: Path) -> None:
    con = reader(store, str(device))
    answer = total(con, url)
    told = second_process(f"penstock_cache_dir = 'nvme://{device}'", url, store.secret)
    assert told.count("penstock: reading without disk cache") == 1
    assert "another process has the device open" in told
    assert "give each process its own penstock_cache_dir" in told
    assert total(con, url) == answer
    con.close()


def test_what_was_not_made_a_cache_is_left_alone(store: Fake, url: str, tmp_path: Path) -> None:
    volume = tmp_path / "volume.img"
    assert penstock("format", "--cache", str(volume), "--size", "64MiB").returncode == 0
    con = reader(store, str(volume))
    assert penstock("format", "--force", str(volume)).returncode == 0
    before = volume.read_bytes()
    told = r"but a Penstock volume.*nvme format --cache --force"
    with pytest.raises(duckdb.Error, match=told):
        total(con, url)
    with pytest.raises(duckdb.InvalidInputException, match=told):
        reader(store, str(volume))
    assert volume.read_bytes() == before
    refused = penstock("format", "--cache", str(volume))
    assert refused.returncode != 0
    assert "a Penstock volume" in refused.stderr
    with pytest.raises(duckdb.InvalidInputException, match=r"there is no such device"):
        reader(store, str(tmp_path / "nothing.img"))


@pytest.mark.parametrize("wrong", ["/dev/null", "/dev/null?io=file", "/tmp", "empty", "zeros"])
def test_what_is_no_device_is_refused_and_nothing_changes(
    store: Fake, url: str, device: Path, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "zeros").write_bytes(bytes(8 << 20))
    con = reader(store, str(device))
    answer = total(con, url)
    path = wrong if wrong.startswith("/") else tmp_path / wrong
    with pytest.raises(duckdb.InvalidInputException, match=r"penstock_cache_dir.*(cache|device)"):
        con.execute(f"SET GLOBAL penstock_cache_dir = 'nvme://{path}'")
    named = con.execute("SELECT current_setting('penstock_cache_dir')").fetchone()
    assert named == (f"nvme://{device}",)
    # The device that is in use is as good a name as before.
    con.execute(f"SET GLOBAL penstock_cache_dir = 'nvme://{device}'")
    assert total(con, url) == answer
    con.close()


@pytest.mark.parametrize("wrong", ["nvme://", "nvme:///d?io=urin", "nvme:///d?queue=pool"])
def test_a_wrong_name_is_refused_at_once(wrong: str) -> None:
    con = connect()
    with pytest.raises(duckdb.InvalidInputException, match=r"penstock_cache_dir"):
        con.execute(f"SET GLOBAL penstock_cache_dir = '{wrong}'")
