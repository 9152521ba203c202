"""The progress line, where there is no terminal."""

import time

import pytest
from penstock_bench.progress import Progress


def test_what_takes_long_is_said_again_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(beat_s=0.02)
    progress("reading")
    told = ""
    deadline = time.monotonic() + 20
    while told.count("still: reading\n") < 2:
        assert time.monotonic() < deadline, told
        time.sleep(0.01)
        told += capsys.readouterr().err
    progress.close()
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
    progress("writing")
    assert capsys.readouterr().err.endswith("] writing\n")
    progress.close()
