"""Four replicas behind HAProxy: any request to any replica, and one killed in the middle.

HAProxy runs with the file that is shipped, deploy/compose/haproxy.cfg, and finds the replicas as it
does there: by a name of which a name server tells all addresses.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.client import BaseClient
from botocore.config import Config

from gateway_tests.names import NameServer

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
REPLICAS = 4
PART = 5 << 20
BUCKET = "scaled-out"
BACK_ENDS = ("directory", "azure", "s3")
ADDRESSES = [f"127.0.0.{11 + number}" for number in range(REPLICAS)]
"""Of the replicas, which have one port as containers do."""
BALANCER = "127.0.0.1"
"""From where HAProxy speaks to them."""
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Child:
    """One of our binaries; its first line says where it listens."""

    def __init__(self, *command: str | Path) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
        }
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, env=environment
        )
        assert self.process.stdout is not None
        found = re.search(r"http://[\d.]+:\d+", self.process.stdout.readline().decode())
        assert found is not None, f"{command[0]} did not start"
        self.url = found.group()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ends it as an operator would, and demands that it ends well."""
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(40) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Cluster:
    """The replicas and the balancer before them."""

    directory: Path
    url: str
    replicas: list[Child] = field(default_factory=list)

    def client(self, url: str | None = None) -> BaseClient:
        """Path style, and as many tries as a production client has."""
        return boto3.client(
            "s3",
            endpoint_url=url or self.url,
            aws_access_key_id="lake",
            aws_secret_access_key="secret",
            region_name="us-east-1",
            config=Config(
                s3={"addressing_style": "path"},
                retries={"mode": "standard", "max_attempts": 10},
                max_pool_connections=32,
            ),
        )

    def logged(self, operation: str) -> list[list[dict[str, Any]]]:
        """What the access log of each replica tells of an operation."""
        found = []
        for number in range(REPLICAS):
            log = self.directory / f"access-{number}.log"
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            found.append([line for line in lines if line["operation"] == operation])
        return found

    def served(self, operation: str) -> list[set[str]]:
        """Keys for which each replica has answered an operation."""
        return [{line["key"] for line in lines} for lines in self.logged(operation)]

    def peers(self, operation: str, key: str) -> list[str]:
        """Who sent an operation for a key, to any replica."""
        lines = [line for lines in self.logged(operation) for line in lines]
        return [line["peer"] for line in lines if line["key"] == key]


def back_end(kind: str, directory: Path, stack: ExitStack) -> str:
    """The section of the config file for a back end, which is started where it is a server."""
    if kind == "directory":
        data = directory / "data"
        data.mkdir()
        return f'url = "file://{data}"\n'
    fake = Child(BUILD / "penstock-fake", kind, "--quiet")
    stack.callback(fake.kill)
    if kind == "azure":
        return (
            f'url = "az://"\nendpoint = "{fake.url}"\naccount_name = "{AZURITE_ACCOUNT}"\n'
            f'account_key = "{AZURITE_KEY}"\n'
        )
    return (
        f'url = "s3://"\nendpoint = "{fake.url}"\nregion = "us-east-1"\nurl_style = "path"\n'
        'key_id = "test"\nsecret = "test"\nuse_ssl = "false"\n'
    )


@pytest.fixture(scope="module", params=BACK_ENDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    memory = Path("/dev/shm")
    with ExitStack() as stack:
        parent = memory if memory.is_dir() else None
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
        config = directory / "penstock.toml"
        config.write_text(
            f'trusted_proxies = "{BALANCER}"\n'
            '[[key]]\naccess_key = "lake"\nsecret_key = "secret"\n'
            '[[backend]]\nname = "back"\ndynamic = true\n'
            + back_end(request.param, directory, stack)
        )
        replicas: list[Child] = []
        port = "0"
        for number, address in enumerate(ADDRESSES):
            log = directory / f"access-{number}.log"
            listen = ("--listen", f"{address}:{port}", "--access-log", log)
            replica = Child(BUILD / "penstock", "serve", "--config", config, *listen)
            stack.callback(replica.stop)
            replicas.append(replica)
            port = replica.url.rsplit(":", 1)[1]
        running = Cluster(directory, balancer(directory, port, stack), replicas)
        running.client().create_bucket(Bucket=BUCKET)
        yield running


def balancer(directory: Path, port: str, stack: ExitStack) -> str:
    """HAProxy's URL, once it has found all replicas and they have told it that they are ready."""
    script = ROOT / "scripts/peers/haproxy.sh"
    names = stack.enter_context(NameServer(ADDRESSES))
    page = stack.enter_context(socket.socket())
    page.bind(("127.0.0.1", 0))
    page_port = page.getsockname()[1]
    page.close()
    environment = {
        "PENSTOCK_REPLICAS": f"penstock.test:{port}",
        "PENSTOCK_DNS": names.address,
        "PENSTOCK_PAGE_BIND": f"127.0.0.1:{page_port}",
    }
    started = subprocess.run(
        [script, "start", directory],
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
    )
    stack.callback(lambda: subprocess.run([script, "stop", directory], check=True))
    end = time.monotonic() + 30
    while (found := up(f"http://127.0.0.1:{page_port}/;csv")) != REPLICAS:
        assert time.monotonic() < end, f"HAProxy sees {found} of {REPLICAS} replicas"
        time.sleep(0.1)
    return f"http://127.0.0.1:{started.stdout.decode().strip()}"


def up(page: str) -> int:
    """How many servers HAProxy's page shows as being up."""
    text = urllib3.request("GET", page).data.decode().removeprefix("# ")
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["pxname"] == "replicas"]
    return sum(row["svname"] != "BACKEND" and row["status"] == "UP" for row in rows)


class Begun:
    """The upload of a part that a replica has taken on, and whose bytes it does not have yet."""

    def __init__(self, s3: BaseClient, part: dict[str, Any], body: bytes) -> None:
        url = urlsplit(s3.generate_presigned_url("upload_part", Params=part))
        assert url.hostname is not None
        self.body = body
        self.connection = HTTPConnection(url.hostname, url.port, timeout=60)
        self.connection.putrequest("PUT", f"{url.path}?{url.query}")
        self.connection.putheader("Content-Length", str(len(body)))
        # Which is answered by the replica, not by HAProxy.
        self.connection.putheader("Expect", "100-continue")
        self.connection.endheaders()
        line = b""
        while not line.endswith(b"\r\n\r\n"):
            more = self.connection.sock.recv(1)
            assert more, line
            line += more
        assert line.startswith(b"HTTP/1.1 100 "), line

    def finish(self) -> str:
        """Sends the bytes, and gives the part's ETag."""
        self.connection.send(self.body)
        with closing(self.connection), self.connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            return answer.headers["ETag"]


def data(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def test_the_requests_of_one_upload_meet_different_replicas(cluster: Cluster) -> None:
    s3 = cluster.client()
    key, body = "upload", data(1, 7 * PART + 12345)
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, Metadata={"made": "in parts"})
    name = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"]}
    parts = []
    for first in (1, 1 + REPLICAS):
        # HAProxy chooses who has least to do: with all of them under way each has one.
        numbers = range(first, first + REPLICAS)
        pieces = {number: body[(number - 1) * PART : number * PART] for number in numbers}
        begun = {
            number: Begun(s3, {**name, "PartNumber": number}, pieces[number]) for number in numbers
        }
        parts += [{"PartNumber": number, "ETag": begun[number].finish()} for number in numbers]
    assert len(s3.list_parts(**name)["Parts"]) == 8
    s3.complete_multipart_upload(**name, MultipartUpload={"Parts": parts})
    assert all(key in keys for keys in cluster.served("UploadPart"))
    for replica in cluster.replicas:
        found = cluster.client(replica.url).get_object(Bucket=BUCKET, Key=key)
        assert found["Metadata"] == {"made": "in parts"}
        assert found["Body"].read() == body


def test_a_listing_goes_on_at_another_replica(cluster: Cluster) -> None:
    clients = [cluster.client(replica.url) for replica in cluster.replicas]
    expected = [f"listed/{number:03}" for number in range(30)]
    for number, key in enumerate(expected):
        clients[number % REPLICAS].put_object(Bucket=BUCKET, Key=key, Body=b"x")
    found: list[str] = []
    token: dict[str, str] = {}
    for turn in range(len(expected)):
        page = clients[turn % REPLICAS].list_objects_v2(
            Bucket=BUCKET, Prefix="listed/", MaxKeys=7, **token
        )
        found += [entry["Key"] for entry in page["Contents"]]
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    assert found == expected


def test_a_presigned_url_is_good_at_every_replica(cluster: Cluster) -> None:
    s3 = cluster.client()
    # More than what the kernel and HAProxy keep for a client that does not read.
    body = data(2, 64 << 20)
    s3.put_object(Bucket=BUCKET, Key="presigned", Body=body)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "presigned"})
    begun = [urllib3.request("GET", url, preload_content=False) for _ in range(REPLICAS)]
    for answer in begun:
        assert (answer.status, answer.read()) == (200, body)
        answer.release_conn()
    # A replica's line is written after the last byte has left it.
    end = time.monotonic() + 30
    while not all("presigned" in keys for keys in cluster.served("GetObject")):
        assert time.monotonic() < end, "a replica was never asked"
        time.sleep(0.1)


def test_a_replica_knows_who_speaks_to_the_balancer(cluster: Cluster) -> None:
    s3, own = cluster.client(), "127.0.0.99"
    s3.put_object(Bucket=BUCKET, Key="whose", Body=b"x")
    place = {"Bucket": BUCKET, "Key": "whose"}
    url = urlsplit(s3.generate_presigned_url("get_object", Params=place))
    assert url.hostname is not None
    connection = HTTPConnection(url.hostname, url.port, timeout=60, source_address=(own, 0))
    with closing(connection):
        made_up = {"X-Forwarded-For": "203.0.113.9"}
        connection.request("GET", f"{url.path}?{url.query}", headers=made_up)
        with connection.getresponse() as answer:
            assert (answer.status, answer.read()) == (200, b"x")
    end = time.monotonic() + 30
    while not (peers := cluster.peers("GetObject", "whose")):
        assert time.monotonic() < end, "no replica has told of it"
        time.sleep(0.1)
    assert peers == [own]


def test_a_replica_killed_in_the_middle_costs_retries_and_nothing_else(cluster: Cluster) -> None:
    s3 = cluster.client()
    bodies = {f"killed/{number}": data(number, 3 * PART + number) for number in range(8)}
    bodies |= {f"killed/small-{number}": data(number, 70_000) for number in range(32)}
    half = sum(map(len, bodies.values())) // 2
    sent, lock, killed = 0, threading.Lock(), threading.Event()

    def progress(count: int) -> None:
        nonlocal sent
        with lock:
            sent += count
            must_kill = sent > half and not killed.is_set()
            if must_kill:
                killed.set()
        if must_kill:
            cluster.replicas[0].kill()

    parted = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=2)

    def upload(key: str) -> None:
        s3.upload_fileobj(io.BytesIO(bodies[key]), BUCKET, key, Callback=progress, Config=parted)

    torn: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        """What is seen at any moment is a whole object."""
        reader = cluster.client()
        while not is_over.is_set():
            page = reader.list_objects_v2(Bucket=BUCKET, Prefix="killed/")
            for entry in page.get("Contents", []):
                if entry["Size"] != len(bodies[entry["Key"]]):
                    torn.append(entry["Key"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(upload, bodies))
    finally:
        is_over.set()
        watcher.join()
    assert killed.is_set()
    assert torn == []
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="killed/")["Contents"]
    assert sorted(entry["Key"] for entry in listed) == sorted(bodies)
    for key, body in bodies.items():
        found = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert hashlib.sha256(found).digest() == hashlib.sha256(body).digest(), key


def test_a_replica_told_to_end_ends_well_under_load(cluster: Cluster) -> None:
    s3 = cluster.client()
    leaving = cluster.replicas[1]
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                s3.put_object(Bucket=BUCKET, Key=f"leaving/{number}-{turn}", Body=b"x" * 10_000)
        except Exception as error:
            failures.append(error)

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(work, number) for number in range(8)]
        leaving.stop()
        for job in jobs:
            job.result()
    assert failures == []
    assert leaving.process.returncode == 0
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="leaving/")["Contents"]
    assert len(listed) == 80
