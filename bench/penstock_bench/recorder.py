"""A recording proxy: passes HTTP/1.1 through and writes one JSON line per request.

It stands between a client and a store and tells what was asked, when, on which connection, and how
many bytes went either way. ``GET /_mark/NAME`` begins a step and is answered by the proxy itself.
Runs through it give counts and traces, never times to compare: it costs some 0.2 ms a request.

usage: python -m penstock_bench.recorder LISTEN_PORT UPSTREAM_PORT OUTPUT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

HEAD_LIMIT = 1 << 20
CHUNK = 1 << 18


@dataclass
class Head:
    """The first line and the headers of a message."""

    first: str
    headers: dict[str, str]

    @staticmethod
    def parse(raw: bytes) -> Head:
        """From the bytes up to and with the empty line."""
        lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
        return Head(lines[0], {name.strip().lower(): value.strip() for name, value in pairs})

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.first.split(" ", 2)[1])

    def body(self, *, of_answer: bool, method: str) -> int | None:
        """Length of the body; -1 for chunked; None for until the connection closes."""
        if of_answer and (method == "HEAD" or self.status in (204, 304)):
            return 0
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return -1
        if "content-length" in self.headers:
            return int(self.headers["content-length"])
        return None if of_answer else 0


@dataclass
class Exchange:
    """One request on its way."""

    step: str
    method: str
    target: str
    range: str
    begin_s: float
    bytes_up: int


@dataclass
class Recorder:
    """The shared state of all connections of the proxy."""

    upstream_port: int
    out: TextIO
    started: float = field(default_factory=time.monotonic)
    step: str = ""
    connections: int = 0
    in_flight: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Nothing is in flight at first."""
        self.idle.set()

    def begin(self) -> None:
        """A request is on its way."""
        self.in_flight += 1
        self.idle.clear()

    def end(self) -> None:
        """A request is written down, or will never be answered."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self.idle.set()

    def write(self, exchange: Exchange, status: int, bytes_down: int, connection: int) -> None:
        """One finished request."""
        line = {
            "step": exchange.step,
            "begin_s": round(exchange.begin_s - self.started, 6),
            "end_s": round(time.monotonic() - self.started, 6),
            "connection": connection,
            "method": exchange.method,
            "target": exchange.target.split("sig=")[0],
            "range": exchange.range,
            "status": status,
            "bytes_up": exchange.bytes_up,
            "bytes_down": bytes_down,
        }
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()


async def copy_body(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int | None
) -> int:
    """Passes a body on; gives its size on the wire."""
    if length == -1:
        return await _copy_chunked(source, sink)
    copied = 0
    while length is None or copied < length:
        piece = await source.read(CHUNK if length is None else min(CHUNK, length - copied))
        if not piece:
            if length is None:
                break
            raise ConnectionError("the body ended early")
        sink.write(piece)
        await sink.drain()
        copied += len(piece)
    return copied


async def _copy_chunked(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> int:
    total = 0
    while True:
        line = await source.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        data = await source.readexactly(size + 2)
        sink.write(line + data)
        await sink.drain()
        total += len(line) + len(data)
        if size == 0:
            return total


async def _requests(
    recorder: Recorder,
    reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
    pending: deque[Exchange],
    begun: bytes,
) -> None:
    """Passes requests on; ``begun`` is what was already read of the first one."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            raw = begun + await reader.readuntil(b"\r\n\r\n")
            begun = b""
            head = Head.parse(raw)
            method, target, _ = head.first.split(" ", 2)
            asked = head.headers.get("range") or head.headers.get("x-ms-range", "")
            exchange = Exchange(recorder.step, method, target, asked, time.monotonic(), len(raw))
            pending.append(exchange)
            recorder.begin()
            upstream.write(raw)
            await upstream.drain()
            length = head.body(of_answer=False, method=method)
            exchange.bytes_up += await copy_body(reader, upstream, length)


async def _answers(
    recorder: Recorder,
    upstream: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    pending: deque[Exchange],
    connection: int,
) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            raw = await upstream.readuntil(b"\r\n\r\n")
            head = Head.parse(raw)
            writer.write(raw)
            await writer.drain()
            if head.status == 100:
                continue
            exchange = pending[0]
            length = head.body(of_answer=True, method=exchange.method)
            size = len(raw) + await copy_body(upstream, writer, length)
            recorder.write(pending.popleft(), head.status, size, connection)
            recorder.end()
    while pending:
        pending.popleft()
        recorder.end()


async def _mark(recorder: Recorder, head: bytes, writer: asyncio.StreamWriter) -> None:
    # What the client has seen end may still have to be written down.
    await recorder.idle.wait()
    recorder.step = head.decode("latin-1").split(" ")[1].removeprefix("/_mark/")
    writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def _serve(
    recorder: Recorder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        first = await reader.readuntil(b" ")
        rest = await reader.readuntil(b" ")
        if rest.startswith(b"/_mark/"):
            await _mark(recorder, first + rest, writer)
            return
        recorder.connections += 1
        number = recorder.connections
        up_reader, up_writer = await asyncio.open_connection(
            "127.0.0.1", recorder.upstream_port, limit=HEAD_LIMIT
        )
        pending: deque[Exchange] = deque()
        answers = asyncio.create_task(_answers(recorder, up_reader, writer, pending, number))
        await _requests(recorder, reader, up_writer, pending, first + rest)
        up_writer.close()
        await answers
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def listen(recorder: Recorder, port: int) -> asyncio.Server:
    """Starts to listen on a port of the loopback (0: any)."""
    return await asyncio.start_server(
        lambda reader, writer: _serve(recorder, reader, writer),
        "127.0.0.1",
        port,
        limit=HEAD_LIMIT,
    )


async def serve(listen_port: int, upstream_port: int, output: Path) -> None:
    """Runs until it is ended."""
    with output.open("a") as out:
        server = await listen(Recorder(upstream_port, out), listen_port)
        async with server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
