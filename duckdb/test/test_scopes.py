"""Which secret goes where: scopes end at a boundary, tokens stay at the hosts they are for."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from harness import Fake, connect, load_penstock, load_pypi, start_fake

KEY = "aHVudGVyMg=="
AZURE_ENVIRONMENT = {
    "AZURE_CLIENT_ID": "c",
    "AZURE_TENANT_ID": "t",
    "AZURE_FEDERATED_TOKEN_FILE": "/nowhere",
}


class Web(http.server.BaseHTTPRequestHandler):
    """Serves one small CSV under every name, and keeps who asked."""

    protocol_version = "HTTP/1.1"
    body = b"v\n7\n"
    seen: list[str]
    paths: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization", "nobody"))
        self.paths.append((self.path, self.seen[-1]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Server:
    """A web server, and what it has seen."""

    def __init__(self, body: bytes = Web.body) -> None:
        self.seen: list[str] = []
        self.paths: list[tuple[str, str]] = []
        handler = type("OneWeb", (Web,), {"seen": self.seen, "paths": self.paths, "body": body})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        """Ends the server."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def askers(self) -> set[str]:
        """Who asked since the last call."""
        found = set(self.seen)
        self.seen.clear()
        return found


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that takes any credentials."""
    running = Server()
    yield running
    running.stop()


def test_a_token_goes_to_no_neighbouring_host_or_port(server: Server) -> None:
    con = connect()
    port = str(server.port)
    con.execute("CREATE SECRET everywhere (TYPE http, BEARER_TOKEN 'wide', SCOPE 'http://')")
    for scope, asker in [
        (f"http://127.0.0.1:{port}", "near"),
        (f"HTTP://127.0.0.1:{port}/", "near"),
        (f"http://127.0.0.1:{port}/da", "near"),
        (f"http://127.0.0.1:{port[:-1]}", "wide"),
        ("http://127.0.0.1", "wide"),
        ("http://127.0.0", "wide"),
        ("http", "wide"),
        (f"https://127.0.0.1:{port}", "wide"),
        (f"http://127.0.0.1:{port}/data/", "wide"),
    ]:
        con.execute(
            f"CREATE OR REPLACE SECRET near (TYPE http, BEARER_TOKEN 'near', SCOPE '{scope}')"
        )
        con.execute("CALL penstock_clear_cache()")
        assert con.execute(f"FROM 'http://127.0.0.1:{port}/data.csv'").fetchall() == [(7,)]
        assert server.askers() == {f"Bearer {asker}"}, scope
    con.execute("DROP SECRET everywhere")
    con.execute("CALL penstock_clear_cache()")
    con.execute(f"FROM 'http://127.0.0.1:{port}/data.csv'").fetchall()
    assert server.askers() == {"nobody"}


@pytest.mark.parametrize("kind", ["s3", "r2", "gcs", "aws"])
def test_a_key_goes_to_no_neighbouring_bucket(kind: str, server: Server) -> None:
    scheme = {"r2": "r2", "gcs": "gs"}.get(kind, "s3")
    con = connect()

    def make(name: str, scope: str) -> None:
        con.execute(
            f"CREATE OR REPLACE SECRET {name} (TYPE {kind}, KEY_ID '{name}', SECRET 's', "
            f"ENDPOINT '127.0.0.1:{server.port}', URL_STYLE 'path', USE_SSL false, "
            f"REGION 'x', SCOPE '{scope}')"
        )

    make("wide", f"{scheme}://")
    for scope, bucket, asker in [
        ("trusted", "trusted", "near"),
        ("trusted/", "trusted", "near"),
        ("trusted/x", "trusted", "near"),
        ("trusted", "trusted-evil", "wide"),
        ("trusted", "trusted.evil", "wide"),
        ("trusted", "trusted2", "wide"),
        ("trust", "trusted", "wide"),
    ]:
        make("near", f"{scheme}://{scope}")
        con.execute("CALL penstock_clear_cache()")
        assert con.execute(f"FROM '{scheme}://{bucket}/x.csv'").fetchall() == [(7,)]
        askers = {asker.split("Credential=")[1].split("/")[0] for asker in server.askers()}
        assert askers == {asker}, (scope, bucket)


def test_what_is_fetched_ahead_has_the_secret_of_its_own_file(tmp_path: Path) -> None:
    con = connect()
    con.execute(f"COPY (SELECT 7 AS v FROM range(10)) TO '{tmp_path}/x.parquet'")
    server = Server((tmp_path / "x.parquet").read_bytes())
    try:
        for name, scope in [("wide", "s3://lake"), ("near", "s3://lake/a/")]:
            con.execute(
                f"CREATE SECRET {name} (TYPE s3, KEY_ID '{name}', SECRET 's', "
                f"ENDPOINT '127.0.0.1:{server.port}', URL_STYLE 'path', USE_SSL false, "
                f"REGION 'x', SCOPE '{scope}')"
            )
        files = [
            f"s3://lake/{'b' if number % 4 == 2 else 'a'}/{number}.parquet" for number in range(9)
        ]
        con.execute("SET threads = 1")
        assert con.execute("SELECT sum(v) FROM read_parquet(?)", [files]).fetchone() == (630,)
        for path, asker in server.paths:
            expected = "wide" if path.startswith("/lake/b/") else "near"
            assert f"Credential={expected}/" in asker, (path, asker)
        assert {path.split("/")[2] for path, _ in server.paths} == {"a", "b"}
    finally:
        server.stop()


def test_a_key_goes_to_no_neighbouring_container(server: Server) -> None:
    con = connect()

    def make(name: str, scope: str) -> None:
        endpoint = f"http://127.0.0.1:{server.port}/{name}"
        text = f"AccountName={name};AccountKey={KEY};BlobEndpoint={endpoint}"
        con.execute(
            f"CREATE OR REPLACE SECRET {name} (TYPE azure, CONNECTION_STRING '{text}', "
            f"SCOPE '{scope}')"
        )

    make("wide", "az://")
    for scope, container, asker in [
        ("az://data", "data", "near"),
        ("az://data/", "data", "near"),
        ("az://data", "data2", "wide"),
        ("az://data", "data-evil", "wide"),
    ]:
        make("near", scope)
        con.execute("CALL penstock_clear_cache()")
        with contextlib.suppress(duckdb.Error):  # no service of Azure answers so
            con.execute(f"FROM 'az://{container}/x.csv'")
        assert {asker.split(":")[0] for asker in server.askers()} == {f"SharedKey {asker}"}, scope


def test_of_equal_scopes_the_temporary_secret_and_then_the_nearer_type_counts(
    server: Server, tmp_path: Path
) -> None:
    con = connect(secret_directory=str(tmp_path))

    def make(what: str, name: str, kind: str) -> None:
        con.execute(
            f"CREATE {what} {name} (TYPE {kind}, KEY_ID '{name}', SECRET 's', "
            f"ENDPOINT '127.0.0.1:{server.port}', URL_STYLE 'path', USE_SSL false, "
            "REGION 'x', SCOPE 's3://lake')"
        )

    def asker() -> str:
        con.execute("CALL penstock_clear_cache()")
        con.execute("FROM 's3://lake/x.csv'").fetchall()
        (only,) = server.askers()
        return only.split("Credential=")[1].split("/")[0]

    make("PERSISTENT SECRET", "kept", "s3")
    assert asker() == "kept"
    make("SECRET", "google", "gcs")
    assert asker() == "google"
    make("SECRET", "amazon", "s3")
    assert asker() == "amazon"


@pytest.mark.parametrize(
    "secret",
    [
        "PROVIDER credential_chain, CHAIN 'workload_identity', ACCOUNT_NAME 'lake'",
        "PROVIDER credential_chain, ACCOUNT_NAME 'lake'",
        "PROVIDER credential_chain",
        "PROVIDER managed_identity",
        "PROVIDER access_token, ACCESS_TOKEN 'hunter2', ACCOUNT_NAME 'lake'",
        "PROVIDER service_principal, TENANT_ID 't', CLIENT_ID 'c', CLIENT_SECRET 'hunter2'",
    ],
)
def test_a_token_goes_to_no_host_that_only_the_url_names(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AZURE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    con = connect()
    con.execute(f"CREATE SECRET tokens (TYPE azure, {secret})")
    for url in [
        "abfss://data@evil.example/x.csv",
        "az://evil.example/data/x.csv",
        "azure://lake.blob.core.windows.net.evil.example/data/x.csv",
        "abfss://lake.blob.core.windows.net@evil.example/x.csv",
    ]:
        for statement in (f"FROM '{url}'", f"COPY (SELECT 1) TO '{url}'", f"FROM glob('{url}*')"):
            with pytest.raises(duckdb.PermissionException) as caught:
                con.execute(statement)
            text = str(caught.value)
            assert "is no host of an Azure storage account" in text, text
            assert "secret 'tokens'" in text, text
            assert "ENDPOINT 'https://" in text, text
            assert "hunter2" not in text, text
    assert "evil" not in str(con.execute("SELECT url FROM penstock_requests()").fetchall())
    if "lake" in secret:
        with pytest.raises(duckdb.PermissionException, match=r"of account `other`.*are of `lake`"):
            con.execute("FROM 'az://other.blob.core.windows.net/data/x.csv'")


def test_a_key_goes_to_no_endpoint_that_only_the_url_names(server: Server) -> None:
    con = connect()
    con.execute("CREATE SECRET mine (TYPE s3, KEY_ID 'k', SECRET 's', SESSION_TOKEN 'hunter2')")
    at = f"s3_endpoint=127.0.0.1:{server.port}&s3_use_ssl=false&s3_url_style=path"
    with pytest.raises(duckdb.PermissionException, match="which only the URL names") as caught:
        con.execute(f"FROM read_csv('s3://lake/x.csv?{at}')")
    assert f"ENDPOINT 'http://127.0.0.1:{server.port}'" in str(caught.value)
    assert server.askers() == set()
    own = f"{at}&s3_access_key_id=own&s3_secret_access_key=s&s3_region=x"
    assert con.execute(f"FROM read_csv('s3://lake/x.csv?{own}')").fetchall() == [(7,)]
    assert all("Credential=own/" in asker for asker in server.askers())
    con.execute("DROP SECRET mine")
    assert con.execute(f"FROM read_csv('s3://lake/x.csv?{at}')").fetchall() == [(7,)]
    assert server.askers() == {"nobody"}


@pytest.fixture
def public() -> Iterator[Fake]:
    """A service with buckets that anybody may read and write."""
    running = start_fake("s3", "--anonymous")
    yield running
    running.stop()


def settings(con: duckdb.DuckDBPyConnection, fake: Fake) -> None:
    """Leads S3 to a fake, without a secret."""
    con.execute(f"SET s3_endpoint = '{fake.address}'; SET s3_use_ssl = false")
    con.execute("SET s3_url_style = 'path'; SET s3_region = 'us-east-1'")


BAD_ENVIRONMENTS = {
    "foreign": {"AWS_ACCESS_KEY_ID": "AKIAFOREIGN", "AWS_SECRET_ACCESS_KEY": "x"},
    "wrong": {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "wrong"},
    "half": {"AWS_ACCESS_KEY_ID": "AKIAHALF"},
    "file": {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/token", "AWS_ROLE_ARN": "arn:x"},
}


@pytest.mark.parametrize("environment", sorted(BAD_ENVIRONMENTS))
def test_public_data_are_read_whatever_the_environment_has(
    environment: str, public: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    con = connect()
    settings(con, public)
    con.execute("COPY (SELECT 7 AS v) TO 's3://lake/x.csv'")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in BAD_ENVIRONMENTS[environment].items():
        monkeypatch.setenv(name, value)
    con = connect()
    settings(con, public)
    public.reset()
    assert con.execute("FROM 's3://lake/x.csv'").fetchall() == [(7,)]
    assert con.execute("SELECT count(*) FROM glob('s3://lake/*')").fetchone() == (1,)
    refused = [request["status"] for request in public.requests() if request["status"] != 200]
    assert len([status for status in refused if status == 403]) <= 1, "remembered for the bucket"
    # A write is never sent without a signature.
    # The store refuses it, or there is nothing to sign with.
    with pytest.raises((duckdb.HTTPException, duckdb.PermissionException)) as caught:
        con.execute("COPY (SELECT 8 AS v) TO 's3://lake/y.csv'")
    text = str(caught.value)
    assert next(iter(BAD_ENVIRONMENTS[environment])) in text or "environment" in text, text
    assert con.execute("SELECT count(*) FROM glob('s3://lake/y*')").fetchone() == (0,)


def test_a_secret_is_never_left_out(public: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    con = connect()
    settings(con, public)
    con.execute("COPY (SELECT 7 AS v) TO 's3://lake/x.csv'")
    con = connect()
    bad = public.secret.replace("KEY_ID 'test'", "KEY_ID 'AKIAOLD'")
    con.execute(f"CREATE SECRET old ({bad})")
    with pytest.raises(duckdb.HTTPException, match="KEY_ID of secret 'old'"):
        con.execute("FROM 's3://lake/x.csv'")
    # The same key in a setting is somebody's choice as well.
    con = connect()
    settings(con, public)
    con.execute("SET s3_access_key_id = 'AKIAOLD'; SET s3_secret_access_key = 'x'")
    with pytest.raises(duckdb.HTTPException, match="InvalidAccessKeyId"):
        con.execute("FROM 's3://lake/x.csv'")
    # In the environment it is not, unless somebody sets it as well.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    con = connect()
    settings(con, public)
    assert con.execute("FROM 's3://lake/x.csv'").fetchall() == [(7,)]
    con.execute("SET s3_access_key_id = 'AKIAOLD'; SET s3_secret_access_key = 'x'")
    con.execute("CALL penstock_clear_cache()")
    with pytest.raises(duckdb.HTTPException, match="InvalidAccessKeyId"):
        con.execute("FROM 's3://lake/x.csv'")


@pytest.mark.parametrize("first", ["penstock", "httpfs"])
def test_what_httpfs_copies_from_the_environment_nobody_has_named(
    first: str, public: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    con = connect()
    settings(con, public)
    con.execute("COPY (SELECT 7 AS v) TO 's3://lake/x.csv'")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    con = connect(load=first == "penstock")
    load_pypi(con, "httpfs")
    if first == "httpfs":
        load_penstock(con)
    settings(con, public)
    copied = con.execute("SELECT current_setting('s3_access_key_id')").fetchone()
    assert copied == ("AKIAOLD",)
    assert con.execute("FROM 's3://lake/x.csv'").fetchall() == [(7,)]


def test_private_data_name_the_variable_that_was_refused(
    fakes: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFOREIGN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    con = connect()
    settings(con, fakes["s3"])
    with pytest.raises(duckdb.HTTPException) as caught:
        con.execute("FROM 's3://lake/x.csv'")
    text = str(caught.value)
    for part in ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID", "without credentials", "CREATE SECRET"):
        assert part in text, text
    assert "hunter2" not in text
