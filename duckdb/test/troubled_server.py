"""A server that does the same to every request, and quotes what it was sent where it can."""

from __future__ import annotations

import contextlib
import html
import http.server
import threading
from collections.abc import Iterator

MARK = "U0VDUkVU"
"""Stands in each secret. It is base64, as the key of an account is."""
TROUBLES = ["refuses", "misses", "quotes", "page", "redirects", "cuts"]


class _Handler(http.server.BaseHTTPRequestHandler):
    trouble = ""

    def answer(self) -> None:
        quoted = html.escape(f"{self.requestline} {self.headers}".replace("\n", " "))
        more: dict[str, str] = {}
        match self.trouble:
            case "cuts":
                self.close_connection = True
                return
            case "refuses":
                status, body = 403, ""
            case "misses":
                status, body = 404, ""
            case "quotes":
                status = 400
                body = f"<Error><Code>Odd</Code><Message>{quoted}</Message></Error>"
            case "page":
                status, body = 404, f"<html>{quoted}</html>"
                more["Content-Type"] = "text/html"
            case "redirects":
                status, body = 302, ""
                more["Location"] = f"http://127.0.0.1:1/y?sv=1&sig={MARK}"
            case _:
                status, body = 200, "a\n1\n"
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the base

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def troubled(trouble: str) -> Iterator[str]:
    """Host and port of a server that makes this trouble; of any other word, one that answers."""
    handler = type("OneHandler", (_Handler,), {"trouble": trouble})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
