"""Credentials that are found, renewed and missed, through the extension."""

from __future__ import annotations

import datetime
import http.server
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from harness import AZURE_ACCOUNT, Fake, connect, start_fake

HERE = Path(__file__).resolve().parent
# Credentials are renewed two minutes before they end: these are good for less than a request.
LIFE_S = 120.2


class Container(http.server.BaseHTTPRequestHandler):
    """A container's credential service."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LIFE_S)
        body = {
            "AccessKeyId": "test",
            "SecretAccessKey": "test",
            "Token": "fresh",
            "Expiration": end.isoformat().replace("+00:00", "Z"),
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def container() -> Iterator[tuple[str, type[Container]]]:
    """The URL of a service, and what counts its requests."""
    handler = type("OneContainer", (Container,), {"asked": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/creds", handler
    server.shutdown()
    thread.join()
    server.server_close()


LONG_QUERY = textwrap.dedent(
    """
    import sys, urllib.request
    sys.path.insert(0, {here!r})
    from harness import connect
    con = connect()
    con.execute({secret!r})
    files = ["s3://lake/%d.parquet" % number for number in range(6)]
    for file in files:
        con.execute(f"COPY (SELECT i FROM range(10000) t(i)) TO '{{file}}'")
    con.execute("CALL penstock_clear_cache(); SET threads = 1")
    urllib.request.urlopen({faults!r}, b"latency=400,method=GET")
    print("before", flush=True)
    sys.stdin.readline()
    # The files are opened one after the other, before the query runs.
    union = " UNION ALL ".join(f"SELECT sum(i) AS s FROM '{{file}}'" for file in files)
    print(con.execute(f"SELECT sum(s) FROM ({{union}})").fetchone()[0])
    """
)


def test_credentials_are_renewed_in_the_middle_of_a_query(
    container: tuple[str, type[Container]],
) -> None:
    url, service = container
    fake = start_fake("s3", "--session-token", "fresh")
    try:
        secret = (
            "CREATE SECRET s (TYPE s3, PROVIDER credential_chain, CHAIN 'instance', "
            f"ENDPOINT '{fake.address}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
        )
        faults = f"http://{fake.address}/_penstock/faults"
        code = LONG_QUERY.format(here=str(HERE), secret=secret, faults=faults)
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "AWS_CONTAINER_CREDENTIALS_FULL_URI": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline() == "before\n"
        before = service.asked
        told, _ = process.communicate("go\n", timeout=60)
        assert told == f"{6 * sum(range(10000))}\n"
        assert service.asked >= before + 3, "one query, several generations of credentials"
    finally:
        fake.stop()


def test_a_chain_that_finds_nothing_says_where_it_looked(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    con = connect()
    secret = fakes["s3"].secret.replace("KEY_ID 'test', SECRET 'test', ", "")
    con.execute(f"CREATE SECRET s ({secret}, PROVIDER credential_chain, CHAIN 'env;config')")
    with pytest.raises(duckdb.PermissionException) as caught:
        con.execute("FROM 's3://lake/x.csv'")
    text = str(caught.value)
    for part in ("s3://lake/x.csv", "environment: not configured", "profile:", "CREATE SECRET"):
        assert part in text, text


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_token_service_that_is_not_there_is_told_within_seconds(
    kind: str, fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    con = connect()
    if kind == "s3":
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/creds")
        secret = fakes["s3"].secret.replace("KEY_ID 'test', SECRET 'test', ", "")
        con.execute(f"CREATE SECRET s ({secret}, PROVIDER credential_chain, CHAIN 'instance')")
    else:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", "http://127.0.0.1:1")
        con.execute(
            "CREATE SECRET s (TYPE azure, PROVIDER service_principal, ACCOUNT_NAME 'acc', "
            "TENANT_ID 't', CLIENT_ID 'c', CLIENT_SECRET 'hunter2')"
        )
    url = fakes[kind].url("lake/x.csv")
    began = time.monotonic()
    with pytest.raises(duckdb.IOException) as caught:
        con.execute(f"FROM '{url}'")
    assert time.monotonic() - began < 15, "the default deadline is two minutes"
    text = str(caught.value)
    for part in (url, "credentials: ", "127.0.0.1", "gave up after 4 attempts"):
        assert part in text, text
    assert "hunter2" not in text


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_no_scope_that_covers_the_path_is_told(kind: str, fakes: dict[str, Fake]) -> None:
    fake = fakes[kind]
    fake.reset()
    con = connect()
    con.execute(f"CREATE SECRET mine ({fake.secret}, SCOPE '{fake.url('elsewhere')}')")
    if kind == "s3":
        con.execute(f"SET s3_endpoint = '{fake.address}'; SET s3_use_ssl = false")
        con.execute("SET s3_url_style = 'path'; SET s3_region = 'us-east-1'")
    url = fake.url("lake/x.csv")
    for statement in (f"FROM '{url}'", f"COPY (SELECT 1) TO '{url}'"):
        with pytest.raises(duckdb.Error) as caught:
            con.execute(statement)
        text = str(caught.value)
        assert url in text, text
        assert "no secret's scope covers this path" in text, text
        assert f"'mine' for {fake.url('elsewhere')}" in text, text
        assert "SCOPE" in text, text
        assert "AccountKey=E" not in text, text
    # In capitals the scheme is the same, for paths and for scopes.
    con.execute(f"CREATE OR REPLACE SECRET mine ({fake.secret}, SCOPE '{fake.url('lake')}')")
    scheme, rest = url.split("://")
    con.execute(f"COPY (SELECT 7 AS v) TO '{scheme.upper()}://{rest}'")
    assert con.execute(f"FROM '{url}'").fetchall() == [(7,)]


def test_no_secret_at_all_is_told() -> None:
    con = connect()
    con.execute("SET s3_endpoint = '127.0.0.1:1'; SET s3_use_ssl = false")
    con.execute("SET penstock_request_deadline_ms = 200")
    with pytest.raises(duckdb.Error, match="there is none of TYPE s3: make one with a SCOPE"):
        con.execute("FROM 's3://lake/x.csv'")


@pytest.mark.parametrize("keys", ["none", "environment"])
@pytest.mark.parametrize("status", [403, 404])
def test_a_missing_secret_is_told_only_where_it_can_be_the_cause(
    keys: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keys == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    bucket = start_fake("s3", "--anonymous")
    try:
        con = connect()
        con.execute(f"SET s3_endpoint = '{bucket.address}'; SET s3_use_ssl = false")
        con.execute("SET s3_url_style = 'path'; SET s3_region = 'us-east-1'")

        def told(url: str) -> bool:
            with pytest.raises(duckdb.Error) as caught:
                con.execute(f"FROM '{url}'")
            return "no secret's scope covers this path" in str(caught.value)

        con.execute("COPY (SELECT 1) TO 's3://lake/there.csv'")
        # The service tells the name, so it let us look.
        assert not told("s3://lake/not-there.csv")
        bucket.arm(f"status={status},code=AccessDenied" if status == 403 else "status=404,code=X")
        assert told("s3://lake/hidden.csv") == (keys == "none" or status == 403)
    finally:
        bucket.stop()


def test_many_secrets_are_not_all_listed() -> None:
    con = connect()
    for number in range(9):
        con.execute(
            f"CREATE SECRET s{number} (TYPE s3, KEY_ID 'k', SECRET 'hunter2', "
            f"ENDPOINT '127.0.0.1:1', SCOPE 's3://bucket{number}')"
        )
    con.execute("CREATE SECRET g (TYPE gcs, KEY_ID 'k', SECRET 'hunter2')")
    con.execute("SET s3_endpoint = '127.0.0.1:1'; SET s3_use_ssl = false")
    con.execute("SET penstock_request_deadline_ms = 200")
    with pytest.raises(duckdb.Error) as caught:
        con.execute("FROM 's3://lake/x.csv'")
    text = str(caught.value)
    assert "and 4 more" in text, text
    assert "'g'" not in text, text
    assert "hunter2" not in text, text


class Identity(http.server.BaseHTTPRequestHandler):
    """The identity service of a machine."""

    asked = 0
    life_s = 3600

    def do_GET(self) -> None:
        type(self).asked += 1
        body = {"access_token": "fresh", "expires_in": self.life_s}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Identity]]:
    """A service that this process asks for tokens, and what counts its requests."""
    handler = type("OneIdentity", (Identity,), {"asked": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{server.server_port}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", "header")
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def tokens_only() -> Iterator[Fake]:
    """An Azure that takes the token only, some way off."""
    fake = start_fake("azure", "--bearer-token", "fresh", "--latency-ms", "20")
    yield fake
    fake.stop()


def with_identity(fake: Fake, name: str, scope: str) -> str:
    """A secret whose tokens are the machine's."""
    return (
        f"CREATE SECRET {name} (TYPE azure, PROVIDER managed_identity, SCOPE '{scope}', "
        f"ACCOUNT_NAME '{AZURE_ACCOUNT}', ENDPOINT 'http://{fake.address}/{AZURE_ACCOUNT}')"
    )


def test_a_process_asks_for_one_token(identity: type[Identity], tokens_only: Fake) -> None:
    databases = [connect(), connect()]
    for con in databases:
        con.execute(with_identity(tokens_only, "a", "az://one"))
        con.execute(with_identity(tokens_only, "b", "az://two"))
    for file in range(12):
        for container in ("one", "two"):
            databases[0].execute(f"COPY (SELECT {file} AS i) TO 'az://{container}/{file}.parquet'")
    connections = [con.cursor() for con in databases for _ in range(2)]
    union = " UNION ALL ".join(f"FROM 'az://{container}/*.parquet'" for container in ("one", "two"))
    for con in [*connections, *databases]:
        assert con.execute(f"SELECT sum(i) FROM ({union})").fetchone() == (2 * sum(range(12)),)
        con.execute("CALL penstock_clear_cache()")
    for con in [*connections, *databases]:
        con.close()
    assert identity.asked == 1


def test_a_token_is_renewed_in_the_middle_of_a_query(
    identity: type[Identity], tokens_only: Fake
) -> None:
    # A token must be good for 20 s behind each request: one of 21 s is renewed after a second.
    identity.life_s = 21
    con = connect()
    con.execute(with_identity(tokens_only, "a", "az://"))
    for file in range(4):
        con.execute(f"COPY (SELECT {file} AS i) TO 'az://one/{file}.parquet'")
    con.execute("CALL penstock_clear_cache()")
    tokens_only.arm("latency=1100,method=GET")
    time.sleep(1.1)
    before = identity.asked
    assert con.execute("SELECT sum(i) FROM 'az://one/*.parquet'").fetchone() == (6,)
    con.close()
    # For the list, and then for the files.
    assert identity.asked >= before + 2
