"""What a bare TCP stream brings over an emulated link: the loop that sends, and that which counts.

Links count frames with their headers, and so carry less of a file than their rate tells. A stream
that does nothing else shows what is left, in the same run and through the same emulation.
"""

from __future__ import annotations

import socket
import sys
import time

PIECE_BYTES = 1 << 18
# The first pieces lie in buffers along the way.
SKIPPED_BYTES = 1 << 20


def send(port: int, size_bytes: int) -> None:
    """Listens, and sends so many bytes to each who connects."""
    piece = bytes(PIECE_BYTES)
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                for _ in range(size_bytes // PIECE_BYTES):
                    connection.sendall(piece)


def receive(port: int) -> float:
    """Bytes a second that come, counted once the stream flows.

    Raises:
        RuntimeError: no more came than what is not counted.
    """
    buffer = bytearray(PIECE_BYTES)
    came, since, counted_from = 0, 0.0, 0
    with socket.create_connection(("127.0.0.1", port)) as client:
        while count := client.recv_into(buffer):
            came += count
            if not counted_from and came >= SKIPPED_BYTES:
                since, counted_from = time.perf_counter(), came
    if not counted_from or came == counted_from:
        raise RuntimeError(f"only {came} bytes came over the link")
    return (came - counted_from) / (time.perf_counter() - since)


def main() -> None:
    """Entry point of either end: ``send PORT BYTES`` or ``receive PORT``."""
    if sys.argv[1] == "send":
        send(int(sys.argv[2]), int(sys.argv[3]))
    else:
        print(receive(int(sys.argv[2])))


if __name__ == "__main__":
    main()
