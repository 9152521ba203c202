"""What every test of the extension starts from: the fakes, connections, the PyPI extensions."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.server
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import duckdb

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
EXTENSION = BUILD / "duckdb" / f"v{duckdb.__version__}" / "penstock.duckdb_extension"
FAKE = Path(os.environ.get("PENSTOCK_FAKE", BUILD / "penstock-fake"))

S3_KEY = "test"
AZURE_ACCOUNT = "devstoreaccount1"
# The key of Azure's emulator, printed in its documentation.
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def connect(*, load: bool = True, **config: str) -> duckdb.DuckDBPyConnection:
    """A fresh database, with the extension loaded unless told otherwise."""
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", **config})
    if load:
        load_penstock(con)
    return con


def load_penstock(con: duckdb.DuckDBPyConnection) -> None:
    """Loads the extension that this checkout built."""
    con.execute(f"LOAD '{EXTENSION}'")


IS_DUCKDB_2 = int(duckdb.__version__.split(".")[0]) >= 2


NO_THREADS = {"threads": "1"} | ({"async_threads": "0"} if IS_DUCKDB_2 else {})
"""The configuration of a process that forks. Further threads stay in the parent, and a child that
closes its parent's database then dies on DuckDB 2.0, with and without Penstock."""


class PackageMissingError(Exception):
    """PyPI has no such extension for this DuckDB."""


def need_package(name: str) -> None:
    """Raises an error where build/venv has no such package for this DuckDB."""
    if importlib.metadata.version(name) != duckdb.__version__:
        raise PackageMissingError(f"there is no {name} {duckdb.__version__}")


def pypi_extension(name: str) -> Path:
    """The file of an extension that came from PyPI (httpfs, azure, aws), for this DuckDB."""
    need_package(f"duckdb-extension-{name}")
    module = __import__(f"duckdb_extension_{name}")
    found = list(Path(module.__path__[0]).rglob(f"{name}.duckdb_extension"))
    assert len(found) == 1, f"duckdb-extension-{name} holds {found}"
    return found[0]


def load_pypi(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Loads an extension that came from PyPI."""
    con.execute(f"LOAD '{pypi_extension(name)}'")


def ran(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Another process that has run this."""
    command = [sys.executable, "-c", script, *arguments]
    here = Path(__file__).parent
    return subprocess.run(
        command, cwd=here, capture_output=True, text=True, timeout=60, check=False
    )


def in_a_process(script: str, *arguments: str) -> str:
    """What another process prints that runs this."""
    done = ran(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def second_process(setting: str, url: str, secret: str) -> str:
    """What another process says that reads a URL thrice with `SET` of a cache that is in use."""
    script = (
        "from harness import connect\n"
        "con = connect()\n"
        f'con.execute("CREATE SECRET s ({secret})")\n'
        f'con.execute("SET {setting}")\n'
        "for _ in range(3):\n"
        f"    con.execute(\"FROM '{url}' LIMIT 1\")\n"
    )
    done = ran(script)
    assert done.returncode == 0, done.stderr
    return done.stderr


@dataclass
class Fake:
    """A running fake store."""

    kind: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return f"127.0.0.1:{self.port}"

    @property
    def secret(self) -> str:
        """The options of CREATE SECRET that reach it."""
        if self.kind == "azure":
            return f"TYPE azure, CONNECTION_STRING '{self.connection_string}'"
        return (
            f"TYPE s3, KEY_ID '{S3_KEY}', SECRET '{S3_KEY}', REGION 'us-east-1', "
            f"ENDPOINT '{self.address}', URL_STYLE 'path', USE_SSL false"
        )

    @property
    def connection_string(self) -> str:
        """Azure's connection string of the development account."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
            f"BlobEndpoint=http://{self.address}/{AZURE_ACCOUNT};"
        )

    def url(self, name: str) -> str:
        """The URL of a name, with the bucket or container in front."""
        return ("s3://" if self.kind == "s3" else "az://") + name

    def unfinished_uploads(self, url: str) -> list[str]:
        """Keys below a URL of S3's with uploads that were neither completed nor aborted."""
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{self.address}",
            aws_access_key_id=S3_KEY,
            aws_secret_access_key=S3_KEY,
            region_name="us-east-1",
        )
        bucket, prefix = url.removeprefix("s3://").split("/", 1)
        rows = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
        return [row["Key"] for row in rows]

    def tell(self, method: str, path: str, body: str = "") -> Any:  # noqa: ANN401
        """An administration request; the JSON of its answer, if it has one."""
        request = urllib.request.Request(
            f"http://{self.address}/_penstock/{path}", body.encode() or None, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None

    def requests(self) -> list[dict[str, Any]]:
        """The requests since the last reset, oldest first."""
        told = self.tell("GET", "requests?n=10000")
        return list(told["requests"] if isinstance(told, dict) else told)

    def reset(self) -> None:
        """Forgets counted requests and armed faults."""
        self.tell("DELETE", "faults")
        self.tell("POST", "reset")

    def arm(self, *faults: str) -> None:
        """Makes things go wrong; `penstock-fake --help` has the language."""
        self.tell("POST", "faults", "\n".join(faults))

    def stop(self) -> None:
        """Ends the server."""
        self.process.terminate()
        self.process.wait(10)


class HttpServer(http.server.ThreadingHTTPServer):
    """A server of Python on which many connections may wait to be accepted.

    By default five may. Of more the kernel drops the first packet, which is sent again after a
    second.
    """

    request_queue_size = 128


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """What is tidied up may end a moment behind the answer."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def start_fake(kind: str, *options: str) -> Fake:
    """A fake S3 or Azure on a port of this machine that the kernel chose for it."""
    command = [str(FAKE), kind, "--listen", "127.0.0.1:0", "--quiet", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout as told:
        line = told.readline().decode()
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    if found is None:
        process.kill()
        raise RuntimeError(f"{' '.join(command)} did not start: {line or 'it printed nothing'}")
    return Fake(kind, int(found[1]), process)


def azure_exists(fake: Fake, name: str) -> bool:
    """Asks the fake itself whether a blob is there, without the code under test."""
    path = f"/{AZURE_ACCOUNT}/{name}"
    date = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    text = f"HEAD{chr(10) * 12}{headers}/{AZURE_ACCOUNT}{path}"
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"http://{fake.address}{path}",
        method="HEAD",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise
    return True


def scanner(store: Fake, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A new database, which has read nothing yet."""
    con = connect()
    con.execute(f"CREATE SECRET s ({store.secret})")
    con.execute(f"SET threads = {threads}")
    return con


def read_in_turn(con: duckdb.DuckDBPyConnection) -> None:
    """Has DuckDB 2.0 read as DuckDB 1 does, without threads beside and ahead of those of a scan."""
    if IS_DUCKDB_2:
        con.execute("SET GLOBAL async_threads = 0")


def stats(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The counters of a database, by name."""
    rows = con.execute("SELECT name, value FROM penstock_stats()").fetchall()
    return {name: int(value) for name, value in rows}


def data_requests(store: Fake, name: str) -> list[tuple[int, int, int]]:
    """The GET requests of an object, in order: begin and end in microseconds, and bytes."""
    found = [
        (request["start_us"], request["start_us"] + request["total_us"], request["bytes_out"])
        for request in store.requests()
        if request["method"] == "GET" and name in request["path"]
    ]
    return sorted(found)


def round_trips(found: list[tuple[int, int, int]]) -> int:
    """How often all requests that run had to end before the next one could begin."""
    trips, ends_us = 0, 0
    for begin_us, end_us, _ in found:
        if begin_us >= ends_us:
            trips += 1
        ends_us = max(ends_us, end_us)
    return trips
