"""The disk cache: what one process read the next need not fetch, and what it holds can be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from harness import EXTENSION, Fake, connect, ran, second_process

ROWS = "SELECT i, hash(i) AS h FROM range(300000) t(i)"


def reader(store: Fake, cache_dir: Path) -> duckdb.DuckDBPyConnection:
    """A new database, which remembers nothing, with the disk cache."""
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"SET GLOBAL penstock_cache_dir = '{cache_dir}'")
    return con


def total(con: duckdb.DuckDBPyConnection, url: str) -> tuple[int, ...]:
    row = con.execute(f"SELECT count(*), sum(h), sum(i) FROM '{url}'").fetchone()
    assert row
    return row


def received(store: Fake) -> int:
    """Bytes that the store sent since the last look."""
    sent = sum(request["bytes_out"] for request in store.requests())
    store.reset()
    return int(sent)


@pytest.fixture
def url(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    name = store.url("cached/t.parquet")
    con.execute(f"COPY ({ROWS}) TO '{name}'")
    store.reset()
    return name


@pytest.fixture
def filled(store: Fake, url: str, tmp_path: Path) -> Path:
    """A directory in which an earlier database has left what it read."""
    first = reader(store, tmp_path)
    total(first, url)
    first.close()
    assert list(tmp_path.glob("*.blocks"))
    return tmp_path


def test_the_next_database_fetches_nothing_twice(store: Fake, url: str, tmp_path: Path) -> None:
    first = reader(store, tmp_path)
    answer = total(first, url)
    size = received(store)
    assert size > 2_000_000
    first.close()
    second = reader(store, tmp_path)
    assert total(second, url) == answer
    assert received(store) < 300_000, "only the opening, which asks for the version"
    rows = second.execute(
        "SELECT object, etag <> '', size_bytes, cached_bytes, blocks > 0 "
        "FROM penstock_cache() WHERE cache = 'disk'"
    ).fetchall()
    assert len(rows) == 1
    name, has_tag, size_bytes, cached_bytes, has_blocks = rows[0]
    assert name.endswith("cached/t.parquet")
    assert store.address in name
    assert has_tag
    assert has_blocks
    assert 0 < cached_bytes <= size_bytes
    hits = second.execute("SELECT value FROM penstock_stats() WHERE name = 'cache_bytes_read'")
    assert hits.fetchone() == (pytest.approx(cached_bytes, rel=0.2),)
    second.execute("CALL penstock_clear_cache()")
    assert second.execute("SELECT count(*) FROM penstock_cache()").fetchone() == (0,)
    assert list(tmp_path.glob("*.blocks")) == []
    second.close()


def test_a_replaced_object_is_read_anew(store: Fake, url: str, tmp_path: Path) -> None:
    first = reader(store, tmp_path)
    answer = total(first, url)
    writer = connect()
    writer.execute(f"CREATE SECRET s ({store.secret})")
    writer.execute(f"COPY (SELECT i + 1 AS i, h FROM ({ROWS})) TO '{url}'")
    second = reader(store, tmp_path)
    assert total(second, url) == (answer[0], answer[1], answer[2] + 300_000)


def test_a_prepared_statement_does_not_keep_what_its_glob_told(store: Fake, url: str) -> None:
    """What was listed when it was prepared is asked for again, as the policy says."""
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret}); SET penstock_cache_validation = 'query'")
    pattern = url.replace("t.parquet", "*.parquet")
    con.execute(f"PREPARE p AS SELECT count(*), sum(h), sum(i) FROM read_parquet('{pattern}')")
    before = con.execute("EXECUTE p").fetchone()
    assert before
    writer = connect()
    writer.execute(f"CREATE SECRET s ({store.secret})")
    writer.execute(f"COPY (SELECT i + 1 AS i, h FROM ({ROWS})) TO '{url}'")
    for _ in range(2):
        after = con.execute("EXECUTE p").fetchone()
        assert after == (before[0], before[1], before[2] + 300_000)


def test_damage_costs_a_request_and_no_answer(store: Fake, url: str, tmp_path: Path) -> None:
    first = reader(store, tmp_path)
    answer = total(first, url)
    first.close()
    for file in tmp_path.glob("*.blocks"):
        content = bytearray(file.read_bytes())
        for at in range(100, len(content), 4096):
            content[at] ^= 0xFF
        file.write_bytes(content)
    second = reader(store, tmp_path)
    assert total(second, url) == answer


def test_another_process_goes_without_and_says_so_once(
    store: Fake, url: str, tmp_path: Path
) -> None:
    con = reader(store, tmp_path)
    answer = total(con, url)
    told = second_process(f"penstock_cache_dir = '{tmp_path}'", url, store.secret)
    assert told.count("penstock: reading without disk cache") == 1
    assert "uses this cache directory" in told
    assert "Give each process its own penstock_cache_dir" in told
    # The first one goes on, and without a cache so does everyone.
    assert total(con, url) == answer
    con.execute("SET GLOBAL penstock_cache_dir = ''")
    assert total(con, url) == answer


def test_clearing_takes_the_disk_before_anything_was_read(store: Fake, filled: Path) -> None:
    second = reader(store, filled)
    assert second.execute("SELECT count(*) FROM penstock_cache()").fetchone() == (1,)
    second.execute("CALL penstock_clear_cache()")
    assert list(filled.glob("*.blocks")) == []


def test_explain_analyze_tells_what_caches_had(store: Fake, url: str, filled: Path) -> None:
    second = reader(store, filled)
    rows = second.execute(f"EXPLAIN ANALYZE SELECT sum(h) FROM '{url}'").fetchall()
    assert "from caches of bytes: " in str(rows)


@pytest.mark.parametrize("wrong", ["s3://bucket/cache", "file:///tmp/x", "~somebody/x"])
def test_what_is_no_local_directory_is_refused_at_once(wrong: str) -> None:
    con = connect()
    with pytest.raises(duckdb.InvalidInputException, match=r"penstock_cache_dir.*local directory"):
        con.execute(f"SET GLOBAL penstock_cache_dir = '{wrong}'")


def test_a_directory_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    con = connect()
    con.execute(f"SET GLOBAL penstock_cache_dir = '{tmp_path}/good'")
    assert not (tmp_path / "good").exists()
    for wrong in [file, file / "cache"]:
        with pytest.raises(duckdb.InvalidInputException, match=r"penstock_cache_dir.*directory"):
            con.execute(f"SET GLOBAL penstock_cache_dir = '{wrong}'")
        row = con.execute("SELECT current_setting('penstock_cache_dir')").fetchone()
        assert row == (f"{tmp_path}/good",)


def test_the_environments_directory_is_checked_where_penstock_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(file))
    told = ran("from harness import connect; connect()")
    assert told.returncode != 0
    assert "PENSTOCK_CACHE_DIR" in told.stderr
    assert "is no directory" in told.stderr


def test_a_forked_child_does_not_keep_its_parents_directory(
    store: Fake, url: str, filled: Path
) -> None:
    script = (
        "import duckdb, os, sys, time\n"
        "con = duckdb.connect(config={'allow_unsigned_extensions': 'true'})\n"
        f"con.execute(\"LOAD '{EXTENSION}'\")\n"
        f'con.execute("CREATE SECRET s ({store.secret})")\n'
        f"con.execute(\"SET GLOBAL penstock_cache_dir = '{filled}'\")\n"
        f"con.execute(\"SELECT count(h) FROM '{url}'\").fetchall()\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read()\n"  # until the test lets it go
        "    os._exit(0)\n"
        "print('forked', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        assert parent.stdin
        assert parent.stdout.readline() == "forked\n"
        parent.wait(timeout=60)
        # The child lives, with copies of all that its parent had open.
        con = reader(store, filled)
        assert total(con, url)[0] == 300_000
        con.close()
        parent.stdin.close()


def test_a_forked_child_does_not_clear_its_parents_cache(
    store: Fake, url: str, filled: Path
) -> None:
    script = (
        "import os\n"
        "from harness import connect\n"
        "con = connect()\n"
        f'con.execute("CREATE SECRET s ({store.secret})")\n'
        f"con.execute(\"SET GLOBAL penstock_cache_dir = '{filled}'\")\n"
        f"con.execute(\"SELECT count(h) FROM '{url}'\").fetchall()\n"
        "if os.fork() == 0:\n"
        "    for sql in ('CALL penstock_clear_cache()', 'FROM penstock_cache()'):\n"
        "        try:\n"
        "            con.execute(sql).fetchall()\n"
        "        except Exception as error:\n"
        "            os.write(1, f'{sql}: {error}\\n'.encode())\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "con.close()\n"
    )
    blocks = {path.name: path.read_bytes() for path in filled.glob("*.blocks")}
    assert blocks
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.count("was forked") == 2, done.stdout + done.stderr
    assert {path.name: path.read_bytes() for path in filled.glob("*.blocks")} == blocks
    store.reset()
    con = reader(store, filled)
    assert total(con, url)[0] == 300_000
    assert [request["method"] for request in store.requests()] == ["HEAD"]
    con.close()


def test_a_new_process_asks_for_the_version_only(store: Fake, url: str, filled: Path) -> None:
    store.reset()
    second = reader(store, filled)
    total(second, url)
    assert [request["method"] for request in store.requests()] == ["HEAD"]
    second.close()
    store.reset()
    third = reader(store, filled)
    third.execute("SET penstock_cache_validation = 'never'")
    total(third, url)
    assert store.requests() == []
    third.close()


def test_what_was_overwritten_does_not_come_back_where_nothing_is_asked(
    store: Fake, url: str, filled: Path
) -> None:
    def by_never() -> duckdb.DuckDBPyConnection:
        con = reader(store, filled)
        con.execute("SET GLOBAL penstock_cache_validation = 'never'")
        return con

    con = by_never()
    before = total(con, url)
    con.close()
    # A process of its own, which reads nothing of it.
    con = by_never()
    con.execute(f"COPY (SELECT i + 1 AS i, h FROM ({ROWS})) TO '{url}'")
    con.close()
    for requests in (True, False):
        con = by_never()
        store.reset()
        assert total(con, url) == (before[0], before[1], before[2] + 300_000)
        assert bool(store.requests()) == requests
        con.close()
