"""Programs that run beside each other, a few at a time, each with its output as one block.

Decides the order, and when one has failed; not what is run (`run_all`). The longest begin first,
and whatever lane is free takes the next one; those that wait more than they work have a lane of
their own beside these; those that want the machine for themselves come when all others have ended.
Each is a process group: what is left of one is ended and is its failure, and when the run is
stopped nothing of it goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

HEARTBEAT_S = 60.0
"""After so long without an end those that run are named."""
PATIENCE_S = 10.0
"""How long one that is stopped may tidy up."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVING_S = 5.0
"""How long what a program started may outlive it."""


@dataclass(frozen=True)
class Job:
    """One program."""

    name: str
    command: tuple[str, ...]
    seconds: float = 0.0
    """What it takes, about; 0 where that is little."""
    is_alone: bool = False
    is_waiting: bool = False
    """It waits more than it works: for time limits, and servers that are slow on purpose."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What became of one."""

    job: Job
    seconds: float
    processor_s: float
    """What it and all that it waited for had of the processors; far less where it waited."""
    output: str
    trouble: str
    """Why it counts as failed; empty where it does not."""


def order(jobs: Iterable[Job]) -> tuple[list[Job], list[Job], list[Job]]:
    """Those that work, those that wait beside them, those that run alone behind: longest first."""
    found = sorted(jobs, key=lambda job: (-job.seconds, job.name))
    beside = [it for it in found if not it.is_alone]
    return (
        [it for it in beside if not it.is_waiting],
        [it for it in beside if it.is_waiting],
        [it for it in found if it.is_alone],
    )


def block(result: Result) -> str:
    """The output of one, with what became of it in front."""
    verdict = f"FAILED: {result.trouble}" if result.trouble else "ok"
    output = result.output.strip("\n")
    took = f"{result.seconds:.1f} s, {result.processor_s:.1f} s of processors"
    head = f"== {result.job.name} ({took}): {verdict}"
    return f"{head}\n{output}" if output else head


def summary(
    what: str, results: list[Result], seconds: float, again: Callable[[Result], list[str]]
) -> str:
    """How many there were, and how to run again what failed."""
    failed = [it for it in results if it.trouble]
    lines = [
        f"{what}: {len(results) - len(failed)} passed, {len(failed)} failed in {seconds:.0f} s"
    ]
    for result in failed:
        command, *more = again(result)
        lines += [f"failed: {result.job.name}; again: {command}", *more]
    return "\n".join(lines)


def members(group: int) -> dict[int, str]:
    """The processes of a group that run, and their commands."""
    found = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        # A process may end at any moment; the name stands in parentheses and may hold any byte.
        with contextlib.suppress(OSError):
            stat = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(stat[2]) == group and stat[0] not in "ZX":
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(path.name)] = command.decode(errors="replace").strip()
    return found


def signal_group(group: int, which: signal.Signals) -> None:
    """Sends a signal to all processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, which)


class Lanes:
    """Runs jobs, so many at a time."""

    def __init__(
        self,
        count: int,
        tell: Callable[[str], None],
        ended: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self._count, self._tell, self._ended = count, tell, ended
        self._lock = threading.Lock()
        self._running: dict[int, Job] = {}
        self._is_stopping = False

    def run(self, jobs: Iterable[Job]) -> list[Result]:
        """All of them; tells each one's block when it ends.

        Raises:
            KeyboardInterrupt: stopped by a signal; nothing runs any more.
        """
        working, waiting, alone = order(jobs)
        results: list[Result] = []
        # SIGINT too: in the background of a shell it is ignored, and that is inherited.
        previous = {which: signal.signal(which, _interrupt) for which in STOPS}
        try:
            self._part([(self._count, working), (1, waiting)], results)
            self._part([(1, alone)], results)
        finally:
            for which, handler in previous.items():
                signal.signal(which, handler)
        return results

    def _part(self, beside: list[tuple[int, list[Job]]], results: list[Result]) -> None:
        """Jobs in so many lanes, beside others in lanes of theirs."""
        with contextlib.ExitStack() as pools:
            pending: set[Future[Result | None]] = set()
            for count, jobs in beside:
                pool = pools.enter_context(ThreadPoolExecutor(count))
                pending |= {pool.submit(self._run, job) for job in jobs}
            try:
                while pending:
                    done, pending = wait(pending, HEARTBEAT_S, FIRST_COMPLETED)
                    if not done:
                        self._tell(f"-- running: {', '.join(self._names())}")
                    for result in (it.result() for it in done):
                        if result is not None:
                            results.append(result)
                            self._tell(block(result))
                            self._ended(result)
            except BaseException:
                self._tell(f"-- stopped while these ran: {', '.join(self._names())}")
                for future in pending:
                    future.cancel()
                self._stop()
                raise

    def _names(self) -> list[str]:
        with self._lock:
            return [job.name for job in self._running.values()]

    def _run(self, job: Job) -> Result | None:
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            with self._lock:
                if self._is_stopping:
                    return None
                process = subprocess.Popen(
                    job.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **job.environment},
                    process_group=0,
                )
                self._running[process.pid] = job
            _, status, used = os.wait4(process.pid, 0)
            code = process.returncode = os.waitstatus_to_exitcode(status)
            left = leftovers(process.pid)
            with self._lock:
                del self._running[process.pid]
            seconds = time.monotonic() - begin
            output.seek(0)
            text = output.read().decode(errors="replace")
        processor_s = used.ru_utime + used.ru_stime
        return Result(job, seconds, processor_s, text, trouble_of(code, left))

    def _stop(self) -> None:
        """Ends all that runs: pytest tidies up first, as on Ctrl-C, then by force."""
        with self._lock:
            self._is_stopping = True
            groups = list(self._running)
        for group in groups:
            signal_group(group, signal.SIGINT)
        end = time.monotonic() + PATIENCE_S
        while any(members(group) for group in groups) and time.monotonic() < end:
            time.sleep(0.05)
        for group in groups:
            signal_group(group, signal.SIGKILL)


def leftovers(group: int) -> dict[int, str]:
    """What a program left running when it ended; ended here."""
    end = time.monotonic() + LEAVING_S
    while (left := members(group)) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        signal_group(group, signal.SIGKILL)
    return left


def trouble_of(code: int, left: Mapping[int, str]) -> str:
    """Why a program has failed, by its exit code and what it left running."""
    why = []
    if code < 0:
        why.append(f"ended by {signal.Signals(-code).name}")
    elif code:
        why.append(f"exit code {code}")
    why += [f"left process {pid} running: {command}" for pid, command in left.items()]
    return "; ".join(why)


def tell(text: str) -> None:
    """Prints at once."""
    print(text, flush=True)


def run_stage(
    name: str,
    count: int,
    jobs: list[Job],
    again: Callable[[Result], list[str]],
    ended: Callable[[Result], None] = lambda _result: None,
) -> int:
    """Runs the jobs of a stage in so many lanes and tells of them; 1 if one failed."""
    begin = time.monotonic()
    try:
        results = Lanes(count, tell, ended).run(jobs)
    except KeyboardInterrupt:
        end_by_interrupt()
        raise
    tell(summary(name, results, time.monotonic() - begin, again))
    return 1 if any(it.trouble for it in results) else 0


def end_by_interrupt() -> None:
    """Ends this process as Ctrl-C would have: a shell that called it goes on otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
