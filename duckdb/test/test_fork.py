"""A process that forks after it has read with Penstock: its child and itself."""

from __future__ import annotations

import subprocess
import sys

from harness import EXTENSION, Fake, connect

RIGHT = (200_000, sum(range(200_000)))

SCRIPT = f"""
import duckdb, os, sys

def connect():
    con = duckdb.connect(config={{"allow_unsigned_extensions": "true", "threads": "1"}})
    con.execute("LOAD '{EXTENSION}'")
    con.execute(secret)
    return con

def tell(who, what):
    os.write(1, f"{{who}}: {{what}}\\n".encode())

def read(con):
    try:
        return con.execute(f"SELECT count(*), sum(i) FROM '{{url}}'").fetchone()
    except duckdb.Error as error:
        return error

secret, url = sys.argv[1:]
con = connect()
tell("before", read(con))
child = os.fork()
if child == 0:
    con.execute("CALL penstock_clear_cache()")
    tell("child with its parent's connection", read(con))
    tell("child with its own", read(connect()))
    os._exit(0)
_, status = os.waitpid(child, 0)
tell("status of the child", status)
con.execute("CALL penstock_clear_cache()")
tell("after", read(con))
"""


def test_parent_and_child_read_on_after_a_fork(store: Fake) -> None:
    url = store.url("fork/t.parquet")
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(200000) t(i)) TO '{url}'")
    con.close()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"CREATE SECRET s ({store.secret})", url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert told["before"] == str(RIGHT), done.stderr
    # The threads that do its I/O stayed in the parent; the error says what to do instead.
    assert "forked" in told["child with its parent's connection"]
    assert "Open a new database connection" in done.stdout
    assert told["child with its own"] == str(RIGHT)
    assert told["status of the child"] == "0"
    assert told["after"] == str(RIGHT)
