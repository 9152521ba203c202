"""The workload `soak`: mixed traffic through the gateway for long, while its back end misbehaves.

Decides what is sent, and how the back end misbehaves. Each worker has keys of its own, so what they
may hold is known (`soak_model`).
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from penstock_bench import load, machine
from penstock_bench.gateways import Lane, Running
from penstock_bench.soak_model import KIB, MIB, Model, Version, growth, sample

NAME = "soak"
BUCKET = "soak"
DURATION_S = 1800
WORKERS = 6
KEYS = 10
"""Of each worker."""
OPERATIONS_PER_S = 60
"""Of all workers together; so that the machine stays usable."""
STORES = ("azure-fake", "directory")
FAULTS = (
    "status=503,p=0.01",
    "reset,p=0.005",
    "reset-upload=30000,p=0.01",
    "lost-answer,p=0.005",
    "cut=20000,method=GET,p=0.01",
    "stall=300,p=0.005",
    "latency=50,p=0.05",
    "slow=2000000,p=0.01",
    "html,p=0.005",
    "error-200,p=0.005",
    "wrong-range=+1,p=0.005",
    "ignore-range,p=0.005",
    "truncate=300,op=ListBlobs,p=0.05",
)
"""Of a back end that can be told; each for its share of the requests."""
WEIGHTS = {
    "put_small": 20,
    "put_large": 6,
    "upload": 2,
    "get": 30,
    "range": 20,
    "head": 8,
    "list": 4,
    "delete": 4,
    "copy": 4,
    "vanish_putting": 3,
    "vanish_getting": 2,
    "abort": 1,
}
_FAILURES = (ClientError, BotoCoreError, OSError)


def client(server: Running, attempts: int = 3) -> Any:  # noqa: ANN401 - boto3 has no types
    """A client as applications have it, which tries so often."""
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": attempts, "mode": "standard"},
            connect_timeout=10,
            read_timeout=30,
        ),
    )


class Worker:
    """Sends one request after the other about its own keys."""

    def __init__(self, server: Running, number: int, deadline: float, pause_s: float) -> None:
        self.thread = threading.Thread(target=self.run, name=f"soak-{number}", daemon=True)
        self._server, self._prefix = server, f"w{number}/"
        self._deadline, self._pause_s = deadline, pause_s
        self._chance = random.Random(number)  # noqa: S311 - the same on every run
        # Half of them see each failure, and what it leaves.
        self._client = client(server, attempts=1 + 2 * (number % 2))
        self._seed = number << 40
        self.model = Model({f"{self._prefix}k{n}": {None} for n in range(KEYS)})
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.bytes = 0
        self.violations: list[str] = []

    def run(self) -> None:
        """Until the deadline, then reads everything once more."""
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        try:
            while time.monotonic() < self._deadline:
                begin = time.monotonic()
                name = self._chance.choices(names, weights)[0]
                key = self._chance.choice(list(self.model.may_be))
                try:
                    getattr(self, f"_{name}")(key)
                    self.done[name] += 1
                except _FAILURES:
                    self.failed[name] += 1
                # The pace of the traffic, not a wait for anything.
                time.sleep(max(0.0, self._pause_s - (time.monotonic() - begin)))
        except Exception as error:  # told of as a violation
            self.violations.append(f"{self._prefix}: {type(error).__name__}: {error}")

    def check_all(self) -> None:
        """Every key holds what it may; the back end behaves again."""
        for key in self.model.may_be:
            self._get(key)
        self._list("")

    def _violation(self, key: str, what: str) -> None:
        held = sorted(str(version) for version in self.model.of(key))
        self.violations.append(f"{key}: {what}; it may hold {', '.join(held)}")

    def _version(self, size: int) -> Version:
        self._seed += 1
        return Version(self._seed, size)

    def _write(self, key: str, version: Version | None, send: Callable[[], object]) -> None:
        granted = False
        try:
            send()
            granted = True
        finally:
            self.model.wrote(key, version, granted)

    def _put(self, key: str, size: int) -> None:
        version = self._version(size)
        body = version.content()
        self.bytes += size
        meta = {"seed": str(version.seed)}
        self._write(
            key,
            version,
            lambda: self._client.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata=meta),
        )

    def _put_small(self, key: str) -> None:
        self._put(key, self._chance.randrange(100 * KIB))

    def _put_large(self, key: str) -> None:
        self._put(key, self._chance.randrange(100 * KIB, 4 * MIB))

    def _upload(self, key: str) -> None:
        version = self._version(self._chance.randrange(10 * MIB, 16 * MIB))
        body, at = version.content(), {"Bucket": BUCKET, "Key": key}
        self.bytes += version.size
        meta = {"seed": str(version.seed)}
        upload = self._client.create_multipart_upload(**at, Metadata=meta)["UploadId"]
        parts = []
        for number, begin in enumerate(range(0, version.size, 5 * MIB), 1):
            piece = body[begin : begin + 5 * MIB]
            sent = self._client.upload_part(**at, UploadId=upload, PartNumber=number, Body=piece)
            parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        self._write(
            key,
            version,
            lambda: self._client.complete_multipart_upload(
                **at, UploadId=upload, MultipartUpload={"Parts": parts}
            ),
        )

    def _abort(self, key: str) -> None:
        at = {"Bucket": BUCKET, "Key": key}
        upload = self._client.create_multipart_upload(**at)["UploadId"]
        self._client.upload_part(**at, UploadId=upload, PartNumber=1, Body=bytes(MIB))
        self._client.abort_multipart_upload(**at, UploadId=upload)

    def _delete(self, key: str) -> None:
        self._write(key, None, lambda: self._client.delete_object(Bucket=BUCKET, Key=key))

    def _copy(self, key: str) -> None:
        known = self.model.of(key)
        if len(known) > 1 or known == {None}:
            return
        (version,) = known
        target = self._chance.choice([other for other in self.model.may_be if other != key])
        source = {"Bucket": BUCKET, "Key": key}
        self._write(
            target,
            version,
            lambda: self._client.copy_object(Bucket=BUCKET, Key=target, CopySource=source),
        )

    def _read(self, key: str, **more: str) -> bytes | None:
        try:
            body = self._client.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        self.bytes += len(body)
        return bytes(body)

    def _get(self, key: str) -> None:
        body = self._read(key)

        def fits(version: Version | None) -> bool:
            return body == (None if version is None else version.content())

        if not self.model.saw(key, fits):
            got = "no object" if body is None else f"{len(body)} bytes, {body[:16]!r}"
            self._violation(key, f"a read found {got}")

    def _range(self, key: str) -> None:
        sizes = [version.size for version in self.model.of(key) if version is not None]
        if not sizes or min(sizes) == 0:
            return
        begin = self._chance.randrange(min(sizes))
        end = begin + self._chance.randrange(1, 256 * KIB)
        body = self._read(key, Range=f"bytes={begin}-{end - 1}")

        def fits(version: Version | None) -> bool:
            return body == (None if version is None else version.content()[begin:end])

        if not self.model.saw(key, fits):
            got = "no object" if body is None else f"{len(body)} bytes"
            self._violation(key, f"a read of bytes {begin} to {end} found {got}")

    def _head(self, key: str) -> None:
        try:
            found = self._client.head_object(Bucket=BUCKET, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            found = None

        def fits(version: Version | None) -> bool:
            if version is None or found is None:
                return version is found
            told = (found["Metadata"].get("seed"), found["ContentLength"])
            return told == (str(version.seed), version.size)

        if not self.model.saw(key, fits):
            self._violation(key, f"HEAD told {found and found['ContentLength']}")

    def _list(self, _key: str) -> None:
        answer = self._client.list_objects_v2(Bucket=BUCKET, Prefix=self._prefix)
        names = {entry["Key"] for entry in answer.get("Contents", [])}
        if not self.model.listed(names):
            self.violations.append(f"{self._prefix}: a list told {sorted(names)}")

    def _vanish(self, request: load.Prepared, sent: int, received: int) -> None:
        host, port = self._server.host.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request.head)
            connection.sendall(request.body[:sent])
            if received:
                connection.recv(received)

    def _vanish_putting(self, key: str) -> None:
        body = memoryview(self._version(self._chance.randrange(2, 2 * MIB)).content())
        request = load.prepared(self._server, "PUT", f"/{BUCKET}/{key}", body)
        # A body without its end: the object stays what it was.
        self._vanish(request, self._chance.randrange(1, len(body)), 0)

    def _vanish_getting(self, key: str) -> None:
        request = load.prepared(self._server, "GET", f"/{BUCKET}/{key}")
        self._vanish(request, 0, self._chance.randrange(1, 64 * KIB))


def set_faults(back_end: Running, faults: Sequence[str]) -> None:
    """Tells a fake what goes wrong from now on."""
    url = f"{back_end.url}/_penstock/faults"
    for method in ("DELETE", "POST") if faults else ("DELETE",):
        body = "\n".join(faults).encode() if method == "POST" else None
        asked = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - http
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - http
            answer.read()


def soak(
    lane: Lane, duration_s: float, rate: float, progress: Callable[[str], None]
) -> dict[str, Any]:
    """One gateway under traffic for so long; gives the record, whose ``violations`` are empty."""
    with lane as server:
        client(server).create_bucket(Bucket=BUCKET)
        if lane.back_end is not None:
            set_faults(lane.back_end, FAULTS)
        begin = time.monotonic()
        deadline = begin + duration_s
        workers = [Worker(server, n, deadline, WORKERS / rate) for n in range(WORKERS)]
        for worker in workers:
            worker.thread.start()
        samples, every_s = [], max(0.25, duration_s / 400)
        while time.monotonic() < deadline:
            time.sleep(every_s)
            samples.append(sample(server.pid))
            if len(samples) % 20 == 0:
                count = sum(worker.done.total() for worker in workers)
                progress(f"{count} requests, {samples[-1].rss_bytes / 1e6:.0f} MB")
        for worker in workers:
            worker.thread.join(120)
        violations = [f"{one.thread.name} hangs" for one in workers if one.thread.is_alive()]
        if lane.back_end is not None:
            set_faults(lane.back_end, ())
        for worker in workers:
            worker.check_all()
            violations += worker.violations
        done = sum((worker.done for worker in workers), Counter())
        failed = sum((worker.failed for worker in workers), Counter())
        return {
            "duration_s": time.monotonic() - begin,
            "done": dict(sorted(done.items())),
            "failed": dict(sorted(failed.items())),
            "bytes": sum(worker.bytes for worker in workers),
            "rss_bytes": [one.rss_bytes for one in samples[:: max(1, len(samples) // 40)]],
            "fds": [one.fds for one in samples[:: max(1, len(samples) // 40)]],
            "rss_most_bytes": max(one.rss_bytes for one in samples),
            "fds_most": max(one.fds for one in samples),
            "violations": violations + growth(samples),
        }


def run(
    stores: Sequence[str],
    duration_s: float,
    rate: float,
    out: Path,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """The workload; gives the records that were also written."""
    name = f"{NAME}-{time.strftime('%Y%m%dT%H%M%S')}"
    records = []
    for store in stores:
        record = {
            "schema": 1,
            "campaign": name,
            "workload": NAME,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "store": store,
            "peer": "penstock",
            "machine": machine.machine(),
            **machine.commit(),
        }
        lane = Lane("penstock", store, out / name)
        progress(store)
        record |= soak(lane, duration_s, rate, progress)
        records.append(record)
        with (out / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    return records


def text(records: list[dict[str, Any]]) -> str:
    """What became of it."""
    lines = []
    for record in records:
        done, failed = (sum(record[which].values()) for which in ("done", "failed"))
        rss, fds, seconds = record["rss_bytes"], record["fds"], record["duration_s"]
        # Older records have one sample of ten only.
        rss_most = record.get("rss_most_bytes", max(rss))
        fds_most = record.get("fds_most", max(fds))
        lines += [
            f"{record['store']}: {seconds:.0f} s, {done} requests done, {failed} failed"
            f" by the back end's faults, {record['bytes'] / 1e9:.1f} GB",
            f"  memory {rss[0] / 1e6:.0f} to {rss[-1] / 1e6:.0f} MB,"
            f" at most {rss_most / 1e6:.0f}; descriptors {fds[0]} to {fds[-1]},"
            f" at most {fds_most}",
            *(f"  VIOLATION {line}" for line in record["violations"][:20]),
        ]
        if not record["violations"]:
            lines.append("  no object lost or torn, nothing grew")
    return "\n".join(lines)
