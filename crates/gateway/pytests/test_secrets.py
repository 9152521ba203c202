"""Marked secrets through a whole gateway and its doctor: nothing that comes out holds a mark."""

from __future__ import annotations

import http.client
import http.server
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from penstock_bench.config import BUILD
from troubled_server import MARK, TROUBLES, troubled

ACCESS_KEY = "READER"
CLIENT_SECRET = f"{MARK}clientsecret"
BACKENDS = {
    "s3": {"key_id": f"AK{MARK}", "secret": MARK, "session_token": MARK, "region": "us-east-1"},
    "gs": {"key_id": f"GOOG{MARK}", "secret": MARK},
    "az": {"account_name": "acc", "account_key": MARK},
    "sas": {"account_name": "acc", "sas_token": f"sv=1&sp=r&sig={MARK}"},
    "string": {},
    "token": {"account_name": "acc", "access_token": MARK},
}


CALLS: dict[str, dict[str, object]] = {
    "get_object": {},
    "head_object": {},
    "put_object": {"Body": b"x"},
    "delete_object": {},
    "create_multipart_upload": {},
    "copy_object": {},
    "list_objects_v2": {},
}


@pytest.fixture(params=TROUBLES)
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where every back end is."""
    with troubled(request.param) as host:
        yield host


def config_of(host: str, directory: Path) -> Path:
    """A config with a secret of each kind, and a bucket on each back end."""
    lines = [
        'listen = "127.0.0.1:0"',
        'admin_listen = "127.0.0.1:0"',
        f'access_log = "{directory}/access.log"',
        f'backend_log = "{directory}/backend.log"',
        "backend_deadline_ms = 300",
        "connect_timeout_ms = 300",
        "retry_base_ms = 1",
        "[[key]]",
        f'access_key = "{ACCESS_KEY}"',
        f'secret_key = "{CLIENT_SECRET}"',
    ]
    for name, options in BACKENDS.items():
        scheme = name if name in ("s3", "gs") else "az"
        base = f"http://{host}/acc"
        given = {"endpoint": base if scheme == "az" else f"http://{host}"} | options
        if name == "string":
            signed = f"BlobEndpoint={base};SharedAccessSignature=sv=1&sig={MARK}"
            given = {"connection_string": signed}
        if scheme != "az":
            given["url_style"] = "path"
        lines += ["[[backend]]", f'name = "{name}"', f'url = "{scheme}://"']
        lines += [f'{option} = "{value}"' for option, value in given.items()]
        lines += ["[[bucket]]", f'name = "on-{name}"', f'backend = "{name}"']
    path = directory / "gateway.toml"
    path.write_text("\n".join(lines))
    return path


class Gateway:
    """A process that serves, and what it said."""

    def __init__(self, config: Path, directory: Path) -> None:
        self.out = directory / "out"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [str(BUILD / "penstock"), "serve", "--config", str(config)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"]},
            )
        self.directory = directory

    def addresses(self) -> tuple[str, str]:
        """Where it serves S3, and where it tells of itself."""
        while True:
            found = re.search(
                r"serves S3 on http://(\S+?), metrics on http://(\S+)", self.out.read_text()
            )
            if found:
                return found[1], found[2]
            assert self.process.poll() is None, self.out.read_text()

    def said(self) -> str:
        """All that it wrote, once it has ended."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        logs = [self.directory / name for name in ("out", "access.log", "backend.log")]
        return "\n".join(path.read_text() for path in logs)


@pytest.fixture
def gateway(host: str, tmp_path: Path) -> Iterator[Gateway]:
    """One whose back ends are all in trouble."""
    running = Gateway(config_of(host, tmp_path), tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


def asked(address: str, key: str, secret: str) -> str:
    """What a client hears to each kind of request."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )
    heard = []
    for bucket in (f"on-{name}" for name in BACKENDS):
        for call, more in CALLS.items():
            given: dict[str, object] = {"Bucket": bucket, **more}
            if call != "list_objects_v2":
                given["Key"] = "k"
            if call == "copy_object":
                given["CopySource"] = {"Bucket": bucket, "Key": "source"}
            try:
                heard.append(str(getattr(client, call)(**given)))
            except ClientError as error:
                heard.append(f"{error} {error.response}")
            except BotoCoreError as error:
                heard.append(str(error))
    return "\n".join(heard)


def fetched(address: str, path: str) -> str:
    """An answer, head and body."""
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = f"{answer.status} {answer.headers} {answer.read().decode()}"
    connection.close()
    return text


def presigned(address: str, secret: str) -> str:
    """The path of a request that is signed in its query."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=secret,
        aws_session_token=MARK,
        region_name="us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    url = client.generate_presigned_url("get_object", Params={"Bucket": "on-s3", "Key": "k"})
    return str(url).partition(address)[2]


def test_a_gateway_shows_no_secret_whatever_goes_wrong(gateway: Gateway) -> None:
    address, admin = gateway.addresses()
    told = [
        asked(address, ACCESS_KEY, CLIENT_SECRET),
        asked(address, ACCESS_KEY, "wrong"),
        # A secret in the place of a key.
        asked(address, CLIENT_SECRET, ACCESS_KEY),
        fetched(address, presigned(address, CLIENT_SECRET)),
        fetched(address, presigned(address, "wrong")),
        fetched(address, f"/on-s3/k?X-Amz-Signature={MARK}&X-Amz-Credential=x"),
        fetched(address, f"/on-s3/k?AWSAccessKeyId=READER&Expires=1&Signature={MARK}"),
        fetched(address, f"/on-s3/k?sv=1&sig={MARK}"),
        *(fetched(admin, path) for path in ("/metrics", "/readyz", "/healthz", "/_penstock/stats")),
        gateway.said(),
    ]
    for name in BACKENDS:
        assert f'"on-{name}"' in told[-1], told[-1][-500:]
    for text in told:
        shown = [line for line in text.splitlines() if MARK in line]
        assert not shown, shown[0]


def test_the_doctor_shows_no_secret_whatever_goes_wrong(host: str, tmp_path: Path) -> None:
    command = [str(BUILD / "penstock"), "doctor", "--config", str(config_of(host, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={})
    assert done.returncode != 0
    assert "problem" in done.stdout, done.stdout
    assert MARK not in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    "line",
    [
        f'secret_key = "{MARK}',
        f"secret_key = {MARK}",
        f'secrt = "{MARK}"',
        f'backend = [{{ secret = "{MARK}" }}]',
        f'[[key]]\naccess_key = "K"\nsecret_key = ["{MARK}"]',
        f'[[key]]\naccess_key = "K"\nsecret = "{MARK}"',
        f'[[backend]]\nname = "b"\nurl = "az://c?sv=1&sig={MARK}"',
        f'[[backend]]\nname = "b"\nurl = "s3://"\nsecrt = "{MARK}"',
        f'[[backend]]\nname = "b"\nurl = "s3://"\nsecret = ["{MARK}"]',
        f'[[backend]]\nname = "b"\nurl = "az://"\nconnection_string = "AcountKey={MARK}"',
        f'[[backend]]\nname = "b"\nurl = "az://"\nconnection_string = "{MARK}"',
        f'[[backend]]\nname = "b"\nurl = "s3://"\nuse_ssl = "{MARK}"\nsecret = "{MARK}',
    ],
)
@pytest.mark.parametrize("verb", ["serve", "doctor"])
def test_a_wrong_config_is_refused_without_its_secrets(
    verb: str, line: str, tmp_path: Path
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(line)
    done = subprocess.run(
        [str(BUILD / "penstock"), verb, "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={},
    )
    assert done.returncode != 0, done.stdout + done.stderr
    assert MARK not in done.stdout + done.stderr, done.stdout + done.stderr
