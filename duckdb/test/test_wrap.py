"""Wrap mode: reads of httpfs and azure split and run at once, and everything else as before."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import Fake, connect, load_penstock, load_pypi, start_fake, stats, wait_until
from wrapping import EXTENSION_OF, SYSTEMS, load_other, wrapped

MIB = 1 << 20


@pytest.fixture
def store(wrapped_store: Fake) -> Fake:
    """Each store that another extension can serve in turn."""
    return wrapped_store


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 4 MiB and a little, in which no two stretches are alike."""
    path = tmp_path_factory.mktemp("wrap") / "blob"
    count = 4 * MIB // 32 + 7
    path.write_bytes(b"".join(hashlib.sha256(str(i).encode()).digest() for i in range(count)))
    return path


def place(con: duckdb.DuckDBPyConnection, store: Fake, content: Path) -> str:
    """Writes that file to the store natively; its URL."""
    url = store.url("wrap/blob")
    store.reset()
    con.execute(f"COPY (SELECT content FROM read_blob('{content}')) TO '{url}' (FORMAT blob)")
    store.reset()
    return url


@pytest.fixture
def blob(con: duckdb.DuckDBPyConnection, store: Fake, content: Path) -> str:
    """The URL of that file on the store."""
    return place(con, store, content)


@pytest.fixture
def azure_blob(
    con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake], content: Path
) -> tuple[Fake, str]:
    """That file on Azure, where each further open file costs a request, and its URL."""
    return fakes["azure"], place(con, fakes["azure"], content)


def md5(con: duckdb.DuckDBPyConnection, url: str) -> Any:  # noqa: ANN401
    """The digest of what is read."""
    row = con.execute(f"SELECT md5(content) FROM read_blob('{url}')").fetchone()
    assert row
    return row[0]


def gets(store: Fake) -> list[dict[str, Any]]:
    """GET requests with a range, in the order of their ranges."""
    found = [it for it in store.requests() if it["method"] == "GET" and it.get("range")]
    return sorted(found, key=lambda it: int(it["range"].split("=")[1].split("-")[0]))


def overlap(requests: list[dict[str, Any]]) -> bool:
    """Whether there was a moment at which all of them were under way."""
    last_begin = max(it["start_us"] for it in requests)
    first_end = min(it["start_us"] + it["total_us"] for it in requests)
    return bool(last_begin < first_end)


def test_bytes_are_equal_and_requests_at_once(store: Fake, blob: str, content: Path) -> None:
    con = wrapped(store)
    # Until all four are there none gets its answer's first byte.
    store.arm("latency=400,method=GET")
    assert md5(con, blob) == hashlib.md5(content.read_bytes()).hexdigest()
    requests = gets(store)
    size = content.stat().st_size
    assert len(requests) == 4
    assert overlap(requests)
    assert sum(it["bytes_out"] for it in requests) == size
    assert (stats(con)["wrapped_reads_split"], stats(con)["wrapped_sub_reads"]) == (1, 4)
    assert stats(con)["requests"] == 0, "Penstock itself sent nothing"


def test_sequential_reads_are_split_too(store: Fake, con: duckdb.DuckDBPyConnection) -> None:
    url = store.url("wrap/rows.csv")
    con.execute(f"COPY (SELECT i, hash(i) AS h FROM range(400000) t(i)) TO '{url}'")
    other = wrapped(store)
    query = f"SELECT count(*), sum(i), min(h), max(h) FROM read_csv('{url}')"
    assert other.execute(query).fetchall() == con.execute(query).fetchall()
    assert stats(other)["wrapped_reads_split"] > 0


def test_files_of_helpers_cost_no_request_on_s3_and_a_head_on_azure(store: Fake, blob: str) -> None:
    con = wrapped(store)
    md5(con, blob)
    heads = sum(it["method"] == "HEAD" for it in store.requests())
    store.reset()
    con.execute("SET penstock_parallel_read_dedicated_handles = true")
    con.execute("SET enable_external_file_cache = false")
    md5(con, blob)
    more = sum(it["method"] == "HEAD" for it in store.requests()) - heads
    assert more == (2 if store.kind == "azure" else 0), "three files beside the reader's, not one"


def test_duckdbs_cache_is_used_as_before(store: Fake, con: duckdb.DuckDBPyConnection) -> None:
    url = store.url("wrap/cached.parquet")
    con.execute(f"COPY (SELECT hash(i) AS h FROM range(900000) t(i)) TO '{url}'")
    other = wrapped(store)
    # azure tells no ETag, so that DuckDB would doubt a file written just now
    other.execute("SET validate_external_file_cache = 'NO_VALIDATION'")
    query = f"SELECT bit_xor(h) FROM '{url}'"
    first = other.execute(query).fetchall()
    store.reset()
    assert other.execute(query).fetchall() == first
    assert gets(store) == []
    cached = other.execute("SELECT count(*) FROM duckdb_external_file_cache()").fetchone()
    assert cached and cached[0] > 0


@pytest.mark.parametrize("first", ["penstock", "other"])
def test_the_wrapped_system_wins_until_it_is_unwrapped(
    first: str, store: Fake, blob: str, content: Path
) -> None:
    name = EXTENSION_OF[store.kind]
    con = connect(load=False)
    load_penstock(con) if first == "penstock" else load_other(con, store)
    load_other(con, store) if first == "penstock" else load_penstock(con)
    con.execute(f"CREATE SECRET s ({store.secret}); SET enable_external_file_cache = false")
    digest = hashlib.md5(content.read_bytes()).hexdigest()

    def who_read() -> tuple[bool, bool]:
        before = stats(con)["requests"], stats(con)["wrapped_reads"]
        con.execute("CALL penstock_clear_cache()")
        assert md5(con, blob) == digest
        after = stats(con)["requests"], stats(con)["wrapped_reads"]
        return after[0] > before[0], after[1] > before[1]

    assert who_read() == (True, False)
    expected = SYSTEMS[store.kind]
    for result in ("wrapped", "was wrapped already"):
        rows = con.execute(f"CALL penstock_wrap('{name}')").fetchall()
        assert rows == [(system, result) for system in expected]
        assert who_read() == (False, True)
    rows = con.execute(f"CALL penstock_unwrap('{name.upper()}')").fetchall()
    assert rows == [(system, "unwrapped") for system in expected]
    assert who_read() == (True, False)
    con.execute(f"CALL penstock_wrap('{expected[0]}')")
    assert who_read() == (False, True)


def test_writing_globbing_and_attaching_go_through(store: Fake, tmp_path: Path) -> None:
    con = wrapped(store)
    root = store.url(f"wrap/{tmp_path.name}")
    con.execute(
        f"COPY (SELECT i, i % 3 AS p FROM range(9000) t(i)) TO '{root}/parts' (PARTITION_BY (p))"
    )
    con.execute(f"COPY (SELECT 1 AS i) TO '{root}/one.csv'")
    assert len(con.execute(f"FROM glob('{root}/**')").fetchall()) == 4
    total = con.execute(f"SELECT sum(i) FROM read_csv('{root}/parts/*/*.csv')").fetchone()
    assert total == (sum(range(9000)),)
    local = tmp_path / "local.db"
    con.execute(f"ATTACH '{local}' AS l; CREATE TABLE l.t AS SELECT 5 AS i; DETACH l")
    blob = f"(SELECT content FROM read_blob('{local}'))"
    con.execute(f"COPY {blob} TO '{root}/r.db' (FORMAT blob)")
    con.execute(f"ATTACH '{root}/r.db' AS r")
    assert con.execute("FROM r.t").fetchall() == [(5,)]
    assert stats(con)["requests"] == 0
    with pytest.raises(duckdb.Error, match="missing"):
        con.execute(f"FROM '{root}/missing.csv'").fetchall()


def test_a_statement_keeps_the_settings_it_began_with(store: Fake, blob: str) -> None:
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    store.arm("latency=300,method=GET")
    reader = con.cursor()
    thread = threading.Thread(target=lambda: md5(reader, blob))
    thread.start()
    con.execute("SET GLOBAL penstock_parallel_read_enabled = false")
    con.execute("SET GLOBAL penstock_parallel_read_io_threads = 1")
    thread.join()
    before = stats(con)["wrapped_reads_split"]
    md5(con, blob)
    assert stats(con)["wrapped_reads_split"] == before
    con.execute("RESET GLOBAL penstock_parallel_read_enabled")
    md5(con, blob)
    assert stats(con)["wrapped_reads_split"] == before + 1
    assert stats(con)["wrapped_sub_reads"] <= before * 4 + 2, "one thread helps one reader"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_failed_sub_read_is_the_statements_error(number: int, store: Fake, blob: str) -> None:
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    if store.kind == "s3":
        # A setting of httpfs, which is not there beside azure.
        con.execute("SET http_retries = 0")
    store.arm(f"status=403,method=GET,nth={number}")
    with pytest.raises(duckdb.Error, match=r"403|Forbidden|AuthenticationFailed|denied") as told:
        md5(con, blob)
    assert "sub-read" not in str(told.value), "the store's own words"
    # The others were seen to their ends, so the buffer was nobody's when it was freed.
    assert len([it for it in gets(store) if it["status"] == 206]) == 3
    store.reset()
    md5(con, blob)


# Azure's extension tells versions apart when it opens a file: the next test. What httpfs says of
# such an answer holds bytes of the object, which Python cannot show.
@pytest.mark.parametrize("wrapped_store", ["toy"], indirect=True)
def test_parts_of_two_versions_are_an_error(store: Fake, blob: str) -> None:
    before = md5(wrapped(store), blob)
    store.reset()
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    store.arm("replace,method=GET,nth=3")
    with pytest.raises(duckdb.Error, match=r"412|ETag|changed"):
        md5(con, blob)
    store.reset()
    assert md5(con, blob) != before


def test_an_object_replaced_before_a_helper_opened_it(azure_blob: tuple[Fake, str]) -> None:
    store, url = azure_blob
    before = md5(wrapped(store), url)
    # A connection that has learned nothing yet, so that it splits its first read.
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    con.execute("SET penstock_parallel_read_dedicated_handles = true")
    # Azure's extension tells versions apart by size and time, which the store has in seconds.
    written = int(time.time())
    wait_until(lambda: int(time.time()) > written, "the next second")
    store.reset()
    # The first two are of the name and of the reader's own file.
    store.arm("replace,method=HEAD,nth=3")
    with pytest.raises(duckdb.Error, match=r"object changed while it was read: .*wrap/blob"):
        md5(con, url)
    store.reset()
    # Neither is the database given up, nor anything kept of the file that could not be opened.
    assert md5(con, url) != before
    assert con.execute("SELECT 42").fetchone() == (42,)


def test_a_helper_that_cannot_open_its_file_fails_the_statement_only(
    azure_blob: tuple[Fake, str],
) -> None:
    store, url = azure_blob
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    before = md5(con, url)
    store.reset()
    store.arm("status=403,method=HEAD,nth=3-")
    with pytest.raises(duckdb.Error) as told:
        md5(con, url)
    assert "INTERNAL" not in str(told.value)
    store.reset()
    assert md5(con, url) == before


def test_helpers_open_their_files_at_once(azure_blob: tuple[Fake, str]) -> None:
    store, url = azure_blob
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    con.execute("SET penstock_parallel_read_dedicated_handles = true")
    store.arm("latency=400,method=HEAD,nth=3-")
    md5(con, url)
    heads = [it for it in store.requests() if it["method"] == "HEAD"]
    assert len(heads) == 5, "of the name, the reader's own and three helpers'"
    assert overlap(sorted(heads, key=lambda it: int(it["start_us"]))[2:])


def test_interruption(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    url = store.url("wrap/long.parquet")
    con.execute(
        f"COPY (SELECT hash(i) AS h FROM range(900000) t(i)) TO '{url}' (ROW_GROUP_SIZE 122880)"
    )
    other = wrapped(store)
    other.execute("SET threads = 1; SET penstock_parallel_read_min_bytes = 0")
    store.reset()
    store.arm("latency=200,method=GET,nth=3-")
    told = threading.Thread(target=lambda: interrupt_at(other, store, 3))
    told.start()
    with pytest.raises(duckdb.InterruptException):
        other.execute(f"SELECT bit_xor(h) FROM '{url}'").fetchall()
    told.join()
    assert len(gets(store)) < 12, "the rest was not read"


def interrupt_at(con: duckdb.DuckDBPyConnection, store: Fake, count: int) -> None:
    """Interrupts when the fake has answered so many requests."""
    for _ in range(2000):
        if len(store.requests()) >= count:
            con.interrupt()
            return
    raise AssertionError("the requests did not come")


def test_wrapping_beside_running_queries(store: Fake, blob: str, content: Path) -> None:
    con = wrapped(store)
    con.execute("SET enable_external_file_cache = false")
    name, digest = EXTENSION_OF[store.kind], hashlib.md5(content.read_bytes()).hexdigest()
    wrong: list[str] = []

    def read(reader: duckdb.DuckDBPyConnection) -> None:
        for _ in range(15):
            if md5(reader, blob) != digest:
                wrong.append("other bytes")

    def toggle(changer: duckdb.DuckDBPyConnection) -> None:
        for _ in range(150):
            with contextlib.suppress(duckdb.InvalidInputException):  # the other one was faster
                changer.execute(f"CALL penstock_unwrap('{name}')")
            changer.execute(f"CALL penstock_wrap('{name}')")

    threads = [threading.Thread(target=read, args=[con.cursor()]) for _ in range(3)]
    threads += [threading.Thread(target=toggle, args=[con.cursor()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    rows = con.execute(f"CALL penstock_wrap('{name}')").fetchall()
    assert rows == [(system, "was wrapped already") for system in SYSTEMS[store.kind]]


def helpers() -> set[str]:
    """Threads of this process that help readers; those of other tests may be ending."""
    found = set()
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            if (path / "comm").read_text().strip() == "penstock-read":
                found.add(path.name)
    return found


def test_closing_the_database_ends_the_helpers(store: Fake, blob: str) -> None:
    con = wrapped(store)
    before = helpers()
    store.arm("latency=200,method=GET")
    md5(con, blob)
    mine = helpers() - before
    assert len(mine) == 3
    con.close()
    # A thread that was joined stays in the list for a moment.
    wait_until(lambda: not helpers() & mine, "the end of the helpers")


@pytest.fixture(scope="module")
def web() -> Iterator[Fake]:
    """A server that lets everybody read by plain HTTP."""
    fake = start_fake("s3", "--anonymous")
    yield fake
    fake.stop()


def test_plain_http(web: Fake, content: Path) -> None:
    con = wrapped(web)
    blob = f"(SELECT content FROM read_blob('{content}'))"
    con.execute(f"COPY {blob} TO 's3://plain/blob' (FORMAT blob)")
    web.reset()
    digest = md5(con, f"http://{web.address}/plain/blob")
    assert digest == hashlib.md5(content.read_bytes()).hexdigest()
    assert len(gets(web)) == 1, "the first read of a file tells whether there are ranges"


def test_a_server_without_ranges(web: Fake, content: Path) -> None:
    con = wrapped(web)
    blob = f"(SELECT content FROM read_blob('{content}'))"
    con.execute(f"COPY {blob} TO 's3://plain/whole' (FORMAT blob)")
    web.reset()
    # Others wait for the one that downloads.
    web.arm("ignore-range,method=GET", "latency=50,method=GET")
    for _ in range(10):
        digest = md5(con, f"http://{web.address}/plain/whole")
        assert digest == hashlib.md5(content.read_bytes()).hexdigest()
    web.reset()


def test_the_cost_model_leaves_reads_of_a_near_store_whole(store: Fake, blob: str) -> None:
    con = wrapped(store, settings="SET enable_external_file_cache = false")
    for _ in range(5):
        md5(con, blob)
    assert stats(con)["wrapped_reads_split"] == 0


def test_the_preset_reads_in_two_parts(store: Fake, con: duckdb.DuckDBPyConnection) -> None:
    url = store.url("wrap/large")
    # more than one chunk of 16 MiB
    con.execute(f"COPY (SELECT repeat('x', 17000000) AS x) TO '{url}' (FORMAT csv, HEADER false)")
    other = wrapped(store)
    other.execute("SET penstock_parallel_read_recommended_preset_enabled = true")
    md5(other, url)
    assert stats(other)["wrapped_sub_reads"] == 2


def test_a_file_that_is_read_once_waits_for_no_further_connections(tmp_path: Path) -> None:
    far = start_fake("s3", "--latency-ms", "40", "--connect-latency-ms", "120")
    try:
        large = tmp_path / "large"
        large.write_bytes(bytes(40 * MIB))
        con = connect(load=False)
        load_pypi(con, "httpfs")
        load_penstock(con)
        con.execute(f"CREATE SECRET s ({far.secret})")
        url = place(con, far, large)
        con.execute("CALL penstock_wrap('httpfs')")
        assert md5(con, url) == hashlib.md5(large.read_bytes()).hexdigest()
        asked = [it["method"] for it in far.requests()]
        assert sorted(asked) == ["GET", "HEAD"], "what httpfs alone asks for"
        assert stats(con)["wrapped_reads_split"] == 0
    finally:
        far.stop()


@pytest.mark.parametrize("wrapped_store", ["s3", "toy"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM '{url}.parquet'",
        "SELECT sum(i) FROM '{url}.parquet' WHERE h > 5",
        "SELECT sum(i) FROM read_csv('{url}.csv')",
        "SELECT sum(i) FROM read_csv('{url}.csv.gz')",
        "SELECT sum(i) FROM read_json('{url}.json')",
        "SELECT sum(i) FROM read_json('{url}.json.zst')",
    ],
)
def test_reads_that_are_not_split_cost_what_they_cost_without(
    statement: str, store: Fake, con: duckdb.DuckDBPyConnection
) -> None:
    url, ending = store.url("wrap/same"), statement.split("{url}")[1].split("'")[0]
    options = {".csv.gz": "(COMPRESSION gzip)", ".json.zst": "(FORMAT json, COMPRESSION zstd)"}
    rows = "SELECT i, hash(i) AS h FROM range(200000) t(i)"
    con.execute(f"COPY ({rows}) TO '{url}{ending}' {options.get(ending, '')}")
    asked = []
    for wrap in (False, True):
        other = connect(load=False)
        load_other(other, store)
        if wrap:
            load_penstock(other)
            other.execute(f"CALL penstock_wrap('{EXTENSION_OF[store.kind]}')")
        if store.kind != "toy":
            other.execute(f"CREATE SECRET s ({store.secret})")
        other.execute("SET threads = 1")
        store.reset()
        other.execute(statement.format(url=url))
        asked.append(sorted((it["method"], it.get("range") or "") for it in store.requests()))
    assert asked[0], "nothing was asked"
    assert asked[0] == asked[1]
