"""The progress line: one line rewritten in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time

BEAT_S = 10.0


def say(text: str) -> None:
    """A line that stays."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}{text}\n")
    sys.stderr.flush()


class Progress:
    """Says what is going on, with the time since the start; what takes long every ten seconds."""

    def __init__(self, beat_s: float = BEAT_S) -> None:
        self._begin = time.monotonic()
        self._live = sys.stderr.isatty()
        self._beat_s = beat_s
        self._text = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._repeat, daemon=True).start()

    def __call__(self, text: str) -> None:
        """Shows what begins now."""
        with self._changed:
            self._text = text
            self._show(text)
            self._changed.notify()

    def close(self) -> None:
        """Clears the line on a terminal; nothing goes on until the next call."""
        with self._changed:
            self._text = ""
            if self._live:
                sys.stderr.write("\r\033[K")
                sys.stderr.flush()

    def _repeat(self) -> None:
        with self._changed:
            while True:
                if not self._changed.wait(self._beat_s) and self._text:
                    self._show(f"still: {self._text}")

    def _show(self, text: str) -> None:
        line = f"[{time.monotonic() - self._begin:6.1f} s] {text}"
        if self._live:
            sys.stderr.write(f"\r\033[K{line[:118]}")
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
