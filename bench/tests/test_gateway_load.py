"""The load generator against a server that answers by the book, and the tables made of its rows."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from penstock_bench import gateway_report, load
from penstock_bench.gateways import GatewayError, Lane, Running

STORED: dict[str, bytes] = {}


class Handler(BaseHTTPRequestHandler):
    """Keeps what is put, gives it or a range of it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_PUT(self) -> None:
        assert "AWS4-HMAC-SHA256" in self.headers["Authorization"]
        STORED[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"")

    def do_GET(self) -> None:
        body = STORED.get(self.path)
        if body is None:
            self._answer(404, b"none")
        elif self.headers["Range"]:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            self._answer(206, body[int(first) : int(last) + 1])
        else:
            self._answer(200, body)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if self.path.endswith("last"):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Running]:
    STORED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield Running(f"http://127.0.0.1:{http.server_port}", 0, Path())
        http.shutdown()


def test_puts_and_gets_go_round_over_their_connections(server: Running) -> None:
    body = memoryview(bytes(range(256)) * 20_000)
    puts = [load.prepared(server, "PUT", f"/b/k{number}", body) for number in range(3)]
    put = load.run(server, puts, 10, 4)
    assert (put.bytes, len(put.latencies_s)) == (10 * len(body), 10)
    assert {f"/b/k{number}": bytes(body) for number in range(3)} == STORED
    got = load.run(server, [load.prepared(server, "GET", "/b/k1", length=len(body))], 7, 2)
    assert got.bytes == 7 * len(body)
    assert 0 < got.percentile_s(0.5) <= got.percentile_s(0.99) <= got.wall_s
    headers = {"Range": "bytes=5-14"}
    part = load.prepared(server, "GET", "/b/k1", headers=headers, status=206, length=10)
    assert load.run(server, [part], 3, 1).bytes == 30


def test_a_connection_that_the_server_closes_is_opened_again(server: Running) -> None:
    put = load.prepared(server, "PUT", "/b/last", memoryview(b"12345"))
    assert load.run(server, [put], 6, 2).bytes == 30


@pytest.mark.parametrize(("path", "length"), [("/b/none", -1), ("/b/k", 99)])
def test_another_answer_than_expected_ends_the_run(server: Running, path: str, length: int) -> None:
    load.run(server, [load.prepared(server, "PUT", "/b/k", memoryview(b"12345"))], 1, 1)
    with pytest.raises(load.LoadError, match="not the answer that was expected"):
        load.run(server, [load.prepared(server, "GET", path, length=length)], 1, 1)


def row(peer: str, cpu_s: float, p50_s: float) -> dict[str, object]:
    """A record with one step and the same asked of the back end."""
    step = {"name": "range", "wall_s": 2.0, "requests": 10, "bytes": 4_000_000, "p99_s": 0.02}
    direct = step | {"name": "range_direct", "p50_s": 0.001}
    gateway = {"gateway_cpu_s": cpu_s, "peak_rss_bytes": 5_000_000, "p50_s": p50_s}
    return {"store": "s3-fake", "peer": peer, "run": 0, "steps": [step | gateway, direct]}


def test_the_table_tells_medians_and_what_a_gateway_adds() -> None:
    records = [row("penstock", cpu_s, 0.0015) for cpu_s in (0.1, 0.2, 9.0)]
    failed = {"store": "s3-fake", "peer": "s3proxy", "run": 1, "steps": [], "error": "it ended"}
    text = gateway_report.text([*records, failed])
    line = next(line for line in text.splitlines() if line.startswith("range GET"))
    assert line.split()[-10:-5] == ["2", "20", "1.50", "20.00", "5"]
    assert "penstock adds to a range GET: p50 0.50 ms, p99 0.00 ms" in text
    assert "failed: s3-fake s3proxy run 2: it ended" in text


def test_unknown_gateways_and_back_ends_are_named(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="no gateway minio; there are: penstock"):
        Lane("minio", "directory", tmp_path)
    with pytest.raises(GatewayError, match="no back end tape; there are: directory"):
        Lane("penstock", "tape", tmp_path)


def test_the_bare_loop_refuses_back_ends_that_want_signatures(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="bare signs nothing, which versitygw asks for"):
        Lane("bare", "versitygw", tmp_path).__enter__()


def test_the_bare_loop_is_let_into_azurite_by_a_sas(tmp_path: Path) -> None:
    def asked(url: str, body: bytes | None = None) -> bytes:
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(url, data=body, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    with Lane("bare", "azurite", tmp_path) as server:
        asked(f"{server.url}/bench", b"")
        asked(f"{server.url}/bench/key", b"what was put")
        assert asked(f"{server.url}/bench/key") == b"what was put"
