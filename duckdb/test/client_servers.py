"""Servers that tests of DuckDB's httpfs and azure want: S3 as their set-up has it, Azure, proxies.

What stands here follows `scripts/` of the two repositories: names of buckets, users and
containers, what is in them, and the variables that a test reads. S3 is `penstock serve` or
versitygw, both before a directory; Azure is Azurite.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import os
import re
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

import boto3
import duckdb
from botocore.config import Config
from harness import AZURE_ACCOUNT, AZURE_KEY, BUILD, ROOT, load_pypi, wait_until
from sqllogic import TestFailedError

DOMAIN = "duckdb-minio.com"
REGION = "eu-west-1"
USER, OTHER_USER = "minio_duckdb_user", "minio_duckdb_user_2"
BUCKETS = ("test-bucket", "test-bucket-2", "test-bucket-public")
PUBLIC = BUCKETS[2]
S3_HOSTS = {DOMAIN, *(f"{bucket}.{DOMAIN}" for bucket in BUCKETS)}
S3_PORT, PROXY_PORT, PROXY_WITH_PASSWORD_PORT, PYTHON_PORT = 9000, 3128, 3129, 8008
PROXY_USER = "john:doe"
S3_VARIABLES = {
    "S3_TEST_SERVER_AVAILABLE": "1",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCESS_KEY_ID": USER,
    "AWS_SECRET_ACCESS_KEY": f"{USER}_password",
    "DUCKDB_S3_ENDPOINT": f"{DOMAIN}:{S3_PORT}",
    "DUCKDB_S3_USE_SSL": "false",
    "HTTP_PROXY_PUBLIC": f"localhost:{PROXY_PORT}",
    "TEST_PERSISTENT_SECRETS_AVAILABLE": "true",
    "PYTHON_HTTP_SERVER_URL": f"http://localhost:{PYTHON_PORT}",
}
"""As `set_s3_test_server_variables.sh` and the workflow of duckdb-httpfs have them."""


def s3_configuration(data: Path) -> str:
    """What `penstock serve` is told: the users, the public bucket, names before the domain."""
    keys = "".join(
        f'[[key]]\naccess_key = "{user}"\nsecret_key = "{user}_password"\n'
        for user in (USER, OTHER_USER)
    )
    return (
        f'listen = "127.0.0.1:{S3_PORT}"\ndomains = "{DOMAIN}"\n'
        f'[[backend]]\nname = "disk"\nurl = "file://{data}"\ndynamic = true\n{keys}'
        f'[[public]]\nbuckets = ["{PUBLIC}"]\nrights = ["read", "write", "delete", "list"]\n'
    )


@contextmanager
def s3(kind: str, directory: Path) -> Iterator[Any]:
    """An S3 server with the buckets; a client of it. One bucket keeps versions, one is public."""
    data, versions = directory / "s3", directory / "versions"
    for bucket in BUCKETS:
        (data / bucket).mkdir(parents=True)
    versions.mkdir()
    environment = {name: value for name, value in os.environ.items() if "AWS_" not in name}
    if kind == "serve":
        (directory / "serve.toml").write_text(s3_configuration(data))
        command = [str(BUILD / "penstock"), "serve", "--config", str(directory / "serve.toml")]
    else:
        peer = ROOT / "scripts/peers/versitygw.sh"
        found = subprocess.run([peer, "install"], capture_output=True, text=True, check=True)
        command = [found.stdout.strip(), "--port", f"127.0.0.1:{S3_PORT}", "--quiet"]
        command += ["--virtual-domain", f"{DOMAIN}:{S3_PORT}", "--region", REGION, "posix"]
        command += ["--versioning-dir", str(versions), str(data)]
        environment |= {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": f"{USER}_password"}
    with (directory / "s3.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: is_listening(S3_PORT), f"{kind} listens")
        client = s3_client()
        with suppress(client.exceptions.ClientError):
            client.create_bucket(Bucket=BUCKETS[0])
        versioning = {"Status": "Enabled"}
        client.put_bucket_versioning(Bucket=BUCKETS[0], VersioningConfiguration=versioning)
        yield client
    finally:
        process.terminate()
        process.wait(10)


def s3_client() -> Any:  # noqa: ANN401
    """boto3 as the first of the users."""
    style = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
    return boto3.client(
        "s3",
        endpoint_url=f"http://{DOMAIN}:{S3_PORT}",
        aws_access_key_id=USER,
        aws_secret_access_key=f"{USER}_password",
        region_name=REGION,
        config=style,
    )


def is_listening(port: int) -> bool:
    """Whether a port of this machine takes connections."""
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
        return True
    return False


def presigned(
    client: Any,  # noqa: ANN401
    clone: Path,
    directory: Path,
    test: str,
) -> dict[str, str]:
    """The objects of `generate_presigned_url.sh` that a test asks for; their variables."""
    made = {
        "phonenumbers.csv": ("S3_SMALL_CSV_PRESIGNED_URL", clone / "data/csv/phonenumbers.csv"),
        "t1.parquet": (
            "S3_SMALL_PARQUET_PRESIGNED_URL",
            clone / "data/parquet-testing/glob/t1.parquet",
        ),
        "lineitem_large.parquet": ("S3_LARGE_PARQUET_PRESIGNED_URL", None),
        "attach.db": ("S3_ATTACH_DB_PRESIGNED_URL", None),
        "lineitem_sf1.db": ("", None),
    }
    variables = {}
    for name, (variable, source) in made.items():
        is_attached = name == "attach.db" and "S3_ATTACH_DB" in test
        if not is_attached and name not in test and (not variable or variable not in test):
            continue
        file = source or _generated(name, clone, directory)
        where = {"Bucket": BUCKETS[0], "Key": f"presigned/{name}"}
        client.put_object(**where, Body=file.read_bytes())
        if variable:
            variables[variable] = client.generate_presigned_url("get_object", Params=where)
    return variables | {"S3_ATTACH_DB": f"s3://{BUCKETS[0]}/presigned/attach.db"}


def _generated(name: str, clone: Path, directory: Path) -> Path:
    """A file that `generate_presigned_url.sh` makes."""
    file = directory / name
    if name == "attach.db":
        con = duckdb.connect(str(file))
        con.execute((clone / "test/sql/storage_version/generate_storage_version.sql").read_text())
    else:
        is_database = name.endswith(".db")
        con = duckdb.connect(
            str(file) if is_database else ":memory:", config={"allow_unsigned_extensions": "true"}
        )
        load_pypi(con, "tpch")
        con.execute("CALL dbgen(sf = 1)")
        if not is_database:
            con.execute(f"COPY lineitem TO '{file}' (FORMAT parquet)")
    con.close()
    return file


class Azure:
    """Azurite with the containers and files of `upload_test_files_to_azurite.sh`."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.connection = (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
            f"BlobEndpoint=http://{self.address}/{AZURE_ACCOUNT};"
        )

    def variables(self, name: str) -> dict[str, str]:
        """What a test is told."""
        return {
            "AZURE_STORAGE_CONNECTION_STRING": self.connection,
            "AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT,
            "AZ_STORAGE_ACCOUNT": AZURE_ACCOUNT,
            "AZ_DATA_DIR": "testing-private",
            "AZ_TEMP_DIR": "writes/" + re.sub(r"\W+", "-", name),
            "HTTP_PROXY_RUNNING": "1",
            "ENABLE_DATA_INTEGRITY": "1",
            "DUCKDB_AZURE_PERSISTENT_SECRET_AVAILABLE": "1",
        }

    def fill(self, data: Path) -> None:
        """Makes the containers, and puts every file below the directory into two of them."""
        for container in ("testing-private", "testing-public", "writes"):
            access = {"x-ms-blob-public-access": "blob"} if container.endswith("public") else {}
            self.put(container, b"", access, "restype=container")
        for file in sorted(data.rglob("*")):
            for container in ("testing-private", "testing-public") if file.is_file() else ():
                name = f"{container}/{file.relative_to(data)}"
                self.put(name, file.read_bytes(), {"x-ms-blob-type": "BlockBlob"})

    def put(self, name: str, body: bytes, headers: dict[str, str], query: str = "") -> None:
        """A PUT with the account's key."""
        path = f"/{AZURE_ACCOUNT}/{name}".replace("=", "%3D")
        date = email.utils.formatdate(usegmt=True)
        named = {**headers, "x-ms-date": date, "x-ms-version": "2021-08-06"}
        lines = "".join(f"{key}:{named[key]}\n" for key in sorted(named))
        resource = f"/{AZURE_ACCOUNT}{path}" + (f"\n{query.replace('=', ':')}" if query else "")
        size = str(len(body)) if body else ""
        text = f"PUT\n\n\n{size}\n\napplication/octet-stream\n\n\n\n\n\n\n{lines}{resource}"
        digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        named["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{signature}"
        named["Content-Type"] = "application/octet-stream"
        url = f"http://{self.address}{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, body, named, method="PUT")
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310
            pass


@contextmanager
def azurite(directory: Path, data: Path) -> Iterator[Azure]:
    """Microsoft's emulator of Azure, filled."""
    peer = ROOT / "scripts/peers/azurite.sh"
    started = subprocess.run(
        [peer, "start", directory], capture_output=True, text=True, check=False
    )
    if started.returncode != 0:
        raise TestFailedError(f"Azurite did not start: {started.stderr[-300:]}")
    try:
        azure = Azure(int(started.stdout))
        azure.fill(data)
        yield azure
    finally:
        subprocess.run([peer, "stop", directory], check=True)


def azure_data(clone: Path, directory: Path) -> Path:
    """The data of duckdb-azure; of the Parquet file its largest are made that a clone lacks."""
    data = directory / "data"
    for file in (clone / "data").rglob("*"):
        if file.is_file():
            target = data / file.relative_to(clone / "data")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    for name, header in (("l.csv", "true"), ("lineitem.csv", "false")):
        if not (data / name).exists():
            duckdb.execute(f"COPY (FROM '{data}/l.parquet') TO '{data}/{name}' (HEADER {header})")
    return data


class _ProxyServer(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    user: str | None = None


class _Proxy(StreamRequestHandler):
    """One request by way of a proxy: the head is changed, all else is given on as it is."""

    server: _ProxyServer

    def handle(self) -> None:
        lines = iter(self.rfile.readline, b"")
        head = list(iter(lambda: next(lines, b"\r\n"), b"\r\n"))
        if not head:
            return
        method, target, _ = head[0].decode().split()
        if not self._is_allowed(head):
            self.wfile.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n"
                b'Proxy-Authenticate: Basic realm="judge"\r\nConnection: close\r\n\r\n'
            )
            return
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        with closing(socket.create_connection((url.hostname, url.port or 80), 10)) as far:
            if method == "CONNECT":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = target[target.index(url.netloc) + len(url.netloc) :] or "/"
                head[0] = f"{method} {path} HTTP/1.1\r\n".encode()
                kept = [it for it in head if not re.match(rb"(proxy-|connection:)", it, re.I)]
                far.sendall(b"".join(kept) + b"Connection: close\r\n\r\n")
            self._give_on(far)

    def _is_allowed(self, head: list[bytes]) -> bool:
        if self.server.user is None:
            return True
        wanted = b"Basic " + base64.b64encode(self.server.user.encode())
        pairs = [line.partition(b":") for line in head]
        return any(
            name.lower() == b"proxy-authorization" and value.strip() == wanted
            for name, _, value in pairs
        )

    def _give_on(self, far: socket.socket) -> None:
        def upwards() -> None:
            with suppress(OSError):
                while piece := self.rfile.read1(65536):
                    far.sendall(piece)

        threading.Thread(target=upwards, daemon=True).start()
        with suppress(OSError):
            while piece := far.recv(65536):
                self.wfile.write(piece)


@contextmanager
def proxies() -> Iterator[None]:
    """A proxy for everyone, and one that wants a password, where duckdb-azure's squid has them."""
    with ExitStack() as stack:
        for port, user in ((PROXY_PORT, None), (PROXY_WITH_PASSWORD_PORT, PROXY_USER)):
            server = _ProxyServer(("127.0.0.1", port), _Proxy)
            server.user = user
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            stack.callback(server.server_close)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield
