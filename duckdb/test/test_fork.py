"""A process that forks while it uses Penstock: its child and itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import EXTENSION, NO_THREADS, Fake, connect, need_package
from nvme import format_volume, penstock

HERE = Path(__file__).resolve().parent
RIGHT = (200_000, sum(range(200_000)))

# What both programs do: tell their tester something, and read.
SHARED = """
def tell(who, what):
    os.write(1, f"{who}: {what}\\n".encode())

def read(con):
    try:
        return con.execute(f"SELECT count(*), sum(i) FROM '{url}'").fetchone()
    except duckdb.Error as error:
        return error

def clear(con):
    try:
        return con.execute("CALL penstock_clear_cache()").fetchall()
    except duckdb.Error as error:
        return error
"""

SCRIPT = f"""
import duckdb, os, sys

def connect():
    con = duckdb.connect(config={{"allow_unsigned_extensions": "true", **{NO_THREADS}}})
    con.execute("LOAD '{EXTENSION}'")
    con.execute(secret)
    return con

{SHARED}
secret, url = sys.argv[1:]
con = connect()
tell("before", read(con))
child = os.fork()
if child == 0:
    tell("child clears", clear(con))
    tell("child with its parent's connection", read(con))
    tell("child with its own", read(connect()))
    os._exit(0)
_, status = os.waitpid(child, 0)
tell("status of the child", status)
con.execute("CALL penstock_clear_cache()")
tell("after", read(con))
"""


def run_with_children(args: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; one that hangs goes with all its children."""
    with subprocess.Popen(
        args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def test_parent_and_child_read_on_after_a_fork(store: Fake) -> None:
    url = store.url("fork/t.parquet")
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(200000) t(i)) TO '{url}'")
    con.close()
    secret = f"CREATE SECRET s ({store.secret})"
    done = run_with_children([sys.executable, "-c", SCRIPT, secret, url])
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert told["before"] == str(RIGHT), done.stderr
    # The threads that do its I/O stayed in the parent; the error says what to do instead.
    assert "forked" in told["child with its parent's connection"]
    assert "Open a new database connection" in done.stdout
    assert "forked" in told["child clears"], "what its parent has is not its own to forget"
    assert told["child with its own"] == str(RIGHT)
    assert told["status of the child"] == "0"
    assert told["after"] == str(RIGHT)


# A process that loads Penstock, forks, and has its children read: `when` is whether it has read
# itself before, `other` an extension that it wraps.
EARLY_SCRIPT = f"""
import multiprocessing, os, sys
sys.path.insert(0, {str(HERE)!r})
import duckdb
from harness import connect, load_penstock, load_pypi

secret, url, when, other = sys.argv[1:]

def opened():
    con = connect(load=False, **{NO_THREADS})
    if other:
        load_pypi(con, other)
    load_penstock(con)
    con.execute(secret)
    if other:
        con.execute(f"CALL penstock_wrap('{{other}}')")
    return con

{SHARED}
def work(number):
    return str(read(opened()))

con = opened()
if when == "later":
    tell("before", read(con))
child = os.fork()
if child == 0:
    tell("child clears", clear(con))
    tell("child with its parent's connection", read(con))
    tell("child with its own", read(opened()))
    os._exit(0)
_, status = os.waitpid(child, 0)
tell("status of the child", status)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for answer in pool.map_async(work, range(4)).get(60):
        tell("worker", answer)
con.execute("CALL penstock_clear_cache()")
tell("after", read(con))
"""


# Once the azure extension itself has read, children share its connections, and may wait for each
# other's answers for good, with and without Penstock: so not this one of eight.
@pytest.mark.parametrize(
    ("kind", "other", "when"),
    [
        ("s3", "", "at once"),
        ("s3", "", "later"),
        ("azure", "", "at once"),
        ("azure", "", "later"),
        ("s3", "httpfs", "at once"),
        ("s3", "httpfs", "later"),
        ("azure", "azure", "at once"),
    ],
)
def test_children_read_or_are_told_whenever_their_parent_forked(
    kind: str, other: str, when: str, fakes: dict[str, Fake]
) -> None:
    if other:
        need_package(f"duckdb-extension-{other}")
    store = fakes[kind]
    store.reset()
    url = store.url("fork/early.parquet")
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(200000) t(i)) TO '{url}'")
    con.close()
    secret = f"CREATE SECRET s ({store.secret})"
    done = run_with_children([sys.executable, "-c", EARLY_SCRIPT, secret, url, when, other])
    lines = [line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line]
    told = dict(lines)
    assert told["child with its own"] == str(RIGHT), done.stderr
    assert [what for who, what in lines if who == "worker"] == [str(RIGHT)] * 4, done.stderr
    assert told["status of the child"] == "0"
    assert told["after"] == str(RIGHT)
    assert ("before" in told) == (when == "later")
    inherited = told["child with its parent's connection"]
    if other:
        # Its own threads do all of it.
        assert inherited == str(RIGHT), done.stderr
    else:
        assert "forked" in inherited and "Open a new database connection" in done.stdout


VOLUME_SCRIPT = f"""
import duckdb, os, sys

def tell(who, what):
    os.write(1, f"{{who}}: {{what}}\\n".encode())

con = duckdb.connect(config={{"allow_unsigned_extensions": "true", **{NO_THREADS}}})
con.execute("LOAD '{EXTENSION}'")
con.execute(f"SET temp_directory = 'nvme://{{sys.argv[1]}}?temp'")
con.execute(f"ATTACH 'nvme://{{sys.argv[1]}}?db=d' AS d")
con.execute("CREATE TABLE d.kept AS SELECT range AS i FROM range(200000)")
con.execute("CREATE TABLE d.dropped AS SELECT hash(range) AS i FROM range(200000)")
con.execute("CHECKPOINT d")
con.execute("DROP TABLE d.dropped")
con.execute("CHECKPOINT d")
gate, key = os.pipe()
child = os.fork()
if child == 0:
    os.read(gate, 1)
    try:
        con.execute("INSERT INTO d.kept SELECT range FROM range(100000)")
        tell("child", "it could")
    except duckdb.Error as error:
        tell("child", error)
    con.close()
    os._exit(0)
# These take what the child still sees as free.
con.execute("CREATE TABLE d.later AS SELECT hash(range + 1) AS i FROM range(200000)")
con.execute("CHECKPOINT d")
os.write(key, b"1")
_, status = os.waitpid(child, 0)
tell("status of the child", status)
con.execute("INSERT INTO d.kept VALUES (200000)")
con.execute("DETACH d")
tell("after", "closed")
"""


def test_a_child_that_closes_its_parents_volume_changes_nothing(tmp_path: Path) -> None:
    volume = format_volume(tmp_path / "disk.img", "64MiB")
    done = subprocess.run(
        [sys.executable, "-c", VOLUME_SCRIPT, str(volume)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "forked" in told["child"], done.stdout + done.stderr
    assert told["status of the child"] == "0", done.stderr
    assert told["after"] == "closed", done.stderr
    con = connect()
    con.execute(f"ATTACH 'nvme://{volume}?db=d' AS d (READ_ONLY)")
    assert con.execute("SELECT count(*), max(i) FROM d.kept").fetchone() == (200_001, 200_000)
    right = con.execute("SELECT sum(hash(range + 1)) FROM range(200000)").fetchone()
    assert con.execute("SELECT sum(i) FROM d.later").fetchone() == right
    con.close()
    assert penstock("check", volume).count("sound") == 3
