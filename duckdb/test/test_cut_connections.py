"""Each kind of request cut in its middle, or answered by a proxy's page: tried again, or told."""

from __future__ import annotations

import duckdb
import pytest
from harness import AZURE_KEY, Fake, wait_until

LARGE = "SELECT hash(i) AS v FROM range(2000000) t(i)"
RIGHT = (60_000, sum(range(60_000)))

# What makes each request of a store happen.
REQUESTS = {
    "s3": {
        "GetObject": "read",
        "HeadObject": "read again",
        "ListObjectsV2": "glob",
        "PutObject": "write",
        "CreateMultipartUpload": "write large",
        "UploadPart": "write large",
        "CompleteMultipartUpload": "write large",
        "DeleteObjects": "overwrite",
    },
    "azure": {
        "GetBlob": "read",
        "GetBlobProperties": "read again",
        "ListBlobs": "glob",
        "PutBlob": "write",
        "PutBlock": "write large",
        "PutBlockList": "write large",
        "SubmitBatch": "overwrite",
    },
}
CASES = [
    pytest.param(store, operation, id=f"{store}-{operation}")
    for store, operations in REQUESTS.items()
    for operation in operations
]


def run(con: duckdb.DuckDBPyConnection, what: str, root: str) -> None:
    """Does it, and checks the answer."""
    if what == "read":
        query = f"SELECT count(*), sum(i) FROM '{root}/old/p=*/*.parquet'"
        assert con.execute(query).fetchone() == RIGHT
    elif what == "read again":
        con.execute("SET penstock_metadata_validity_ms = 0")
        for _ in range(2):
            query = f"SELECT count(*) FROM '{root}/old/p=1/data_0.parquet'"
            assert con.execute(query).fetchone() == (20_000,)
    elif what == "glob":
        assert len(con.execute(f"FROM glob('{root}/old/**')").fetchall()) == 3
    elif what.startswith("write"):
        query = LARGE if what.endswith("large") else "SELECT 8 AS v"
        con.execute(f"COPY ({query}) TO '{root}/new.parquet'")
        count = con.execute(f"SELECT count(*) FROM '{root}/new.parquet'").fetchone()
        assert count == ((2_000_000,) if what.endswith("large") else (1,))
    else:
        con.execute(copy_of_three(root, "OVERWRITE"))


def copy_of_three(root: str, option: str = "OVERWRITE_OR_IGNORE") -> str:
    query = "SELECT i, i % 3 AS p FROM range(60000) t(i)"
    return f"COPY ({query}) TO '{root}/old' (FORMAT parquet, PARTITION_BY (p), {option})"


def prepare(con: duckdb.DuckDBPyConnection, store: Fake, operation: str) -> str:
    store.reset()
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_retry_max_ms = 20")
    root = store.url(f"severed/{operation.lower()}")
    con.execute(copy_of_three(root))
    con.execute("CALL penstock_clear_cache()")
    return root


@pytest.mark.parametrize("fault", ["reset", "reset-upload=10", "lost-answer"])
@pytest.mark.parametrize(("kind", "operation"), CASES)
def test_cut_twice_it_is_tried_again(
    kind: str,
    operation: str,
    fault: str,
    con: duckdb.DuckDBPyConnection,
    fakes: dict[str, Fake],
) -> None:
    root = prepare(con, fakes[kind], f"{operation}-{fault.split('=')[0]}")
    fakes[kind].arm(f"{fault},op={operation},times=2")
    run(con, REQUESTS[kind][operation], root)
    fakes[kind].reset()


HEADS = [
    ("s3", "HeadObject", "reset"),
    ("s3", "HeadObject", "html"),
    ("azure", "GetBlobProperties", "reset"),
    ("azure", "GetBlobProperties", "html"),
]
"""Where no HEAD is answered by the store, and a GET tells the same."""


@pytest.mark.parametrize(("kind", "operation", "fault"), HEADS)
def test_where_head_is_cut_for_good_a_get_answers(
    kind: str,
    operation: str,
    fault: str,
    con: duckdb.DuckDBPyConnection,
    fakes: dict[str, Fake],
) -> None:
    root = prepare(con, fakes[kind], f"{operation}-{fault}-answered")
    fakes[kind].arm(f"{fault},op={operation}")
    run(con, REQUESTS[kind][operation], root)
    fakes[kind].reset()


@pytest.mark.parametrize(
    ("kind", "operation", "fault", "cause"),
    [
        pytest.param(*case.values, fault, cause, id=f"{case.id}-{fault}")
        for case in CASES
        for fault, cause in (("reset", "connection"), ("html", "proxy"))
        if (*case.values, fault) not in HEADS
    ],
)
def test_cut_for_good_it_is_told_and_leaves_nothing(
    kind: str,
    operation: str,
    fault: str,
    cause: str,
    con: duckdb.DuckDBPyConnection,
    fakes: dict[str, Fake],
) -> None:
    store, what = fakes[kind], REQUESTS[kind][operation]
    root = prepare(con, store, f"{operation}-{fault}-for-good")
    con.execute("SET penstock_request_deadline_ms = 400")
    store.arm(f"{fault},op={operation}")
    with pytest.raises(duckdb.Error) as caught:
        run(con, what, root)
    text = str(caught.value)
    assert root in text, text
    assert cause in text, text
    assert "gave up after" in text, text
    assert AZURE_KEY not in text
    store.reset()
    con.execute("CALL penstock_clear_cache()")
    assert not con.execute(f"FROM glob('{root}/new*')").fetchall()
    if what != "overwrite":
        run(con, "read", root)


@pytest.mark.parametrize("fault", ["reset", "lost-answer"])
def test_a_cut_abort_is_tried_again(
    fault: str, con: duckdb.DuckDBPyConnection, fakes: dict[str, Fake]
) -> None:
    store = fakes["s3"]
    root = prepare(con, store, f"Abort-{fault}")
    store.arm(f"status=403,op=CompleteMultipartUpload\n{fault},op=AbortMultipartUpload,times=2")
    with pytest.raises(duckdb.Error, match="refused"):
        run(con, "write large", root)
    name = "AbortMultipartUpload"
    wait_until(lambda: [r["operation"] for r in store.requests()].count(name) == 3, "three aborts")
    assert store.unfinished_uploads(root) == []
    store.reset()
