"""Ctrl-C while a statement waits for a server that does not answer."""

import subprocess
import sys
import time

import pytest

CHILD = """
import os, signal, socket, threading
from contextlib import suppress
import duckdb
import penstock

server = socket.create_server(("127.0.0.1", 0))
address = server.getsockname()[1]

def serve():
    connection, _ = server.accept()
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait({answer_after_s})
    head = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n"
    connection.sendall(head + b"42")
    threading.Event().wait()

# Whoever starts the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
# The main thread does the reading; DuckDB itself hears of signals between two steps only.
con = penstock.connect(settings={{"threads": 1}})
con.execute("SET enable_progress_bar = false")
threading.Thread(target=serve, daemon=True).start()
try:
    # Python's own exception follows ours at its next step.
    with suppress(duckdb.InterruptException):
        con.execute(f"SELECT content FROM read_text('http://127.0.0.1:{{address}}/k')")
        print("read", con.fetchone()[0])
    threading.Event().wait(1)
except (KeyboardInterrupt, RuntimeError):
    print("ended", con.execute("SELECT 42").fetchone()[0])
"""


def run(program: str) -> str:
    """What a child prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctrl_c_ends_a_statement_that_waits() -> None:
    begun = time.monotonic()
    assert run(CHILD.format(before="", answer_after_s=60)) == "ended 42\n"
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("before", "told"),
    [
        # A handler of the program's own decides what Ctrl-C means.
        ("signal.signal(signal.SIGINT, lambda *_: None)", "read 42\n"),
        # An event loop has the descriptor: DuckDB's way, which hears of it after the read.
        (
            "mine, theirs = socket.socketpair(); theirs.setblocking(False); "
            "signal.set_wakeup_fd(theirs.fileno())",
            "ended 42\n",
        ),
    ],
)
def test_what_others_have_set_up_for_signals_is_left_alone(before: str, told: str) -> None:
    begun = time.monotonic()
    assert run(CHILD.format(before=before, answer_after_s=2)) == told
    assert time.monotonic() - begun > 2


def test_a_forked_child_lets_go_of_the_descriptor() -> None:
    program = """
import os, signal
import penstock
con = penstock.connect()
child = os.fork()
if child == 0:
    os._exit(0 if signal.set_wakeup_fd(-1) == -1 else 1)
print("child", os.waitpid(child, 0)[1], "parent", signal.set_wakeup_fd(-1) != -1)
"""
    assert run(program) == "child 0 parent True\n"
