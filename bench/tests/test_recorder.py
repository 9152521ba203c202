"""The recording proxy passes messages on unchanged and counts them per step."""

import asyncio
import http.server
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from penstock_bench import recorder


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers PUT with what came, GET in chunks, HEAD with a length but no body."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    out = tmp_path / "trace.jsonl"
    ports: list[int] = []
    up = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        with out.open("a") as sink:
            state = recorder.Recorder(origin.server_address[1], sink)
            server = await recorder.listen(state, 0)
            ports.append(server.sockets[0].getsockname()[1])
            loop, end = asyncio.get_running_loop(), asyncio.Event()
            stop.append(lambda: loop.call_soon_threadsafe(end.set))
            up.set()
            await end.wait()
            server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert up.wait(10)
    yield ports[0], out
    stop[0]()
    thread.join()
    origin.shutdown()
    origin.server_close()


def test_exchanges_are_passed_on_and_recorded(proxy: tuple[int, Path]) -> None:
    port, out = proxy
    urllib.request.urlopen(f"http://127.0.0.1:{port}/_mark/first").close()
    client = HTTPConnection("127.0.0.1", port)
    body = bytes(range(256)) * 4096
    client.request("PUT", "/a?comp=block&sig=secret", body)
    assert client.getresponse().read() == body
    client.request("HEAD", "/a")
    assert client.getresponse().read() == b""
    urllib.request.urlopen(f"http://127.0.0.1:{port}/_mark/second").close()
    client.request("GET", "/a", headers={"Range": "bytes=0-10"})
    assert client.getresponse().read() == b"hello world"
    client.close()
    urllib.request.urlopen(f"http://127.0.0.1:{port}/_mark/end").close()

    lines = [json.loads(line) for line in out.read_text().splitlines()]
    shown = [(line["step"], line["method"], line["status"], line["range"]) for line in lines]
    assert shown == [
        ("first", "PUT", 201, ""),
        ("first", "HEAD", 200, ""),
        ("second", "GET", 200, "bytes=0-10"),
    ]
    assert lines[0]["bytes_up"] > len(body) < lines[0]["bytes_down"]
    assert lines[1]["bytes_down"] < 1000
    assert {line["connection"] for line in lines} == {1}
    assert "secret" not in out.read_text()
