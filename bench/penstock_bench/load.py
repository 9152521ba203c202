"""A load generator for HTTP servers: prepared requests over a fixed number of connections.

One thread and `epoll`; bodies are sent from and received into one buffer, so that the client takes
as little of the machine as it can. A request is signed once and sent as often as wanted, which S3
allows for fifteen minutes. Decides nothing about what is measured.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock_bench.gateways import Running

PIECE = 1 << 20
NOTHING = memoryview(b"")
IDLE_TIMEOUT_S = 60.0
_HEAD_END = b"\r\n\r\n"


class LoadError(Exception):
    """A request was not answered, or not as it should be."""


@dataclass(frozen=True)
class Prepared:
    """A request as it goes over the wire, and what must come back."""

    head: bytes
    body: memoryview
    status: int
    length: int
    """Bytes of the answer's body; -1 for any."""


class _Signer(S3SigV4Auth):  # type: ignore[misc]
    """Signs with the payload's digest that it is told."""

    def __init__(self, server: Running, payload: str) -> None:
        super().__init__(Credentials(server.access_key, server.secret_key), "s3", "us-east-1")
        self._payload = payload

    def payload(self, request: AWSRequest) -> str:
        """What stands in x-amz-content-sha256."""
        return self._payload


def prepared(
    server: Running,
    method: str,
    path: str,
    body: memoryview = NOTHING,
    *,
    headers: dict[str, str] | None = None,
    payload: str = "UNSIGNED-PAYLOAD",
    status: int = 200,
    length: int = -1,
    signed: bool = True,
) -> Prepared:
    """A request, signed once."""
    request = AWSRequest(method, server.url + path, headers=dict(headers or {}))
    if signed:
        _Signer(server, payload).add_auth(request)
    lines = [f"{method} {path} HTTP/1.1", f"host: {server.host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if body or method == "PUT":
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join([*lines, "", ""]).encode()
    return Prepared(head, body, status, length)


@dataclass
class Outcome:
    """What a run of requests took."""

    wall_s: float = 0.0
    client_cpu_s: float = 0.0
    bytes: int = 0
    """Of bodies, in the direction of the load."""
    latencies_s: list[float] = field(default_factory=list)

    def percentile_s(self, share: float) -> float:
        """A percentile of the latencies (nearest rank)."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Connection:
    """One connection: sends a request, receives its answer, tells when it is done."""

    def __init__(self, address: tuple[str, int], buffer: bytearray) -> None:
        self._address, self._buffer = address, buffer
        self.open()
        self.request: Prepared | None = None
        self.events = 0

    def open(self) -> None:
        """Connects."""
        self.socket = socket.create_connection(self._address, timeout=IDLE_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.is_last = False
        """Whether the server said that it closes after this answer."""

    def begin(self, request: Prepared) -> None:
        """Takes a request up."""
        self.request, self._unsent = request, deque([memoryview(request.head), request.body])
        self._received, self._head = 0, b""
        self._wanted: int | None = None
        self.begun = time.perf_counter()

    def send(self) -> bool:
        """Sends what the socket takes; true when all is sent."""
        try:
            while self._unsent:
                piece = self._unsent[0]
                sent = self.socket.send(piece[:PIECE]) if piece else 0
                if sent == len(piece):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = piece[sent:]
        except BlockingIOError:
            return False
        return True

    def receive(self) -> bool:
        """Receives what is there; true when the answer is whole."""
        while True:
            try:
                count = self.socket.recv_into(self._buffer)
            except BlockingIOError:
                return False
            if count == 0:
                raise LoadError(f"the server closed the connection: {self._head[:300]!r}")
            if self._wanted is None:
                self._take_head(bytes(self._buffer[:count]))
            else:
                self._received += count
            if self._wanted is not None and self._received >= self._wanted:
                return True

    def _take_head(self, piece: bytes) -> None:
        self._head += piece
        head, end, rest = self._head.partition(_HEAD_END)
        if not end:
            return
        assert self.request is not None
        status = int(head.split(b" ", 2)[1])
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields.get(b"content-length", b"0"))
        wrong_length = self.request.length not in (-1, length)
        if status != self.request.status or wrong_length or b"transfer-encoding" in fields:
            raise LoadError(f"not the answer that was expected: {self._head[:600]!r}")
        self.is_last = b"close" in fields.get(b"connection", b"")
        self._wanted, self._received = length, len(rest)

    @property
    def received(self) -> int:
        """Bytes of the answer's body."""
        return self._received


def run(server: Running, requests: Sequence[Prepared], count: int, connections: int) -> Outcome:
    """Sends `count` requests, round robin, each connection one at a time.

    Raises:
        LoadError: an answer was missing or wrong.
    """
    host, port = server.host.split(":")
    buffer = bytearray(PIECE)
    selector = selectors.DefaultSelector()
    outcome = Outcome()
    every = [_Connection((host, int(port)), buffer) for _ in range(min(connections, count))]
    begun, ended = 0, 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    try:
        for connection in every:
            connection.begin(requests[begun % len(requests)])
            begun += 1
            connection.events = selectors.EVENT_WRITE | selectors.EVENT_READ
            selector.register(connection.socket, connection.events, connection)
        while ended < count:
            ready = selector.select(IDLE_TIMEOUT_S)
            if not ready:
                raise LoadError(f"no answer within {IDLE_TIMEOUT_S:.0f} s")
            for key, mask in ready:
                connection = key.data
                if mask & selectors.EVENT_WRITE and connection.send():
                    selector.modify(connection.socket, selectors.EVENT_READ, connection)
                if not (mask & selectors.EVENT_READ and connection.receive()):
                    continue
                ended += 1
                outcome.latencies_s.append(time.perf_counter() - connection.begun)
                outcome.bytes += len(connection.request.body) or connection.received
                if begun < count:
                    _next(selector, connection, requests[begun % len(requests)])
                    begun += 1
                else:
                    selector.unregister(connection.socket)
    finally:
        selector.close()
        for connection in every:
            connection.socket.close()
    outcome.wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    outcome.client_cpu_s = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return outcome


def _next(selector: selectors.BaseSelector, connection: _Connection, request: Prepared) -> None:
    """Takes the next request up on a connection; most go out at once."""
    if connection.is_last:
        selector.unregister(connection.socket)
        connection.socket.close()
        connection.open()
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    connection.begin(request)
    if not connection.send():
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        selector.modify(connection.socket, both, connection)
