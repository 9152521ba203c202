"""Settings: where their first value comes from, and that SET changes what is done from then on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import pytest
from harness import BUILD, Fake, connect
from nvme import not_run


def value(con: duckdb.DuckDBPyConnection, name: str) -> str:
    row = con.execute("SELECT value FROM penstock_settings() WHERE name = ?", [name]).fetchone()
    assert row
    return str(row[0])


def test_the_environment_gives_the_start_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PART_SIZE_BYTES", "32MiB")
    con = connect()
    assert value(con, "penstock_part_size_bytes") == "32MiB"
    con.execute("SET penstock_part_size_bytes = '16MiB'")
    assert value(con, "penstock_part_size_bytes") == "16MiB"
    con.execute("RESET penstock_part_size_bytes")
    assert value(con, "penstock_part_size_bytes") == "32MiB"


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path | None]:
    """A cgroup with so much memory, by either version of the kernel's interface."""
    root = Path("/sys/fs/cgroup")
    old, new = root / "memory/memory.limit_in_bytes", root / "cgroup.subtree_control"
    parent, limit = (old.parent, old.name) if old.exists() else (root, "memory.max")
    has_new = new.exists() and "memory" in new.read_text().split()
    if not (old.exists() or has_new) or not os.access(parent, os.W_OK):
        yield None
        return
    group = parent / f"penstock-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(limit_bytes))
        yield group
    finally:
        group.rmdir()


def test_the_memory_limit_is_half_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_MEMORY_LIMIT_BYTES", raising=False)
    here = "import harness, test_settings as it; con = harness.connect()"
    program = f"{here}; print(it.value(con, 'penstock_memory_limit_bytes'))"
    # The second is larger than a limit of 256MiB, and no more than one of 1GiB.
    binary = [str(BUILD / "penstock"), "cat", "file:///nothing", "--part-size-bytes", "512MiB"]
    with memory_group(512 << 20) as group:
        if group is None:
            not_run("test_settings: the memory limit of a container", "no memory cgroup to be made")
            return
        enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]
        told, refused = (
            subprocess.run(
                [*enter, *command],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                check=False,
            )
            for command in ([sys.executable, "-c", program], binary)
        )
    assert told.stdout == "256MiB\n", told.stderr
    assert "512MiB is more than 256MiB" in refused.stderr, refused.stderr


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_IO_THREADS", "none")
    with pytest.raises(duckdb.InvalidInputException, match=r"PENSTOCK_IO_THREADS.*whole number"):
        connect()


def test_a_wrong_value_names_the_setting() -> None:
    con = connect()
    with pytest.raises(
        duckdb.InvalidInputException, match=r"penstock_part_size_bytes.*`abc` is not a byte size"
    ):
        con.execute("SET penstock_part_size_bytes = 'abc'")


def stat(con: duckdb.DuckDBPyConnection, name: str) -> int:
    row = con.execute("SELECT value FROM penstock_stats() WHERE name = ?", [name]).fetchone()
    assert row
    return int(row[0])


@pytest.fixture
def files(con: duckdb.DuckDBPyConnection, store: Fake) -> str:
    """A glob over a dozen files that nothing is remembered of."""
    url = store.url("set")
    con.execute(
        "COPY (SELECT i, i % 12 AS p FROM range(1200) t(i)) TO "
        f"'{url}' (FORMAT csv, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    con.execute("CALL penstock_clear_cache()")
    store.reset()
    return url + "/**/*.csv"


def count(con: duckdb.DuckDBPyConnection, files: str) -> int:
    row = con.execute(f"SELECT count(*) FROM read_csv('{files}')").fetchone()
    assert row
    return int(row[0])


def test_request_log_entries_are_cut_at_once(con: duckdb.DuckDBPyConnection, files: str) -> None:
    assert count(con, files) == 1200
    rows = "SELECT count(*) FROM penstock_requests()"
    assert con.execute(f"SELECT ({rows}) > 3").fetchone() == (True,)
    con.execute("SET penstock_request_log_entries = 3")
    assert con.execute(rows).fetchone() == (3,)
    con.execute("CALL penstock_clear_cache()")
    assert count(con, files) == 1200
    assert con.execute(rows).fetchone() == (3,)


def test_connections_per_host_is_obeyed(con: duckdb.DuckDBPyConnection, files: str) -> None:
    con.execute("SET penstock_connections_per_host = 1")
    before = stat(con, "connections")
    assert count(con, files) == 1200
    assert stat(con, "connections") - before == 1
    con.execute("RESET penstock_connections_per_host")
    con.execute("CALL penstock_clear_cache()")
    assert count(con, files) == 1200


def test_stall_timeout_is_obeyed(con: duckdb.DuckDBPyConnection, store: Fake, files: str) -> None:
    con.execute("SET penstock_stall_timeout_ms = 200; SET penstock_retry_base_ms = 1")
    con.execute("SET penstock_request_deadline_ms = 1500")
    store.arm("stall=60000,method=GET")
    with pytest.raises(duckdb.IOException, match=r"gave up after [2-9] attempts") as told:
        count(con, files)
    assert "stall_timeout_ms" in str(told.value)


def test_a_proxy_is_used_from_the_next_statement_on(
    con: duckdb.DuckDBPyConnection, files: str
) -> None:
    assert count(con, files) == 1200
    con.execute("CALL penstock_clear_cache()")
    # Nobody listens on a port that is bound only, and nobody else gets it.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        con.execute(f"SET penstock_http_proxy = 'http://user:hunter2@127.0.0.1:{port}'")
        with pytest.raises(duckdb.IOException) as told:
            count(con, files)
    assert f"no connection to the proxy 127.0.0.1 (127.0.0.1:{port})" in str(told.value)
    assert "comes from penstock_http_proxy" in str(told.value)
    assert "hunter2" not in str(told.value)
    assert value(con, "penstock_http_proxy") == f"http://***@127.0.0.1:{port}"
    con.execute("RESET penstock_http_proxy")
    assert count(con, files) == 1200


def test_a_cache_directory_that_cannot_be_is_refused_at_set(tmp_path: Path) -> None:
    con = connect()
    before = value(con, "penstock_cache_dir")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for wrong in ("/proc/x", "/sys/x", f"{tmp_path}/link", f"{tmp_path}/{'n' * 300}"):
        with pytest.raises(duckdb.Error, match='Setting "penstock_cache_dir": ') as told:
            con.execute(f"SET GLOBAL penstock_cache_dir = '{wrong}'")
        assert wrong in str(told.value)
        assert value(con, "penstock_cache_dir") == before
    con.execute(f"SET GLOBAL penstock_cache_dir = '{tmp_path}/new'")
    assert [entry.name for entry in tmp_path.iterdir()] == ["link"], "nothing is made before a use"
    con.execute("RESET GLOBAL penstock_cache_dir")


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that refuses everybody, and the passwords that it was given."""
    given: list[str] = []

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers.get("Proxy-Authorization", "Basic ").split(" ")[1]
            given.append(b64decode(token).decode().partition(":")[2])
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    with serving(server):
        yield f"127.0.0.1:{server.server_address[1]}", given


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shown(con: duckdb.DuckDBPyConnection) -> str:
    """All that is said of the setting by whoever tells settings."""
    told = [
        con.execute("SELECT current_setting('penstock_http_proxy')").fetchall(),
        con.execute("FROM duckdb_settings() WHERE name LIKE 'penstock%'").fetchall(),
        con.execute("FROM penstock_settings()").fetchall(),
        con.execute("FROM penstock_check()").fetchall(),
    ]
    return str(told)


def test_a_proxys_password_is_used_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy() as (place, given):
        monkeypatch.setenv("PENSTOCK_HTTP_PROXY", f"http://user:hunter1@{place}")
        con = connect()
        cursor = con.cursor()

        def used(con: duckdb.DuckDBPyConnection) -> str:
            with pytest.raises(duckdb.Error) as told:
                con.execute("FROM read_text('http://data.example/x')")
            assert "hunter" not in str(told.value) + shown(con)
            return given[-1]

        assert used(con) == "hunter1"
        # Two sessions with two passwords, of which neither is shown.
        con.execute(f"SET SESSION penstock_http_proxy = 'http://user:hunter2@{place}'")
        cursor.execute(f"SET SESSION penstock_http_proxy = 'http://user:hunter3@{place}'")
        assert [used(con), used(cursor)] == ["hunter2", "hunter3"]
        # What is shown stands for the value, also where it is set again.
        con.execute("SET VARIABLE kept = current_setting('penstock_http_proxy')")
        con.execute("RESET penstock_http_proxy")
        assert used(con) == "hunter1"
        con.execute("SET SESSION penstock_http_proxy = getvariable('kept')")
        assert used(con) == "hunter2"
        con.execute(f"SET GLOBAL penstock_http_proxy = 'http://user:hunter4@{place}'")
        assert used(con.cursor()) == "hunter4"
        con.close()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("http_proxy", "garbage:::"),
        ("http_proxy", "socks5://127.0.0.1:1"),
        ("ca_file", "/nonexistent.pem"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_set(
    name: str, wrong: str, con: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(duckdb.InvalidInputException, match=f"penstock_{name}"):
        con.execute(f"SET penstock_{name} = '{wrong}'")
    assert value(con, f"penstock_{name}") == ""


def test_a_contradiction_is_told_by_the_statement_that_uses_a_store(
    con: duckdb.DuckDBPyConnection, files: str
) -> None:
    """SET takes one value at a time, so the first of two cannot be refused."""
    con.execute("SET penstock_retry_base_ms = 20000")
    with pytest.raises(duckdb.InvalidInputException) as told:
        count(con, files)
    names = "`penstock_retry_base_ms` and `penstock_retry_max_ms`"
    advice = "Set penstock_retry_base_ms to 10000 ms or less"
    for part in [names, "20000 ms is more than 10000 ms", advice]:
        assert part in str(told.value)
    with pytest.raises(duckdb.InvalidInputException, match="contradict"):
        con.execute(f"COPY (SELECT 1 AS i) TO '{files.replace('/**/*', '/one')}'")
    assert con.execute("SELECT 1").fetchone() == (1,)
    con.execute("SET penstock_retry_max_ms = 60000")
    assert count(con, files) == 1200
    con.execute(
        "SET penstock_cache_memory_bytes = '2GiB'; SET penstock_memory_limit_bytes = '1GiB'"
    )
    with pytest.raises(duckdb.InvalidInputException, match=r"memory_limit_bytes.*2GiB.*1GiB"):
        count(con, files)
    con.execute("SET penstock_memory_limit_bytes = '4GiB'")
    assert count(con, files) == 1200


def test_a_contradiction_of_the_environment_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_RETRY_MAX_MS", "50")
    with pytest.raises(duckdb.InvalidInputException, match="100 ms is more than 50 ms"):
        connect()


def test_io_threads_cannot_be_set_later() -> None:
    con = connect()
    now = value(con, "penstock_io_threads")
    con.execute(f"SET penstock_io_threads = {now}")
    con.execute("RESET penstock_io_threads")
    for scope in ("", "GLOBAL "):
        with pytest.raises(duckdb.InvalidInputException, match="PENSTOCK_IO_THREADS"):
            con.execute(f"SET {scope}penstock_io_threads = {int(now) + 1}")
    assert value(con, "penstock_io_threads") == now


def test_a_smaller_memory_limit_forgets_kept_bytes(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url("set-kept/kept")
    con.execute(
        "COPY (SELECT i, hash(i) AS h, i % 40 AS p FROM range(1000000) t(i)) TO "
        f"'{url}' (FORMAT csv, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    con.execute("CALL penstock_clear_cache()")
    read = f"SELECT sum(h) FROM read_csv('{url}/**/*.csv')"
    con.execute(read).fetchall()
    kept = stat(con, "memory_held_bytes_now")
    assert 4 << 20 < kept <= 64 << 20
    con.execute("SET penstock_memory_limit_bytes = '64MiB'")
    assert stat(con, "memory_held_bytes_now") <= 4 << 20
    con.execute(read).fetchall()
    assert stat(con, "memory_held_bytes_now") <= 4 << 20


def test_nothing_is_remembered_without_entries(
    con: duckdb.DuckDBPyConnection, store: Fake, files: str
) -> None:
    con.execute("SET penstock_metadata_cache_entries = 0")
    assert count(con, files) == 1200
    con.execute("RESET penstock_metadata_cache_entries")
    store.reset()
    # Remembered again: a second read opens without asking.
    assert count(con, files) == 1200
    store.reset()
    assert count(con, files) == 1200
    assert sum(row["method"] == "GET" for row in store.requests()) <= 2


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_headers_of_a_secret_are_hidden(kind: str) -> None:
    con = connect()
    keys = "KEY_ID 'a', SECRET 'b', " if kind == "s3" else ""
    con.execute(
        f"CREATE SECRET hidden (TYPE {kind}, {keys}"
        "EXTRA_HTTP_HEADERS MAP {'Authorization': 'hunter2'})"
    )
    told = str(con.execute("FROM duckdb_secrets()").fetchall())
    assert "extra_http_headers" in told
    assert "hunter2" not in told
