"""A full disk: a clear error, nothing partial, the space back, what was there intact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_disk import SCENARIOS, command, limit_files


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", ["disk", "file"])
def test_what_does_not_fit_is_refused_and_leaves_no_trace(
    scenario: str, kind: str, tmp_path: Path
) -> None:
    # Where nothing can be mounted both kinds are limits of a file's size.
    prefix, is_disk = command(tmp_path) if kind == "disk" else ([], False)
    program = [sys.executable, str(Path(__file__).with_name("small_disk.py"))]
    done = subprocess.run(
        [*prefix, *program, scenario, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=None if is_disk else limit_files,
    )
    assert done.returncode == 0, done.stdout + done.stderr
