"""Ends statements at Ctrl-C.

Python runs the handler of a signal between two steps of its own, on the main thread. While that
thread waits inside a statement for a store that does not answer, Ctrl-C is not heard. But Python
writes a byte to the wakeup descriptor at once (`signal.set_wakeup_fd`); a thread reads it here and
interrupts the statements.

Only where SIGINT raises KeyboardInterrupt, which is Python's own way, and nobody else has the
descriptor (an event loop does).
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import weakref
from contextlib import suppress

import duckdb


class _Watch:
    """The descriptor, the thread that reads it, and the connections it is for."""

    def __init__(self) -> None:
        self._connections: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def add(self, con: duckdb.DuckDBPyConnection) -> None:
        """Ends this connection's statements at Ctrl-C from now on."""
        self._connections.add(con)
        if threading.current_thread() is threading.main_thread():
            self._listen()

    def _listen(self) -> None:
        if self._pair is None:
            ours, pythons = socket.socketpair()
            pythons.setblocking(False)
            self._pair = ours, pythons
            threading.Thread(
                target=self._run, args=(ours,), name="penstock-interrupt", daemon=True
            ).start()
        pythons = self._pair[1]
        before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        if before not in (-1, pythons.fileno()):
            signal.set_wakeup_fd(before)

    def _run(self, ours: socket.socket) -> None:
        while signals := ours.recv(64):
            is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if signal.SIGINT in signals and is_default:
                for con in list(self._connections):
                    with suppress(duckdb.Error):  # it was closed
                        con.interrupt()

    def forget(self) -> None:
        """In a forked child: the thread is not there, and the descriptors are the parent's."""
        pair, self._pair = self._pair, None
        self._connections = weakref.WeakSet()
        if pair:
            before = signal.set_wakeup_fd(-1)
            if before not in (-1, pair[1].fileno()):
                signal.set_wakeup_fd(before)
            for end in pair:
                end.close()


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.forget)
watch = _watch.add
