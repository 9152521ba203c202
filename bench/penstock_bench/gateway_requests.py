"""The workload `gateway_requests`: what each S3 operation costs a gateway in requests to Azure.

Decides which operations are asked, and counts by our fake's own counters what came behind the
gateway. One operation at a time, so that what is counted belongs to it. Measures no time.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_bench import machine
from penstock_bench.gateway_report import table
from penstock_bench.gateways import GatewayError, Lane, Running
from penstock_bench.stores import make_s3_bucket

NAME = "gateway_requests"
PEERS = ("penstock", "s3proxy", "versitygw")
STORES = ("azure-fake",)
"""Counts are its own, under the names that Azure gives to its operations."""
BUCKET = "bench"
MIB = 1 << 20
LARGE = 20 * MIB
KEYS = 1000

Counts = dict[str, int]
Act = Callable[[], object]


@dataclass
class Client:
    """One client of a gateway, and the upload that it has begun."""

    s3: Any
    upload: dict[str, str] = field(default_factory=dict)
    tags: dict[int, str] = field(default_factory=dict)

    def put(self, key: str, body: bytes = b"0123456789", **more: str) -> str:
        """PutObject; gives the ETag."""
        answer = self.s3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)
        return str(answer["ETag"])

    def get(self, key: str, **more: object) -> None:
        """GetObject, read to its end."""
        self.s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()

    def tag(self, key: str) -> str:
        """The ETag of an object."""
        return str(self.s3.head_object(Bucket=BUCKET, Key=key)["ETag"])

    def copy(self, **more: object) -> None:
        """CopyObject inside of the bucket."""
        source = {"Bucket": BUCKET, "Key": "large"}
        self.s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source, **more)

    def begin(self, key: str = "up") -> None:
        """CreateMultipartUpload."""
        answer = self.s3.create_multipart_upload(Bucket=BUCKET, Key=key)
        self.upload = {"Bucket": BUCKET, "Key": key, "UploadId": answer["UploadId"]}
        self.tags = {}

    def part(self) -> None:
        """UploadPart."""
        answer = self.s3.upload_part(**self.upload, PartNumber=1, Body=bytes(16 * MIB))
        self.tags[1] = answer["ETag"]

    def part_copy(self) -> None:
        """UploadPartCopy."""
        answer = self.s3.upload_part_copy(
            **self.upload,
            PartNumber=2,
            CopySource={"Bucket": BUCKET, "Key": "large"},
            CopySourceRange=f"bytes=0-{MIB - 1}",
        )
        self.tags[2] = answer["CopyPartResult"]["ETag"]

    def complete(self) -> None:
        """CompleteMultipartUpload of the parts that there are."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in self.tags.items()]
        self.s3.complete_multipart_upload(**self.upload, MultipartUpload={"Parts": parts})


def _abort(client: Client) -> Act:
    client.begin("gone")
    return lambda: client.s3.abort_multipart_upload(**client.upload)


def _changed(client: Client) -> Act:
    return lambda: client.get("large", IfNoneMatch='"other-1"')


def _matching_get(client: Client) -> Act:
    tag = client.tag("large")
    return lambda: client.get("large", IfMatch=tag)


def _matching_put(client: Client) -> Act:
    tag = client.tag("new")
    return lambda: client.put("new", IfMatch=tag)


def _matching_delete(client: Client) -> Act:
    tag = client.tag("new")
    return lambda: client.s3.delete_object(Bucket=BUCKET, Key="new", IfMatch=tag)


def _batch(client: Client) -> Act:
    keys = [f"many/{number}" for number in range(KEYS)]
    for key in keys:
        client.put(key)
    wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
    return lambda: client.s3.delete_objects(Bucket=BUCKET, Delete=wanted)


def _list(**more: str) -> Callable[[Client], Act]:
    return lambda client: lambda: client.s3.list_objects_v2(Bucket=BUCKET, **more)


OPERATIONS: tuple[tuple[str, Callable[[Client], Act]], ...] = (
    ("PutObject", lambda client: lambda: client.put("k")),
    ("PutObject, 20 MiB", lambda client: lambda: client.put("large", bytes(LARGE))),
    ("PutObject, If-None-Match", lambda client: lambda: client.put("new", IfNoneMatch="*")),
    ("PutObject, If-Match", _matching_put),
    ("GetObject, 20 MiB", lambda client: lambda: client.get("large")),
    ("GetObject, If-Match", _matching_get),
    ("GetObject, If-None-Match, changed", _changed),
    ("GetObject, range", lambda client: lambda: client.get("large", Range="bytes=65536-131071")),
    ("GetObject, suffix range", lambda client: lambda: client.get("large", Range="bytes=-100")),
    ("HeadObject", lambda client: lambda: client.tag("k")),
    ("CopyObject", lambda client: client.copy),
    ("ListObjectsV2, a page", _list(Delimiter="/")),
    ("ListObjectsV2, start-after", _list(StartAfter="k")),
    ("DeleteObject, If-Match", _matching_delete),
    ("DeleteObject", lambda client: lambda: client.s3.delete_object(Bucket=BUCKET, Key="k")),
    (f"DeleteObjects, {KEYS} keys", _batch),
    ("CreateMultipartUpload", lambda client: client.begin),
    ("UploadPart, 16 MiB", lambda client: client.part),
    ("UploadPartCopy", lambda client: client.part_copy),
    ("ListParts", lambda client: lambda: client.s3.list_parts(**client.upload)),
    ("CompleteMultipartUpload", lambda client: client.complete),
    ("AbortMultipartUpload", _abort),
)
"""Title, and what makes ready (not counted) and gives what is counted."""


def client_of(server: Running) -> Client:
    """A client that asks each request once, and adds no checksum that was not asked for."""
    import boto3
    from botocore.config import Config

    s3 = boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    return Client(s3)


def counted(back_end: Running, client: Client, prepared: Callable[[Client], Act]) -> dict[str, Any]:
    """What an operation asked of the back end, and the error that it ended with, if any."""
    from botocore.exceptions import BotoCoreError, ClientError

    row: dict[str, Any] = {}
    try:
        act = prepared(client)
        _fake(back_end, "reset", "POST")
        act()
    except (ClientError, BotoCoreError) as error:
        row["error"] = str(error)[:200]
    operations: Counts = json.loads(_fake(back_end, "stats"))["requests"]["operation"]
    return row | {"requests": operations}


def _fake(back_end: Running, what: str, method: str = "GET") -> bytes:
    url = f"{back_end.url}/_penstock/{what}"
    request = urllib.request.Request(url, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())


class Campaign:
    """One execution of the workload: each gateway once, since counts do not vary."""

    def __init__(
        self, peers: Sequence[str], out: Path, progress: Callable[[str], None], store: str
    ) -> None:
        self._peers, self._progress, self._store = peers, progress, store
        self._name = f"{NAME}-loopback-{time.strftime('%Y%m%dT%H%M%S')}"
        self.path, self._scratch = out / f"{self._name}.jsonl", out / self._name

    def run(self) -> list[dict[str, Any]]:
        """All of it; gives the records that were also written."""
        records = [self._record(peer) for peer in self._peers]
        self.path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return records

    def _record(self, peer: str) -> dict[str, Any]:
        record: dict[str, Any] = {
            "schema": 1,
            "campaign": self._name,
            "workload": NAME,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine.machine(),
            **machine.commit(),
            "store": self._store,
            "peer": peer,
            "steps": [],
        }
        lane = Lane(peer, self._store, self._scratch)
        try:
            with lane as server:
                assert lane.back_end is not None
                make_s3_bucket(server.url, BUCKET)
                client = client_of(server)
                for title, prepared in OPERATIONS:
                    self._progress(f"{peer} · {title}")
                    row = counted(lane.back_end, client, prepared)
                    record["steps"].append({"name": title} | row)
        except GatewayError as error:
            record["error"] = str(error)
        return record


def text(records: list[dict[str, Any]]) -> str:
    """The table: requests of each gateway for each operation, and which they were."""
    rows = [["requests to the store", *(record["peer"] for record in records)]]
    by_peer = [{step["name"]: step for step in record["steps"]} for record in records]
    rows += [[title, *(_cell(steps.get(title)) for steps in by_peer)] for title, _ in OPERATIONS]
    failed = [
        f"failed: {record['peer']}: {step['name']}: {step['error']}"
        for record in records
        for step in [*record["steps"], {"name": "start"} | record]
        if "error" in step
    ]
    return "\n".join([table(rows), *failed])


def _cell(step: dict[str, Any] | None) -> str:
    if step is None:
        return "-"
    counts: Counts = step["requests"]
    total = str(sum(counts.values()))
    names = [name if count == 1 else f"{count} {name}" for name, count in sorted(counts.items())]
    told = f"{total} ({', '.join(names)})" if names else total
    return f"{told}, failed" if "error" in step else told


def has_failed(records: list[dict[str, Any]], ours: str) -> bool:
    """Whether an operation of ours failed."""
    return any(
        "error" in step
        for record in records
        if record["peer"] == ours
        for step in [record, *record["steps"]]
    )
