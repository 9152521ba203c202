"""A name server that knows one name, as a cluster's does: all addresses of a service.

Decides nothing about the service; HAProxy asks it as it asks the one of containers.
"""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

HEADER = struct.Struct("!HHHHHH")
ANSWER = struct.Struct("!HHHIH4s")
KIND_A, CLASS_IN = 1, 1
ANSWERED = 0x8580  # a response with authority, recursion asked for and available, no error
NAME_OF_QUESTION = 0xC00C  # a pointer to it
SECONDS = 1


class NameServer:
    """Answers every question for addresses of version 4 with all of `addresses`."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = [socket.inet_aton(address) for address in addresses]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> NameServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An empty packet ends it.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            asked, peer = self._socket.recvfrom(4096)
            if not asked:
                return
            self._socket.sendto(self.answer(asked), peer)

    def answer(self, asked: bytes) -> bytes:
        """The answer to a question: its own words again, and the addresses if it is for those."""
        number = HEADER.unpack_from(asked)[0]
        end = asked.index(b"\0", HEADER.size) + 5
        kind = int.from_bytes(asked[end - 4 : end - 2], "big")
        rows = [
            ANSWER.pack(NAME_OF_QUESTION, KIND_A, CLASS_IN, SECONDS, 4, address)
            for address in self._addresses
            if kind == KIND_A
        ]
        head = HEADER.pack(number, ANSWERED, 1, len(rows), 0, 0)
        return head + asked[HEADER.size : end] + b"".join(rows)
