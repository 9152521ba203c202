"""`hf://` as httpfs serves it: files, listings, revisions, tokens, and a Hub that refuses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from harness import BUILD, connect, load_pypi, stats
from hub import READER, Hub, Repository, hub_behind_a_proxy, hub_of

LAKE = "hf://datasets/me/lake"
SECRET = f"CREATE SECRET hf (TYPE huggingface, TOKEN '{READER}')"
ROWS = 20_000


def made(place: Path, name: str, select: str) -> bytes:
    """The bytes of a file that DuckDB writes."""
    duckdb.sql(f"COPY ({select}) TO '{place}/{name}'")
    return (place / name).read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Of a repository: large ones in partitions, small ones, and an odd name."""
    place = tmp_path_factory.mktemp("hf")
    found = {
        f"data/year={year}/part-{part}.parquet": made(
            place, "x.parquet", f"SELECT i, {part} AS part FROM range({ROWS}) t(i)"
        )
        for year in (2024, 2025)
        for part in (0, 1)
    }
    found["small/a b%20c.csv"] = found["top.csv"] = b"i\n1\n2\n"
    return found


@pytest.fixture
def hub(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with a lake that all may read, and others."""
    revisions = {name: {"x.csv": name.encode()} for name in ("dev", "refs/pr/1")}
    part = "data/year=2024/part-0.parquet"
    revisions["refs/convert/parquet"] = {"default/0.parquet": files[part]}
    with hub_of(
        lake=Repository(dict(files), revisions),
        private=Repository(dict(files), is_private=True),
        private2=Repository(dict(files), is_private=True),
        gated=Repository(dict(files), is_gated=True),
        old=Repository(moved_to="datasets/me/lake"),
    ) as hub:
        hub.repositories |= {
            "models/me/bert": Repository({"config.json": b'{"layers": 12}'}),
            "spaces/me/app": Repository({"README.md": b"# An app"}),
        }
        monkeypatch.setenv("HF_ENDPOINT", hub.front.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database without secrets that gives up soon."""
    con = connect()
    con.execute("SET penstock_retry_base_ms = 1; SET penstock_request_deadline_ms = 2000")
    yield con
    con.close()


def one(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[object, ...]:
    """The only row."""
    row = con.execute(sql).fetchone()
    assert row
    return row


def test_files_are_read_as_httpfs_reads_them(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    whole = (ROWS, sum(range(ROWS)))
    for _ in range(2):
        url = f"{LAKE}/data/year=2024/part-0.parquet"
        assert one(db, f"SELECT count(*), sum(i) FROM '{url}'") == whole
    assert one(db, f"SELECT sum(i) FROM '{LAKE}/top.csv'") == (3,)
    # A name is written as it is, or encoded.
    for name in ("a b%2520c.csv", "a%20b%2520c.csv"):
        assert one(db, f"SELECT sum(i) FROM read_csv('{LAKE}/small/{name}')") == (3,)
    assert one(db, "SELECT layers FROM 'hf://models/me/bert/config.json'") == (12,)
    url = "hf://spaces/me/app/README.md"
    assert one(db, f"SELECT filename, size FROM read_text('{url}')") == (url, 8)


def test_a_listing_says_all_that_opening_needs(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    hub.page_max = 3
    for pattern in ("data/*/*.parquet", "**/*.parquet", "data/year=202[45]/part-?.parquet"):
        hub.asked()
        sql = f"SELECT count(*), sum(part), count(DISTINCT year) FROM '{LAKE}/{pattern}'"
        assert one(db, sql) == (4 * ROWS, 2 * ROWS, 2)
        asked = hub.asked()
        pages = [it for it in asked if it.startswith("GET /api/datasets/me/lake/tree/main")]
        assert len(pages) > 1, asked
        assert not [it for it in asked if it.startswith("HEAD")], asked
        assert len(asked) - len(pages) <= 4, "the way to each file is asked for once"
    names = db.execute(f"SELECT file FROM glob('{LAKE}/data/year=2025/*')").fetchall()
    assert names == [(f"{LAKE}/data/year=2025/part-{part}.parquet",) for part in (0, 1)]
    found = one(db, f"SELECT i, filename FROM read_csv('{LAKE}/small/*.csv', filename = true)")
    assert found == (1, f"{LAKE}/small/a b%2520c.csv")
    assert one(db, f"SELECT count(*) FROM read_parquet('{LAKE}/data')") == (4 * ROWS,)
    only = f"SELECT count(*) FROM read_parquet('{LAKE}/data/**', hive_partitioning = true)"
    assert one(db, f"{only} WHERE year = 2024") == (2 * ROWS,)
    with pytest.raises(duckdb.IOException, match="No files found"):
        db.execute(f"FROM '{LAKE}/nothing/*.parquet'")


def test_pages_are_as_long_as_the_setting_says(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    db.execute("SET hf_max_per_page = 1")
    assert one(db, f"SELECT count(*) FROM '{LAKE}/data/year=2024/*.parquet'") == (2 * ROWS,)
    assert [it[-8:] for it in hub.asked() if "tree" in it] == ["&limit=1", "cursor=1"]


@pytest.mark.parametrize(
    ("revision", "expected"),
    [("dev", "dev"), ("refs%2Fpr%2F1", "refs/pr/1"), ("refs/pr/1", "refs/pr/1")],
)
def test_revisions(db: duckdb.DuckDBPyConnection, hub: Hub, revision: str, expected: str) -> None:
    for name in ("x.csv", "*.csv"):
        url = f"{LAKE}@{revision}/{name}"
        found = one(db, f"SELECT content, filename FROM read_text('{url}')")
        assert found == (expected, f"{LAKE}@{revision}/x.csv")


def test_the_branch_of_parquet(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    for revision in ("~parquet", "refs%2Fconvert%2Fparquet"):
        assert one(db, f"SELECT count(*) FROM '{LAKE}@{revision}/**/*.parquet'") == (ROWS,)
    with pytest.raises(duckdb.HTTPException, match=r"404.*no such revision.*/datasets/me/lake"):
        db.execute(f"FROM '{LAKE}@none/x.csv'")


def test_a_token_goes_to_the_hub_alone(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    db.execute(
        f"CREATE SECRET hf (TYPE huggingface, TOKEN '{READER}', SCOPE '{LAKE[:-5]}/private')"
    )
    url = "hf://datasets/me/private/data/*/*.parquet"
    assert one(db, f"SELECT count(*) FROM '{url}'") == (4 * ROWS,)
    assert {ask.authorization for ask, _ in hub.front.seen} == {f"Bearer {READER}"}
    assert hub.back.seen
    assert {ask.authorization for ask, _ in hub.back.seen} == {None}
    # A repository whose name begins alike has none.
    hub.front.seen.clear()
    with pytest.raises(duckdb.HTTPException, match="'hf' for hf://datasets/me/private") as told:
        db.execute("FROM 'hf://datasets/me/private2/top.csv'")
    assert {ask.authorization for ask, _ in hub.front.seen} == {None}
    shown = db.execute("FROM penstock_requests()").fetchall()
    assert READER not in str(told.value) + str(shown)


def test_tokens_come_from_secrets_only(
    db: duckdb.DuckDBPyConnection, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "hf://datasets/me/private/top.csv"
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(duckdb.HTTPException, match="401"):
        db.execute(f"FROM '{url}'")
    db.execute("CREATE SECRET c (TYPE huggingface, PROVIDER credential_chain)")
    assert one(db, f"SELECT sum(i) FROM '{url}'") == (3,)
    db.execute("DROP SECRET c")
    # As in httpfs, secrets of TYPE http count where there is none of the Hub's.
    header = f"EXTRA_HTTP_HEADERS MAP {{'Authorization': 'Bearer {READER}'}}"
    for options in (f"BEARER_TOKEN '{READER}'", header):
        db.execute(f"CREATE SECRET h (TYPE http, {options})")
        assert one(db, f"SELECT sum(i) FROM '{url}'") == (3,)
        db.execute("DROP SECRET h")
    db.execute(f"{SECRET}; CREATE SECRET h (TYPE http, BEARER_TOKEN 'bogus')")
    assert one(db, f"SELECT sum(i) FROM '{url}'") == (3,)
    db.execute("DROP SECRET hf")
    with pytest.raises(duckdb.HTTPException, match="401"):
        db.execute(f"FROM '{url}'")


def test_a_refusal_says_what_to_do(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    cure = r"CREATE SECRET \(TYPE huggingface, TOKEN '...'\)"
    page = f"{hub.front.url}/datasets/me/gated"
    for name in ("top.csv", "data/*/*.parquet"):
        for repository in ("private", "nobody"):
            with pytest.raises(duckdb.HTTPException, match=f"401.*me/{repository}.*{cure}"):
                db.execute(f"FROM 'hf://datasets/me/{repository}/{name}'")
        with pytest.raises(duckdb.HTTPException, match=f"ask for access on {page}.*{cure}"):
            db.execute(f"FROM 'hf://datasets/me/gated/{name}'")
    db.execute(SECRET)
    with pytest.raises(duckdb.HTTPException, match=f"ask for access on {page}.*secret 'hf'"):
        db.execute("FROM 'hf://datasets/me/gated/top.csv'")
    with pytest.raises(duckdb.HTTPException, match=r"404.*repository does not exist"):
        db.execute("FROM 'hf://datasets/me/nobody/top.csv'")
    with pytest.raises(duckdb.HTTPException, match=r"404.*the object does not exist"):
        db.execute(f"FROM '{LAKE}/nothing.csv'")
    hub.repositories["datasets/me/gated"].lets_in = True
    assert one(db, "SELECT sum(i) FROM 'hf://datasets/me/gated/top.csv'") == (3,)
    db.execute("CREATE OR REPLACE SECRET hf (TYPE huggingface, TOKEN 'wrong')")
    with pytest.raises(duckdb.HTTPException, match=r"401.*Invalid credentials.*secret 'hf'"):
        db.execute(f"FROM '{LAKE}/top.csv'")


def test_a_renamed_repository_is_followed(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    hub.page_max = 2
    for name in ("data/year=2024/part-0.parquet", "data/year=2024/*.parquet"):
        assert one(db, f"SELECT max(i) FROM 'hf://datasets/me/old/{name}'") == (ROWS - 1,)
    assert one(db, "SELECT sum(i) FROM 'hf://datasets/me/old/top.csv'") == (3,)


def test_a_limit_is_waited_for_and_told(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    hub.refuses = 2
    assert one(db, f"SELECT count(*) FROM '{LAKE}/data/*/*.parquet'") == (4 * ROWS,)
    assert stats(db)["retries"] == 2
    hub.refuses, hub.wait_s = 1000, 60
    told = r"429.*in 60 s.*with a token: CREATE SECRET \(TYPE huggingface"
    for name in ("top.csv", "small/*.csv"):
        with pytest.raises(duckdb.HTTPException, match=told):
            db.execute(f"FROM '{LAKE}/{name}'")
    assert hub.refuses == 998, "nobody is asked again before the time that it said"


def test_a_signature_may_end_within_a_scan(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    db.execute("SET GLOBAL penstock_open_fetch_bytes = '16KiB'")
    lines = "".join(f"{i}\n" for i in range(300_000))
    hub.repositories["datasets/me/lake"].files["long.csv"] = f"i\n{lines}".encode()
    hub.ends_after = 1
    assert one(db, f"SELECT sum(i) FROM '{LAKE}/long.csv'") == (sum(range(300_000)),)
    assert 403 in {status for _, status in hub.back.seen}


def test_a_file_that_was_replaced_is_not_mixed(db: duckdb.DuckDBPyConnection, hub: Hub) -> None:
    db.execute("SET GLOBAL penstock_cache_validation = 'query'")
    lake = hub.repositories["datasets/me/lake"]
    for name in ("top.csv", "data/year=2024/part-0.parquet"):
        assert one(db, f"SELECT count(*) FROM '{LAKE}/{name}'")
    lake.files["data/year=2024/part-0.parquet"] = lake.files["data/year=2024/part-1.parquet"]
    lake.files["top.csv"] = b"i\n7\n"
    assert one(db, f"SELECT max(part) FROM '{LAKE}/data/year=2024/part-0.parquet'") == (1,)
    assert one(db, f"SELECT sum(i) FROM '{LAKE}/top.csv'") == (7,)


def test_what_the_hub_cannot_do_is_said(
    db: duckdb.DuckDBPyConnection, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(duckdb.NotImplementedException, match="can only be read"):
        db.execute(f"COPY (SELECT 1) TO '{LAKE}/w.csv'")
    form = (
        r"Failed to parse '{}'\. Please format url like: 'hf://datasets/my-username/.*Write hf://"
    )
    for url in ("hf://x.csv", "hf://datasets/x.csv", "hf://datasets/me/x.csv"):
        with pytest.raises(duckdb.IOException, match=form.format(url)):
            db.execute(f"FROM '{url}'")
    with pytest.raises(duckdb.IOException, match=r"start with 'hf://datasets'.*hf://models/"):
        db.execute("FROM 'hf://me/bert/config.json'")
    with pytest.raises(duckdb.InvalidInputException, match=r"`\.\.` in its path"):
        db.execute(f"FROM '{LAKE}/../../../x.csv'")
    assert hub.asked() == []
    with duckdb.connect(f"{tmp_path}/x.db") as other:
        other.execute("CREATE TABLE t AS SELECT 42 AS i")
    hub.repositories["datasets/me/lake"].files["x.db"] = (tmp_path / "x.db").read_bytes()
    db.execute(f"ATTACH '{LAKE}/x.db' AS x (READ_ONLY)")
    assert one(db, "FROM x.t") == (42,)


def test_the_command_line_reads_the_same(hub: Hub) -> None:
    def said(*words: str, **variables: str) -> str:
        command = [str(BUILD / "penstock"), *words]
        environment = os.environ | variables
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    names = [line[line.index("hf:") :] for line in said("ls", f"{LAKE}/small").splitlines()]
    assert names == [f"{LAKE}/small/a b%2520c.csv"]
    assert said("cat", names[0]) == "i\n1\n2\n"
    assert "size_bytes: 8\n" in said("stat", "hf://spaces/me/app/README.md")
    private = ("cat", "hf://datasets/me/private/top.csv")
    assert "Give -o token=" in said(*private, HF_TOKEN=READER)
    chain = ("-o", "provider=credential_chain")
    assert said(*private, *chain, HF_TOKEN=READER) == "i\n1\n2\n"


def test_httpfs_answers_the_same(files: dict[str, bytes], tmp_path: Path) -> None:
    lake = Repository(dict(files), {"refs/convert/parquet": dict(files)})
    private = Repository(dict(files), is_private=True)
    script = [
        f"SELECT count(*), sum(i) FROM '{LAKE}/data/year=2024/part-0.parquet'",
        f"SELECT year, sum(i) FROM '{LAKE}/data/**/*.parquet' GROUP BY 1 ORDER BY 1",
        f"SELECT file FROM glob('{LAKE}/data/*/part-1.parquet') ORDER BY 1",
        f"SELECT file FROM glob('{LAKE}/**') ORDER BY 1",
        f"SELECT DISTINCT filename FROM read_parquet('{LAKE}/data/year=202[5]/*') ORDER BY 1",
        f"SELECT size, filename FROM read_text('{LAKE}/t*.csv')",
        f"SELECT count(*), min(filename) FROM read_parquet('{LAKE}@~parquet/**/part-0.parquet')",
        "SELECT sum(i) FROM 'hf://datasets/me/private/top.csv'",
    ]
    # A percent sign in a name, httpfs does not encode.
    del lake.files["small/a b%20c.csv"]
    answers = []
    with hub_behind_a_proxy(tmp_path, lake=lake, private=private) as hub:
        for is_ours in (True, False):
            con = connect(load=is_ours)
            if not is_ours:
                load_pypi(con, "httpfs")
            con.execute(f"SET http_proxy = '{hub.front.url}'")
            con.execute(f"SET ca_cert_file = '{tmp_path}/ca.pem'")
            con.execute("SET enable_curl_server_cert_verification = false")
            con.execute(SECRET)
            answers.append([con.execute(sql).fetchall() for sql in script])
            con.close()
    assert answers[0] == answers[1]
