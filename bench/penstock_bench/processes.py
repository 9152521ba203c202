"""Child processes of the bench: start, wait until they listen, end."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_TIMEOUT_S = 30.0
_LISTEN = "0A"


class StartError(Exception):
    """A server did not come up; the message holds the end of its log."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(pid: int, port: int) -> bool:
    """Whether a port listens in the network namespace of a process."""
    wanted = f"0100007F:{port:04X}"
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[1] in (wanted, f"00000000:{port:04X}"):
            return True
    return False


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, of all its threads; exact, unlike /proc's ticks."""
    # The kernel's own encoding of the processor clock of another process (CPUCLOCK_SCHED).
    return time.clock_gettime((~pid << 3) | 2)


def reset_peak_rss(pid: int) -> None:
    """Lets the peak begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_rss_bytes(pid: int) -> int:
    """The most memory that a process held since the reset."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


def end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Ends a process; by force after some time."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A server process that listens on one port of the loopback."""

    def __init__(
        self,
        command: Sequence[str | Path],
        port: int,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it and waits until it listens.

        Raises:
            StartError: it ended or did not listen in time.
        """
        self.port = port
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=env,
        )
        self.pid = self._process.pid
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not (self._process.poll() is None and listens(self.pid, port)):
                if self._process.poll() is not None:
                    raise StartError(self._report(command, "ended at its start"))
                if time.monotonic() > deadline:
                    raise StartError(self._report(command, f"does not listen on {port}"))
                time.sleep(0.01)
        except BaseException:
            self.stop()
            raise

    def _report(self, command: Sequence[str | Path], what: str) -> str:
        tail = Path(self._log.name).read_text(errors="replace").strip()[-500:]
        return f"{Path(str(command[0])).name} {what}: {tail or 'it printed nothing'}"

    def stop(self) -> None:
        """Ends it; by force after five seconds."""
        end(self._process, 5)
        self._log.close()
