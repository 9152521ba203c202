"""How the tests of this folder are run beside each other: nothing is left out, hidden or left."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import lanes
import pytest
import run_all
from harness import wait_until
from lanes import Job, Lanes, Result, block, members, order

HERE = Path(__file__).resolve().parent


def shell(
    name: str,
    script: str,
    *words: object,
    seconds: float = 0.0,
    is_alone: bool = False,
    is_waiting: bool = False,
) -> Job:
    """A job of a few lines."""
    command = ("sh", "-c", script, "sh", *map(str, words))
    return Job(name, command, seconds, is_alone=is_alone, is_waiting=is_waiting)


def run(*jobs: Job, count: int = 2) -> dict[str, Result]:
    """What became of jobs, by name."""
    told: list[str] = []
    results = {it.job.name: it for it in Lanes(count, told.append).run(jobs)}
    assert sorted(map(block, results.values())) == sorted(told), "each is told of once, as a block"
    return results


def test_the_longest_begin_first_and_all_are_in_the_order_once() -> None:
    chance = random.Random(1)
    for _ in range(100):
        jobs = [
            Job(
                f"{n}",
                ("true",),
                chance.choice([0, 0, 1, 5, 60]),
                is_alone=chance.random() < 0.3,
                is_waiting=chance.random() < 0.3,
            )
            for n in range(chance.randrange(12))
        ]
        parts = order(jobs)
        working, waiting, alone = parts
        assert sorted(it.name for part in parts for it in part) == sorted(it.name for it in jobs)
        assert not any(it.is_alone for it in (*working, *waiting))
        assert all(it.is_alone for it in alone)
        assert all(it.is_waiting for it in waiting)
        assert not any(it.is_waiting for it in working)
        for part in parts:
            assert all(a.seconds >= b.seconds for a, b in itertools.pairwise(part))


def test_two_run_beside_each_other(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    # Each waits for the other one at the other end.
    results = run(
        shell("writes", 'echo met >"$1"', tmp_path / "fifo"),
        shell("reads", 'cat "$1"', tmp_path / "fifo"),
    )
    assert not any(it.trouble for it in results.values())
    assert results["reads"].output == "met\n"


def test_who_waits_takes_no_lane_from_who_works(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    # Each would wait for the other for ever if there were one lane for both.
    results = run(
        shell("works", 'cat "$1"', tmp_path / "fifo", seconds=9),
        shell("waits", 'echo met >"$1"', tmp_path / "fifo", is_waiting=True),
        shell("alone", "true", is_alone=True, is_waiting=True),
        count=1,
    )
    assert not any(it.trouble for it in results.values())
    assert results["works"].output == "met\n"


def test_what_a_program_had_of_the_processors_is_told() -> None:
    burns = "import time\nwhile time.process_time() < 0.3: pass"
    results = run(
        shell("works", f"{sys.executable} -c '{burns}'; true"), shell("waits", "sleep 0.3")
    )
    assert results["works"].processor_s >= 0.3
    assert results["waits"].processor_s < 0.1 < 0.3 <= results["waits"].seconds


def test_who_is_alone_runs_when_all_others_have_ended(tmp_path: Path) -> None:
    beside = 'mkdir "$1/$$" && sleep 0.2 && rmdir "$1/$$"'
    alone = '[ -z "$(ls -A "$1")" ] && mkdir "$1/alone" && sleep 0.2 && rmdir "$1/alone"'
    results = run(
        *(shell(f"beside {n}", beside, tmp_path) for n in range(3)),
        *(shell(f"alone {n}", alone, tmp_path, is_alone=True, seconds=9) for n in range(2)),
    )
    assert [it.trouble for it in results.values()] == [""] * 5


def test_a_failure_is_told_with_its_output_and_the_others_go_on() -> None:
    results = run(
        shell("bad", "echo out; echo error >&2; exit 3"),
        shell("killed", "kill -9 $$"),
        shell("good", "echo fine"),
    )
    assert results["bad"].trouble == "exit code 3"
    assert results["killed"].trouble == "ended by SIGKILL"
    assert results["good"].trouble == ""
    assert block(results["bad"]).splitlines()[1:] == ["out", "error"]
    assert ": FAILED: exit code 3\n" in block(results["bad"])


def test_what_is_left_running_is_a_failure_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LEAVING_S", 0.1)
    results = run(shell("leaves", "sleep 1000 >/dev/null 2>&1 & echo $!"))
    process = int(results["leaves"].output)
    assert results["leaves"].trouble == f"left process {process} running: sleep 1000"
    wait_until(lambda: not is_running(process), "its end")


def is_running(process: int) -> bool:
    """Whether there is such a process, which is no zombie."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_when_it_is_stopped_nothing_goes_on(which: signal.Signals, tmp_path: Path) -> None:
    # The grandchild passes SIGINT by, as programs in the background of a shell do.
    script = '(trap "" INT; sleep 1000) & echo $! >"$1.new"; mv "$1.new" "$1"; wait'
    program = (
        "import lanes, sys; from test_lanes import shell\n"
        "lanes.PATIENCE_S = 0.2\n"
        f"jobs = [shell(n, {script!r}, f'{tmp_path}/{{n}}') for n in 'abc']\n"
        "try: lanes.Lanes(2, print).run(jobs)\n"
        "except KeyboardInterrupt: lanes.end_by_interrupt()\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", program], cwd=HERE, stderr=subprocess.DEVNULL)
    first, second = tmp_path / "a", tmp_path / "b"
    wait_until(lambda: first.exists() and second.exists(), "the start of both")
    running = [int(path.read_text()) for path in (first, second)]
    groups = [os.getpgid(process) for process in running]
    try:
        assert all(members(group) for group in groups)
        runner.send_signal(which)
        assert runner.wait(20) == -signal.SIGINT, "so that a shell that called it ends, too"
        assert not any(map(is_running, running))
        assert not any(members(group) for group in groups)
        assert not (tmp_path / "c").exists(), "none begins any more"
    finally:
        runner.kill()
        for group in groups:
            lanes.signal_group(group, signal.SIGKILL)


def test_every_test_is_in_one_piece() -> None:
    def found(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
        done = subprocess.run(
            [*command, f"{HERE}/test_nvme_failing.py", *options],
            capture_output=True,
            text=True,
            check=True,
        )
        return [line for line in done.stdout.splitlines() if "::" in line]

    pieces = run_all.PIECES["test_nvme_failing.py"]
    some = [found("--piece", f"{number}/{pieces}") for number in (1, pieces)]
    whole = found()
    assert some == [whole[::pieces], whole[pieces - 1 :: pieces]]
    assert sorted(it for n in range(pieces) for it in whole[n::pieces]) == sorted(whole)


def test_every_file_is_run_and_every_file_that_is_named_is_there(tmp_path: Path) -> None:
    files = sorted(HERE.glob("test_*.py"))
    names = {file.name for file in files}
    assert {*run_all.LONG, *run_all.PIECES, *run_all.ALONE, *run_all.WAITING} <= names
    assert not run_all.WAITING & {*run_all.ALONE, *run_all.PIECES}
    jobs = run_all.pytest_jobs(files, tmp_path)
    run_of = {Path(word).name for job in jobs for word in job.command if word.endswith(".py")}
    assert run_of == names
    assert len({job.name for job in jobs}) == len(jobs)
    assert {job.name for job in jobs if job.is_alone} == set(run_all.ALONE)


def test_what_failed_can_be_run_again_by_itself(tmp_path: Path) -> None:
    (job,) = run_all.pytest_jobs([HERE / "test_lanes.py"], tmp_path)
    bad = Result(job, 1.0, 0.5, "", "exit code 1")
    (tmp_path / "test_lanes.py").mkdir()
    told = run_all.summary([bad, Result(Job("good", ("true",)), 1.0, 0.5, "", "")], 7.0, tmp_path)
    assert told.splitlines() == [
        "sql: 1 passed, 1 failed in 7 s",
        f"failed: test_lanes.py; again: {sys.executable} -m pytest -q -p no:cacheprovider "
        f"{HERE}/test_lanes.py",
        f"  its files: {tmp_path}/test_lanes.py",
    ]
