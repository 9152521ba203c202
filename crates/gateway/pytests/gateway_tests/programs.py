"""Runs client programs on a lane, in an environment of their own: nothing of the user's leaks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from penstock_bench.config import ROOT
from penstock_bench.gateways import Running

TIMEOUT_S = 180


def installed(name: str) -> str:
    """The command of a client that scripts/clients.sh installs."""
    script = ROOT / "scripts/clients.sh"
    done = subprocess.run([script, name], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def environment(lane: Running, home: Path) -> dict[str, str]:
    """Credentials and endpoint as AWS's own tools read them."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": lane.access_key,
        "AWS_SECRET_ACCESS_KEY": lane.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": lane.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "S3_ENDPOINT_URL": lane.url,
        "NO_PROXY": "127.0.0.1",
    }


def run(lane: Running, home: Path, command: Sequence[str | Path], given: str | None = None) -> str:
    """What a program prints; a failure shows all that it said."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(lane, home),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=home,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}"
    return done.stdout
