"""Paths that httpfs and azure take: a presigned database, a directory in place of its files."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path

import duckdb
import pytest
from harness import Fake, connect


class Presigned(http.server.SimpleHTTPRequestHandler):
    """Answers one signed URL, and refuses all others."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/signed.db":
            super().do_GET()
        else:
            self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("parameter", ["X-Amz-Signature", "sig", ""])
def test_the_log_beside_a_presigned_database_is_not_there(parameter: str, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "signed.db")) as local:
        local.execute("CREATE TABLE t AS SELECT 5 AS i")

    handler = functools.partial(Presigned, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            con = connect()
            url = f"http://127.0.0.1:{server.server_port}/signed.db"
            if parameter:
                con.execute(f"ATTACH '{url}?{parameter}=aGk%3D' AS db (READONLY)")
                assert con.execute("FROM db.t").fetchall() == [(5,)]
            else:
                with pytest.raises(duckdb.HTTPException, match="403"):
                    con.execute(f"ATTACH '{url}' AS db (READONLY)")
        finally:
            server.shutdown()
            thread.join()


def test_a_directory_stands_for_its_files(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("their/parts")
    con.execute(f"COPY (SELECT i, i % 3 AS p FROM range(30) t(i)) TO '{url}' (PARTITION_BY (p))")
    for name in (url, url + "/"):
        found = con.execute(f"SELECT count(*), sum(i) FROM read_csv('{name}')").fetchone()
        assert found == (30, 435)
    con.execute(f"COPY (SELECT 7 AS i) TO '{store.url('their/bare')}' (FORMAT csv)")
    assert con.execute(f"FROM read_csv('{store.url('their/bare')}')").fetchall() == [(7,)]
    with pytest.raises(duckdb.IOException, match="their/nothing"):
        con.execute(f"FROM read_csv('{store.url('their/nothing')}')")


def test_a_file_without_a_dot_in_its_name_costs_no_request_more(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    def requests(name: str) -> list[str]:
        con.execute("CALL penstock_clear_cache()")
        store.reset()
        assert con.execute(f"SELECT sum(i) FROM read_csv('{store.url(name)}')").fetchone() == (
            4950,
        )
        return [request["method"] for request in store.requests()]

    for name in ("their/plain", "their/plain.csv"):
        con.execute(f"COPY (FROM range(100) t(i)) TO '{store.url(name)}' (FORMAT csv)")
    assert requests("their/plain") == requests("their/plain.csv") == ["GET"]
