"""Names and objects at the edges: brackets, no bytes, roots, and what is told of them."""

from __future__ import annotations

import datetime

import duckdb
import pytest
from harness import Fake, connect


def test_an_object_without_bytes_is_read_cold(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("odd/empty.csv")
    con.execute(f"COPY (SELECT 1 AS a WHERE false) TO '{url}' (HEADER false)")
    con.execute("CALL penstock_clear_cache()")
    assert con.execute(f"SELECT size, content FROM read_blob('{url}')").fetchall() == [(0, b"")]


def test_the_time_of_an_object_just_written_is_known(
    con: duckdb.DuckDBPyConnection, store: Fake
) -> None:
    url = store.url("odd/time.txt")
    con.execute(f"COPY (SELECT 1 AS a) TO '{url}' (FORMAT csv)")
    text = "SELECT epoch(last_modified)::BIGINT FROM read_text(?)"
    own = con.execute(text, [url]).fetchone()
    con.execute("CALL penstock_clear_cache()")
    told = con.execute(text, [url]).fetchone()
    assert own and told
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert abs(own[0] - told[0]) <= 2 and abs(own[0] - now) < 60


def test_brackets_in_a_name(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("odd/br[a]c.parquet")
    con.execute(f"COPY (SELECT 7 AS a) TO '{url}'")
    assert con.execute("SELECT file FROM glob(?)", [store.url("odd/br*")]).fetchall() == [(url,)]
    assert con.execute(f"FROM '{url}'").fetchall() == [(7,)]


def test_a_container_is_no_blob_and_a_pattern_is_no_container(fakes: dict[str, Fake]) -> None:
    con = connect()
    con.execute(f"CREATE SECRET ({fakes['azure'].secret})")
    with pytest.raises(duckdb.Error, match=r"names a container, not a blob.*az://container/name"):
        con.execute("COPY (SELECT 1) TO 'az://lonely' (FORMAT csv)")
    with pytest.raises(duckdb.Error, match="names a container that cannot be"):
        con.execute("FROM glob('az://*')")


def test_an_endpoint_that_is_no_url_is_named() -> None:
    con = connect()
    con.execute(
        "CREATE SECRET (TYPE s3, KEY_ID 'k', SECRET 's', ENDPOINT 'http://127.0.0.1:1/x y')"
    )
    with pytest.raises(duckdb.Error, match=r"`http://127.0.0.1:1/x y` is no endpoint"):
        con.execute("FROM 's3://lake/x.csv'")


def test_a_negative_number_is_refused_by_the_settings_name() -> None:
    con = connect()
    with pytest.raises(duckdb.Error, match=r"io_threads.*takes a whole number, not `-1`"):
        con.execute("SET penstock_io_threads = -1")
