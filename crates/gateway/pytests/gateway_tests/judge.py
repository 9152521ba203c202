"""Judges that we did not write, run on a lane: ceph's s3-tests and `versitygw test full-flow`.

Beside this package, `judges/JUDGE-LANE-passes.txt` names what passes, one test a line: what is
named and fails is an error, what passes and is not named is told (`--update` adds it; the list only
grows). `judges/JUDGE-cannot.tsv` gives patterns of what cannot pass, the lane on which (`*` for
each) and the reason: a failure that neither list knows is an error too, and so is a row for which
nothing fails any more, where all was run. A pattern that begins with `feature:` is not run at all.

Decides what a run's outcome is worth; the scripts in scripts/judges install the judges.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from botocore.client import BaseClient
from botocore.exceptions import ClientError
from penstock_bench.gateways import Lane, Running

from gateway_tests.lanes import LANES, LaneKind, client

LISTS = Path(__file__).resolve().parents[1] / "judges"
S3TESTS_FILES = ("test_s3.py", "test_headers.py")
TEST_TIMEOUT_S = 60
NOT_RUN = "feature:"
VERSIONED = ("Versioning_*", "ListObjectVersions_*")
"""Tests of versitygw's that leave versions for it to remove."""
USERS = {
    "s3 main": None,
    "s3 alt": "judge-alt",
    "s3 tenant": "judge-tenant",
    "iam": None,
    "iam root": None,
    "iam alt root": "judge-alt",
}
"""Sections of ceph's configuration, and the keys of those that are not the lane's own."""


def s3tests_config(lane: Running) -> str:
    """Ceph's configuration for a lane."""
    host, port = lane.host.split(":")
    parts = [f"[DEFAULT]\nhost = {host}\nport = {port}\nis_secure = False\nssl_verify = False\n"]
    parts.append("[fixtures]\nbucket prefix = judge-{random}-\n")
    for user, key in USERS.items():
        name, secret = (key, key) if key else (lane.access_key, lane.secret_key)
        parts.append(
            f"[{user}]\ndisplay_name = {name}\nuser_id = {name}\n"
            f"email = nobody@example.com\napi_name = default\ntenant =\n"
            f"access_key = {name}\nsecret_key = {secret}\n"
        )
    return "\n".join(parts)


def lane_settings() -> str:
    """What the gateway is told besides: its keys are owners, as the users of both judges are."""
    keys = sorted({key for key in USERS.values() if key})
    sections = [f'[[key]]\naccess_key = "{key}"\nsecret_key = "{key}"\n' for key in keys]
    return "\n".join(['acl = "owners"', *sections])


def s3tests(lane: Running, checkout: Path, directory: Path, words: list[str]) -> dict[str, str]:
    """Every test of ceph's and its outcome: empty when it passed, else what it said."""
    config, report = directory / "s3tests.conf", directory / "report.xml"
    config.write_text(s3tests_config(lane))
    environment = {name: value for name, value in os.environ.items() if "AWS_" not in name}
    environment |= {"S3TEST_CONF": str(config), "AWS_MAX_ATTEMPTS": "1"}
    files = [f"s3tests/functional/{name}" for name in S3TESTS_FILES]
    command = [os.environ["JUDGE_PYTHON"], "-m", "pytest", "-q", "--no-header"]
    command += ["-p", "no:cacheprovider", "--tb=line", "-W", "ignore", f"--junit-xml={report}"]
    command += [f"--timeout={TEST_TIMEOUT_S}", *deselected(), *words, *files]
    with (directory / "s3tests.log").open("wb") as log:
        subprocess.run(command, cwd=checkout, env=environment, stdout=log, stderr=log, check=False)
    if not report.is_file():
        raise SystemExit((directory / "s3tests.log").read_text()[-3000:])
    return outcomes(report)


def not_run(judge: str) -> list[str]:
    """What is not run at all: features that are not there, some of whose tests wait for minutes."""
    patterns = [pattern for pattern, _, _ in reasons(judge)]
    return [pattern.removeprefix(NOT_RUN) for pattern in patterns if pattern.startswith(NOT_RUN)]


def deselected() -> list[str]:
    """The same as words for pytest; its markers are features."""
    return ["-m", " and ".join(f"not {mark}" for mark in not_run("s3tests"))]


def outcomes(report: Path) -> dict[str, str]:
    """Test to what went wrong, from JUnit's XML; a test that fails twice says it once."""
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name", "")
        said = [part.get("message", "") for part in case if part.tag in ("failure", "error")]
        if any(part.tag == "skipped" for part in case):
            said.append("skipped by the judge")
        found[name] = found.get(name) or " ".join(" ".join(said).split())
    return found


class Lanes:
    """A lane that can be begun anew."""

    def __init__(self, kind: LaneKind, directory: Path) -> None:
        self._kind, self._directory = kind, directory
        self._count = 0
        self._stack = ExitStack()
        self.lane = self._begin()

    def _begin(self) -> Running:
        directory = self._directory / f"lane-{self._count}"
        lane = Lane(
            self._kind.gateway,
            self._kind.back_end,
            directory,
            extra=lane_settings(),
            backend_extra="encrypted_at_rest = true\n",
        )
        return self._stack.enter_context(lane)

    def clear(self) -> None:
        """Leaves no bucket: what cannot be removed, such as what is locked, goes with its lane."""
        try:
            remove_buckets(client(self.lane))
        except ClientError:
            self.close()
            self._count += 1
            self.lane = self._begin()

    def close(self) -> None:
        """Ends it."""
        self._stack.close()


def versitygw(lanes: Lanes, directory: Path, words: list[str]) -> dict[str, str]:
    """Every test of versitygw's own suite and its outcome.

    One process for each test: `full-flow`, which is all of them in one, ends with a panic at the
    first answer that lacks what it looks at.
    """
    program = os.environ["JUDGE_VERSITYGW"]
    environment = {name: value for name, value in os.environ.items() if "AWS_" not in name}
    skipped = not_run("versitygw")
    # Some tests start versitygw themselves, from where they are.
    (directory / "versitygw").symlink_to(program)

    def one(name: str) -> tuple[str, str]:
        lane = lanes.lane
        command = [program, "test", "-a", lane.access_key, "-s", lane.secret_key, "-e", lane.url]
        try:
            done = subprocess.run(
                [*command, name, *(["--versioning-enabled"] if matches(name, VERSIONED) else [])],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment,
                cwd=directory,
                timeout=TEST_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return name, f"no end within {TEST_TIMEOUT_S} s"
        finally:
            # Each begins to name its buckets at 1, and leaves them where it fails.
            lanes.clear()
        return name, versitygw_outcome(done.stdout)

    told = subprocess.run(
        [program, "test", "--help"], stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    names = re.findall(r"^ +([A-Za-z0-9_]+) +Runs \1 integration test", told.stdout, re.MULTILINE)
    chosen = [
        name for name in names if not matches(name, skipped) and (not words or matches(name, words))
    ]
    # One after the other, for the same reason.
    return dict(one(name) for name in chosen)


def remove_buckets(store: BaseClient) -> None:
    """Every bucket with all that is in it."""
    for bucket in store.list_buckets()["Buckets"]:
        name = bucket["Name"]
        with suppress(ClientError):  # the right to look into it may have been taken away
            store.delete_bucket_policy(Bucket=name)
        for upload in store.list_multipart_uploads(Bucket=name).get("Uploads", []):
            store.abort_multipart_upload(
                Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"]
            )
        pages = store.get_paginator("list_object_versions").paginate(Bucket=name)
        for page in pages:
            for version in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                one = {"Key": version["Key"], "VersionId": version["VersionId"]}
                store.delete_object(Bucket=name, **one)
        store.delete_bucket(Bucket=name)


def versitygw_outcome(text: str) -> str:
    """What went wrong in one test, from what versitygw prints; empty when nothing did."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    failed = re.search(r"^ *FAIL +\S+ *(.*)", plain, re.MULTILINE)
    if failed:
        return failed.group(1).strip(": ") or "failed"
    panic = re.search(r"^panic: .*", plain, re.MULTILINE)
    if panic:
        return panic.group()
    return "" if re.search(r"^ *PASS ", plain, re.MULTILINE) else "it did not say that it passed"


def reasons(judge: str) -> list[tuple[str, str, str]]:
    """Patterns of what cannot pass, the lane on which, and why."""
    lines = (LISTS / f"{judge}-cannot.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(pattern, lane, reason) for pattern, lane, reason in rows]


def listed(path: Path) -> set[str]:
    """Names in a list."""
    return set(path.read_text().split()) if path.is_file() else set()


def verdict(judge: str, lane: str, found: dict[str, str], update: bool, is_whole: bool) -> int:
    """Compares with the lists, tells, and gives the exit code."""
    path = LISTS / f"{judge}-{lane}-passes.txt"
    known = listed(path)
    passed = {name for name, said in found.items() if not said}
    patterns = [
        pattern
        for pattern, where, _ in reasons(judge)
        if where in ("*", lane) and not pattern.startswith(NOT_RUN)
    ]
    failed = [name for name, said in found.items() if said]
    stale = [it for it in patterns if is_whole and not any(matches(name, [it]) for name in failed)]
    lost = sorted(name for name in known if found.get(name))
    unknown = sorted(
        name
        for name, said in found.items()
        if said and name not in known and not matches(name, patterns)
    )
    for title, names in (("no longer passes", lost), ("fails and is in no list", unknown)):
        for name in names:
            print(f"{title}: {name}: {found[name][:200]}")
    for pattern in stale:
        print(f"is in the list of what cannot pass, and nothing of it fails: {pattern}")
    for name in sorted(passed - known):
        print(f"passes and is not listed: {name}")
    print(f"{judge} on {lane}: {len(passed)} pass, {len(found) - len(passed)} do not")
    if update:
        path.write_text("".join(f"{name}\n" for name in sorted(known | passed)))
        return int(bool(lost))
    return int(bool(lost or unknown or stale or passed - known))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is for this test; brackets are letters like others."""
    plain = [pattern.replace("[", "[[]") for pattern in patterns]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in plain)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="judge", description=__doc__)
    parser.add_argument("judge", choices=("s3tests", "versitygw"))
    parser.add_argument("--lane", default="directory", choices=[*LANES])
    parser.add_argument("--checkout", type=Path, help="of ceph's s3-tests")
    parser.add_argument("--log", type=Path, help="file for every outcome")
    parser.add_argument("--update", action="store_true", help="add what passes to the list")
    parser.add_argument("words", nargs="*", help="for the judge itself, after --")
    options = parser.parse_intermixed_args()
    kind = LANES[options.lane]
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="penstock-judge-", dir=parent) as directory,
        closing(Lanes(kind, Path(directory))) as lanes,
    ):
        if options.judge == "s3tests":
            found = s3tests(lanes.lane, options.checkout, Path(directory), options.words)
        else:
            found = versitygw(lanes, Path(directory), options.words)
    if options.log:
        options.log.write_text("".join(f"{name}\t{said}\n" for name, said in sorted(found.items())))
    return verdict(options.judge, options.lane, found, options.update, not options.words)


if __name__ == "__main__":
    sys.exit(main())
