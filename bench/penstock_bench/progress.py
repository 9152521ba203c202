"""The progress line: one line rewritten in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time


def say(text: str) -> None:
    """A line that stays."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}{text}\n")
    sys.stderr.flush()


class Progress:
    """Says what is going on, with the time since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Shows what begins now."""
        line = f"[{time.monotonic() - self._begin:6.1f} s] {text}"
        if self._live:
            sys.stderr.write(f"\r\033[K{line[:118]}")
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Clears the line on a terminal."""
        if self._live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
