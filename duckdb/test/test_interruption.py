"""Ctrl-C, kill -9, two writers: nothing partial, nothing left, no hang."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import duckdb
import duckdb_cli
import pytest
from harness import EXTENSION, IS_DUCKDB_2, Fake, need_package, wait_until

HERE = Path(__file__).resolve().parent


def interrupt_when_asked(con: duckdb.DuckDBPyConnection, store: Fake) -> threading.Thread:
    """Interrupts as soon as a fault of the fake has met a request."""

    def run() -> None:
        wait_until(lambda: fired(store), "a request")
        con.interrupt()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def fired(store: Fake) -> bool:
    told = store.tell("GET", "faults")
    return any(told) if isinstance(told, list) else bool(told)


def test_a_scan_ends_when_interrupted(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("cut/scan.parquet")
    con.execute(f"COPY (SELECT hash(i) AS h FROM range(500000) t(i)) TO '{url}'")
    con.execute("CALL penstock_clear_cache()")
    store.arm("stall=60000,method=GET")
    before = time.monotonic()
    thread = interrupt_when_asked(con, store)
    with pytest.raises(duckdb.InterruptException):
        con.execute(f"SELECT sum(h) FROM '{url}'").fetchall()
    thread.join()
    assert time.monotonic() - before < 10
    store.reset()
    assert con.execute(f"SELECT count(*) FROM '{url}'").fetchone() == (500000,)


@pytest.mark.parametrize("fault", ["stall=60000,method=PUT", "latency=1000,method=PUT"])
@pytest.mark.parametrize("optimizer", ["enable", "disable"])
def test_an_interrupted_copy_leaves_nothing(
    fault: str, optimizer: str, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    con.execute(f"PRAGMA {optimizer}_optimizer")
    store.arm(fault)
    thread = interrupt_when_asked(con, store)
    with pytest.raises(duckdb.InterruptException):
        con.execute(
            "COPY (SELECT i, i % 3 AS p FROM range(9999) t(i)) TO "
            f"'{store.url('cut/' + optimizer)}' (FORMAT parquet, PARTITION_BY (p))"
        )
    thread.join()
    store.reset()
    # What was on its way may still arrive; it is taken back as soon as the store has answered.
    glob = f"FROM glob('{store.url('cut/' + optimizer + '/**')}')"
    wait_until(lambda: not con.execute(glob).fetchall(), "the taking back")


def test_a_second_try_is_not_removed_with_the_first(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    copy = (
        "COPY (SELECT i, i % 7 AS p FROM range(9999) t(i)) TO "
        f"'{store.url('cut/again')}' (FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    for _ in range(3):
        store.arm("latency=300,method=PUT")
        thread = interrupt_when_asked(con, store)
        with pytest.raises(duckdb.InterruptException):
            con.execute(copy)
        thread.join()
        store.reset()
        con.execute(copy)
        row = con.execute(
            f"SELECT count(*) FROM '{store.url('cut/again/**/*.parquet')}'"
        ).fetchone()
        assert row == (9999,)


CHILD = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, {here!r})
    from harness import connect
    con = connect()
    con.execute({secret!r})
    con.execute({statement!r})
    """
)


# Goes on after Ctrl-C, as a notebook does.
PATIENT_CHILD = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, {here!r})
    from harness import connect
    con = connect()
    con.execute({secret!r})
    try:
        con.execute({statement!r})
    except BaseException:
        con.interrupt()
    print(con.execute("SELECT 'usable'").fetchone()[0], flush=True)
    sys.stdin.read()
    """
)


def child(store: Fake, statement: str, code: str = CHILD) -> subprocess.Popen[bytes]:
    """Another process that runs one statement."""
    secret = f"CREATE SECRET s ({store.secret})"
    if IS_DUCKDB_2:
        # After Ctrl-C its Python waits for writes under way without interrupting them.
        secret += "; SET penstock_request_deadline_ms = 5000"
    code = code.format(here=str(HERE), secret=secret, statement=statement)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_sigint,
    )


def hear_sigint() -> None:
    """A test run in the background of a shell inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("rows", [1000, 3_000_000])
def test_a_killed_upload_is_invisible(
    rows: int, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url(f"cut/killed{rows}.parquet")
    store.arm("stall=60000,method=PUT")
    process = child(store, f"COPY (SELECT hash(i) AS h FROM range({rows}) t(i)) TO '{url}'")
    wait_until(lambda: fired(store), "the upload")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    store.reset()
    assert con.execute(f"FROM glob('{url}*')").fetchall() == []


def test_sigint_ends_the_command_line_in_an_upload(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    store.arm("stall=60000,method=PUT")
    # Not the script `duckdb`, which on SIGINT kills the program that it has started.
    need_package("duckdb-cli")
    cli = Path(duckdb_cli.__file__).with_name("duckdb")
    process = subprocess.Popen(
        [cli, "-unsigned"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_sigint,
    )
    assert process.stdin
    copy = f"COPY (SELECT 1 AS i) TO '{store.url('cut/sigint.csv')}';"
    script = f"LOAD '{EXTENSION}'; CREATE SECRET s ({store.secret}); {copy}\n"
    process.stdin.write(script.encode())
    process.stdin.flush()
    wait_until(lambda: fired(store), "the upload")
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - before < 20
    assert process.returncode == 1, "it told the interruption, and was not killed"
    store.reset()
    assert con.execute(f"FROM glob('{store.url('cut/sigint*')}')").fetchall() == []


@pytest.mark.parametrize("partitions", ["", ", PARTITION_BY (p)"])
def test_a_process_that_ends_in_a_copy_aborts_its_parts(
    partitions: str, fakes: dict[str, Fake]
) -> None:
    """Python raises KeyboardInterrupt and ends while the statement still runs."""
    store = fakes["s3"]
    store.reset()
    # No part ever ends, so that the memory limit stops the statement, however long this takes.
    store.arm("stall=60000,method=PUT")
    url = store.url(f"cut/ends{len(partitions)}")
    process = child(
        store,
        "COPY (SELECT i, hash(i) AS h, i % 3 AS p FROM range(1000000000) t(i)) TO "
        f"'{url}' (FORMAT csv{partitions})",
    )
    try:
        wait_until(lambda: fired(store), "a part")
        before = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert time.monotonic() - before < 15
    # DuckDB 2.0 raises an error of its own.
    assert (b"Query interrupted" if IS_DUCKDB_2 else b"KeyboardInterrupt") in told
    store.reset()
    assert store.unfinished_uploads(store.url("cut/ends")) == []


def test_an_interrupt_ends_what_ctrl_c_left_in_python(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    store.arm("stall=60000,method=PUT")
    url = store.url("cut/left.parquet")
    copy = f"COPY (SELECT hash(i) AS h FROM range(1000000000) t(i)) TO '{url}'"
    process = child(store, copy, PATIENT_CHILD)
    watchdog = threading.Timer(30, process.kill)
    try:
        wait_until(lambda: fired(store), "a part")
        process.send_signal(signal.SIGINT)
        watchdog.start()
        assert process.stdout
        assert process.stdout.readline() == b"usable\n"
        if store.kind == "s3":
            aborted = "AbortMultipartUpload"
            wait_until(lambda: aborted in {r["operation"] for r in store.requests()}, aborted)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
    store.reset()
    assert con.execute(f"FROM glob('{url}*')").fetchall() == []


# In one request, and in parts that are on their way at the same time.
@pytest.mark.parametrize("rows", [1000, 1_500_000])
def test_two_processes_write_one_key(
    rows: int, con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url("cut/contested.parquet")
    store.arm("latency=30,method=PUT")
    statements = [
        f"COPY (SELECT {writer} AS w, i, hash(i) AS h FROM range({rows}) t(i)) TO '{url}'"
        for writer in (1, 2)
    ]
    processes = [child(store, statement) for statement in statements]
    done = 0
    for process in processes:
        _, told = process.communicate(timeout=60)
        done += process.returncode == 0
        if process.returncode != 0:
            # Only Azure drops the parts of the other writer, and only large files have parts.
            assert (store.kind, rows) == ("azure", 1_500_000), told
            for part in (url, "another writer finished first", "names of its own"):
                assert part.encode() in told, told
    assert done >= 1
    large = "UploadPart" if store.kind == "s3" else "PutBlock"
    assert (large in {r["operation"] for r in store.requests()}) == (rows == 1_500_000)
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    row = con.execute(f"SELECT count(*), sum(i), count(DISTINCT w) FROM '{url}'").fetchone()
    assert row == (rows, sum(range(rows)), 1)
