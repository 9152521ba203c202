"""The exam of stores, on servers that are not ours; each one's gaps are in conformance-gaps.tsv.

usage: PYTHONPATH=bench conformance.py [PROGRAM [SERVER...]]

PROGRAM is the example `conform` of penstock-store, which runs the exam; without it docs/servers.md
is printed. Every server is started by
its script in `peers/`, and ended. A failure that the table does not name fails the run, and so does
a gap in the table whose case passes: the table says what is true of the pinned version.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock_bench import sql
from penstock_bench.stores import make_bucket

SCRIPTS = Path(__file__).resolve().parent
GAPS = SCRIPTS / "conformance-gaps.tsv"
PAGE_HEAD = """# Servers that the stores' exam is run on

Every store of Penstock passes one exam: reading, conditions, writing, names, listings, multipart
uploads and errors (`crates/testkit/src/conform/store`). `scripts/test.sh conformance` runs it on
servers that are not ours. Below is what fails on each, and why. A case that fails and is not here
fails the tests, and so does a case that is here and passes.

This page is printed from `scripts/conformance-gaps.tsv` by `scripts/conformance.py`.
"""
READY_S = 60.0
"""How long a server that listens may take until it makes a bucket."""
EXAM_S = 300.0
"""How long an exam may take: an idle machine needs under ten for each."""
LOG_LINES = 20
"""Lines of a server's log that are shown where its exam did not end."""


@dataclass(frozen=True)
class Server:
    """A server that is not ours, and how the exam is asked for on it."""

    name: str
    title: str
    prepare: Callable[[str], None]
    words: Callable[[str], list[str]]
    """Arguments of the exam, from the port."""


def s3_bucket(port: str) -> None:
    """Makes the bucket."""
    make_bucket("s3", port)


def container(port: str) -> None:
    """Makes the container."""
    make_bucket("azure", port)


def google_bucket(port: str) -> None:
    """Makes the bucket by the JSON API."""
    url = f"http://127.0.0.1:{port}/storage/v1/b?project=penstock"
    body = json.dumps({"name": sql.BUCKET}).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, head)
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def s3(port: str) -> list[str]:
    """The exam by S3."""
    keys = [f"key_id={sql.S3_KEY}", f"secret={sql.S3_KEY}"]
    place = [f"endpoint=127.0.0.1:{port}", "url_style=path", "use_ssl=false", "region=us-east-1"]
    return [f"s3://{sql.BUCKET}/", *place, *keys]


def azure(port: str) -> list[str]:
    """The exam by Azure's protocol."""
    string = (
        f"AccountName={sql.AZURITE_ACCOUNT};AccountKey={sql.AZURITE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{sql.AZURITE_ACCOUNT}"
    )
    return [f"az://{sql.BUCKET}/", f"connection_string={string}"]


def google(port: str) -> list[str]:
    """The exam by Google's XML API; what it reads is written by the JSON API."""
    seed = ["--seed-json", f"http://127.0.0.1:{port}/{sql.BUCKET}"]
    return [*seed, f"gs://{sql.BUCKET}/", *s3(port)[1:]]


SERVERS = (
    Server("versitygw", "versitygw 1.8.0, before a directory, by S3", s3_bucket, s3),
    Server("seaweedfs", "SeaweedFS 4.53, by S3", s3_bucket, s3),
    Server("moto", "moto 5.2.5, by S3", s3_bucket, s3),
    Server("azurite", "Azurite 3.37.0, by Azure's protocol", container, azure),
    Server("fake-gcs", "fake-gcs-server 1.54.0, by Google's XML API", google_bucket, google),
)


def read_gaps(text: str) -> dict[str, dict[str, str]]:
    """Server to case to reason."""
    gaps: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 3 or not all(field.strip() for field in fields):
            raise ValueError(f"line {number} is not server, case and reason with tabs between them")
        server, case, reason = fields
        if case in gaps.setdefault(server, {}):
            raise ValueError(f"line {number} names {case} of {server} again")
        gaps[server][case] = reason
    return gaps


def read_outcomes(text: str) -> dict[str, bool]:
    """Case to whether it passed, from what the exam printed."""
    outcomes = {}
    for line in text.splitlines():
        outcome, _, case = line.partition(" ")
        if outcome in ("passed", "failed"):
            outcomes[case] = outcome == "passed"
    return outcomes


def complaints(outcomes: Mapping[str, bool], gaps: Iterable[str]) -> list[str]:
    """What differs from the table; an exam without cases is none."""
    known = set(gaps)
    failed = {case for case, passed in outcomes.items() if not passed}
    if not outcomes:
        return ["the exam did not run"]
    return [
        *(f"{case} fails, and is no known gap" for case in sorted(failed - known)),
        *(
            f"{case} passes: remove it from the table"
            for case in sorted(known - failed)
            if case in outcomes
        ),
        *(f"{case} is no case of the exam" for case in sorted(known - set(outcomes))),
    ]


def closing(server: str, outcomes: Mapping[str, bool], gaps: Iterable[str]) -> str:
    """One line for a server."""
    gap_count = len(set(gaps))
    word = "gap" if gap_count == 1 else "gaps"
    passed = sum(outcomes.values())
    return f"{server}: passed {passed} of {len(outcomes)}, {gap_count} known {word}"


def page(gaps: Mapping[str, Mapping[str, str]]) -> str:
    """docs/servers.md."""
    parts = [PAGE_HEAD]
    for server in SERVERS:
        rows = [f"| `{case}` | {reason} |" for case, reason in gaps.get(server.name, {}).items()]
        table = "\n".join(["| case | what the server does |", "| --- | --- |", *rows])
        parts.append(f"## {server.title}\n\n{table if rows else 'Passes every case.'}\n")
    return "\n".join(parts)


def peer(verb: str, server: Server, directory: Path) -> str:
    """Starts a server, or ends it."""
    command: list[str | Path] = [SCRIPTS / "peers" / f"{server.name}.sh", verb, directory]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return str(run.stdout).strip()


def prepare(server: Server, port: str) -> None:
    """Makes the bucket as soon as the server does: some listen before all of them is up."""
    until = time.monotonic() + READY_S
    while True:
        try:
            return server.prepare(port)
        except Exception as error:  # by boto3, by urllib: all the same here
            if time.monotonic() > until:
                raise SystemExit(f"{server.name} makes no bucket: {error}") from error
            time.sleep(0.5)


def examine(program: str, server: Server, directory: Path) -> tuple[dict[str, bool], str]:
    """Runs the exam on one server; the outcomes, and what was printed beside them."""
    try:
        port = peer("start", server, directory)
        prepare(server, port)
        return run_exam([program, *server.words(port)], directory / f"{server.name}.log", EXAM_S)
    finally:
        peer("stop", server, directory)


def run_exam(command: list[str], log: Path, limit_s: float) -> tuple[dict[str, bool], str]:
    """The outcomes of an exam, and what it printed to stderr.

    A server that hangs would hold the exam for hours, since each case waits for all its attempts.
    Past the limit the exam has no outcomes, and the end of the server's log says why.
    """
    environment = os.environ | {"RUST_BACKTRACE": "0"}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        last = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return {}, "\n".join([f"the exam took over {limit_s:.0f} s; {log.name} ends with:", *last])
    return read_outcomes(run.stdout), run.stderr


def main() -> int:
    """Examines the servers; 1 if one differs from the table."""
    parser = argparse.ArgumentParser(description="The exam of stores on servers that are not ours.")
    parser.add_argument("program", nargs="?")
    parser.add_argument("server", nargs="*")
    options = parser.parse_args()
    gaps = read_gaps(GAPS.read_text())
    names = {server.name for server in SERVERS}
    if unknown := (set(gaps) | set(options.server)) - names:
        raise SystemExit(f"not a server of the exam: {', '.join(sorted(unknown))}")
    if not options.program:
        print(page(gaps), end="")
        return 0
    failed = False
    for server in SERVERS:
        if options.server and server.name not in options.server:
            continue
        with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as name:
            outcomes, said = examine(options.program, server, Path(name))
        known = gaps.get(server.name, {})
        if differences := complaints(outcomes, known):
            failed = True
            print(said, *differences, sep="\n")
        print(closing(server.name, outcomes, known), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
