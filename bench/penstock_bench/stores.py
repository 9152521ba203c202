"""The stores that peers are measured on: starts one, knows its endpoint, counters and process."""

from __future__ import annotations

import base64
import datetime
import email.utils
import hashlib
import hmac
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from penstock_bench import sql
from penstock_bench.config import BUILD, ROOT
from penstock_bench.network import Network, Profile
from penstock_bench.processes import Server, free_port

KINDS = {
    "fake-s3": "s3",
    "fake-azure": "azure",
    "serve": "s3",
    "azurite": "azure",
    "versitygw": "s3",
    "file": "file",
}
"""Kinds of store and the protocol that each speaks."""


def has_counters(kind: str) -> bool:
    """Whether a kind of store tells its own requests and bytes: ours do."""
    return kind in ("fake-s3", "fake-azure", "serve")


@dataclass(frozen=True)
class Opened:
    """A store in use."""

    kind: str
    endpoint: sql.Endpoint
    stats_url: str | None
    server_pid: int | None
    direct_port: int
    """Port without the network emulation."""


class Store:
    """A store process; a context manager that gives `Opened` and leaves nothing behind."""

    def __init__(self, kind: str, network: Network, profile: Profile, logs: Path) -> None:
        if profile.is_fakes and not kind.startswith(("fake-", "file")):
            raise ValueError(f"the profile {profile.name} works on our fakes only, not on {kind}")
        self._kind, self._network, self._profile, self._logs = kind, network, profile, logs
        self._server: Server | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))

    def __enter__(self) -> Opened:
        """Starts it and makes the bucket."""
        try:
            return self._open()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Ends it and removes its data."""
        if self._server:
            self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _open(self) -> Opened:
        if self._kind == "file":
            endpoint = sql.Endpoint("file", directory=str(self._directory))
            return Opened("file", endpoint, None, None, 0)
        port = free_port()
        command, env = self._command(port)
        log = self._logs / f"{self._kind}.log"
        self._server = Server([*self._network.prefix, *command], port, log, env)
        protocol = KINDS[self._kind]
        self._make_bucket(protocol, port)
        shown = self._network.expose(port)
        stats = f"http://127.0.0.1:{port}/_penstock/stats" if has_counters(self._kind) else None
        return Opened(self._kind, sql.Endpoint(protocol, port=shown), stats, self._server.pid, port)

    def _command(self, port: int) -> tuple[list[str | Path], dict[str, str]]:
        env = dict(os.environ)
        listen = f"127.0.0.1:{port}"
        if self._kind.startswith("fake-"):
            command: list[str | Path] = [BUILD / "penstock-fake", KINDS[self._kind]]
            command += ["--listen", listen, "--quiet", *self._profile.fake_flags]
            return command, env
        if self._kind == "serve":
            (self._directory / sql.BUCKET).mkdir()
            keys = ["--access-key", sql.S3_KEY, "--secret-key", sql.S3_KEY]
            return [
                BUILD / "penstock",
                "serve",
                "--dir",
                self._directory,
                "--listen",
                listen,
                *keys,
            ], env
        install: list[str | Path] = [ROOT / f"scripts/peers/{self._kind}.sh", "install"]
        binary = subprocess.run(install, stdout=subprocess.PIPE, text=True, check=True).stdout
        if self._kind == "azurite":
            return [
                binary.strip(),
                "--blobHost",
                "127.0.0.1",
                "--blobPort",
                str(port),
                "--inMemoryPersistence",
                "--silent",
                "--skipApiVersionCheck",
                "--disableTelemetry",
            ], env
        env |= {"ROOT_ACCESS_KEY": sql.S3_KEY, "ROOT_SECRET_KEY": sql.S3_KEY}
        return [binary.strip(), "--port", listen, "--quiet", "posix", self._directory], env

    def _make_bucket(self, protocol: str, port: int) -> None:
        if self._kind != "serve":
            within(self._network, "make_bucket", protocol, str(port))


def within(network: Network, function: str, *words: str) -> None:
    """Calls a function of this file in the namespace, if there is one: ports listen inside."""
    code = f"from penstock_bench import stores; import sys; stores.{function}(*sys.argv[1:])"
    subprocess.run(
        [*network.prefix, sys.executable, "-c", code, *words],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
    )


def make_s3_bucket(url: str, bucket: str) -> None:
    """Creates a bucket on a server that speaks S3 and takes the bench's key."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=sql.S3_KEY,
        aws_secret_access_key=sql.S3_KEY,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=bucket)


def make_bucket(protocol: str, port: str) -> None:
    """Creates the bench's bucket or container on an empty store."""
    if protocol == "s3":
        make_s3_bucket(f"http://127.0.0.1:{port}", sql.BUCKET)
        return
    path = f"/{sql.AZURITE_ACCOUNT}/{sql.BUCKET}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}?restype=container",
        method="PUT",
        headers=shared_key("PUT", path, query="\nrestype:container"),
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


def shared_key(method: str, path: str, span: str = "", query: str = "") -> dict[str, str]:
    """The headers of a request to Azure without a body, signed with the emulator's account key.

    ``span`` is the `Range`, ``query`` the canonical form of parameters (Azure's "Authorize with
    Shared Key"; the emulator's path repeats the account). Good for fifteen minutes.
    """
    date = email.utils.formatdate(usegmt=True)
    text = (
        f"{method}{chr(10) * 11}{span}\nx-ms-date:{date}\nx-ms-version:2021-12-02\n"
        f"/{sql.AZURITE_ACCOUNT}{path}{query}"
    )
    return {
        **({"Range": span} if span else {}),
        "x-ms-date": date,
        "x-ms-version": "2021-12-02",
        "Authorization": f"SharedKey {sql.AZURITE_ACCOUNT}:{_signature(text)}",
    }


def account_sas() -> str:
    """A query with which the emulator's account may be read and written for a day, unsigned else.

    The fields are those of Azure's "Create an account SAS", version 2020-12-06 and later.
    """
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    version, rights, services, kinds = "2021-12-02", "rwdlac", "b", "sco"
    end = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = [sql.AZURITE_ACCOUNT, rights, services, kinds, "", end, "", "", version, ""]
    query = {"sv": version, "ss": services, "srt": kinds, "sp": rights, "se": end}
    return urllib.parse.urlencode({**query, "sig": _signature("\n".join(fields) + "\n")})


def _signature(text: str) -> str:
    """By the emulator's account key."""
    key = base64.b64decode(sql.AZURITE_KEY)
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
