"""Libraries that read and write tables: pyarrow, polars, DuckDB's httpfs, s3fs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from penstock_bench.gateways import Running

from gateway_tests import lanes
from gateway_tests.programs import installed, run

ROWS = 200_000


def bucket(lane: Running, name: str) -> str:
    """A bucket of the test's own."""
    lanes.client(lane).create_bucket(Bucket=name)
    return name


PYARROW = """
import sys, pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds, pyarrow.parquet as pq
from pyarrow import fs
s3 = fs.S3FileSystem(endpoint_override=sys.argv[1], scheme="http", region="us-east-1")
table = pa.table({"id": range(ROWS), "group": [i % 5 for i in range(ROWS)],
                  "noise": pa.array([(i * 2654435761) % 2**32 for i in range(ROWS)], pa.uint64())})
pq.write_table(table, "with-pyarrow/one.parquet", filesystem=s3, compression="none")
assert pq.read_table("with-pyarrow/one.parquet", filesystem=s3) == table
ds.write_dataset(table, "with-pyarrow/many", filesystem=s3, format="parquet",
                 partitioning=["group"], partitioning_flavor="hive")
many = ds.dataset("with-pyarrow/many", filesystem=s3, partitioning="hive")
assert many.count_rows() == ROWS
assert many.to_table(filter=pc.field("group") == 3).num_rows == ROWS // 5
with s3.open_output_stream("with-pyarrow/stream", metadata={"Content-Type": "x/y"}) as out:
    for _ in range(12):
        out.write(bytes(1 << 20))
assert s3.get_file_info("with-pyarrow/stream").size == 12 << 20
s3.create_dir("with-pyarrow/empty")
assert s3.get_file_info("with-pyarrow/empty").type == fs.FileType.Directory
s3.copy_file("with-pyarrow/one.parquet", "with-pyarrow/two.parquet")
s3.move("with-pyarrow/two.parquet", "with-pyarrow/three.parquet")
names = [one.base_name for one in s3.get_file_info(fs.FileSelector("with-pyarrow"))]
assert sorted(names) == ["empty", "many", "one.parquet", "stream", "three.parquet"], names
s3.delete_dir_contents("with-pyarrow")
"""


def test_pyarrow(lane: Running, tmp_path: Path) -> None:
    bucket(lane, "with-pyarrow")
    script = PYARROW.replace("ROWS", str(ROWS))
    run(lane, tmp_path, [sys.executable, "-c", script, lane.host])
    assert lanes.keys(lane, "with-pyarrow") == []


POLARS = """
import sys, polars as pl
options = {"aws_endpoint_url": sys.argv[1], "aws_allow_http": "true", "aws_region": "us-east-1"}
frame = pl.DataFrame({"id": range(ROWS)}).with_columns(
    group=pl.col("id") % 5, noise=pl.col("id").hash(7).cast(pl.String))
frame.write_parquet("s3://with-polars/one.parquet", storage_options=options,
                    compression="uncompressed")
scan = pl.scan_parquet("s3://with-polars/one.parquet", storage_options=options)
assert scan.collect().equals(frame)
assert scan.filter(pl.col("group") == 2).select(pl.len()).collect().item() == ROWS // 5
ones = scan.filter(pl.col("group") == 1)
ones.sink_parquet("s3://with-polars/sunk.parquet", storage_options=options)
both = pl.scan_parquet("s3://with-polars/*.parquet", storage_options=options)
assert both.select(pl.len()).collect().item() == ROWS + ROWS // 5
"""


def test_polars(lane: Running, tmp_path: Path) -> None:
    bucket(lane, "with-polars")
    script = POLARS.replace("ROWS", str(ROWS))
    run(lane, tmp_path, [sys.executable, "-c", script, lane.url])


HTTPFS = """
import sys, duckdb
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
con.execute(f"LOAD '{sys.argv[2]}'")
con.execute(f"CREATE SECRET s (TYPE s3, KEY_ID 'test', SECRET 'test', ENDPOINT '{sys.argv[1]}',"
            " URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')")
con.execute("CREATE TABLE t AS SELECT i AS id, i % 5 AS part, hash(i) % 1000000007 AS noise"
            " FROM range(500000) r(i)")
answer = "SELECT count(*), sum(id), bit_xor(noise) FROM "
expected = con.execute(answer + "t").fetchall()
def check(where):
    assert con.execute(answer + where).fetchall() == expected, where
con.execute("COPY t TO 's3://with-httpfs/one.parquet' (FORMAT parquet, COMPRESSION uncompressed)")
check("'s3://with-httpfs/one.parquet'")
con.execute("COPY t TO 's3://with-httpfs/many' (FORMAT parquet, PARTITION_BY (part))")
check("read_parquet('s3://with-httpfs/many/*/*.parquet', hive_partitioning = true)")
check("read_parquet('s3://with-httpfs/many/**', hive_partitioning = true)")
con.execute("COPY t TO 's3://with-httpfs/one.csv.gz' (FORMAT csv)")
check("'s3://with-httpfs/one.csv.gz'")
con.execute("COPY (SELECT 1) TO 's3://with-httpfs/one.parquet' (FORMAT parquet)")
assert con.execute("FROM 's3://with-httpfs/one.parquet'").fetchall() == [(1,)]
assert len(con.execute("FROM glob('s3://with-httpfs/**')").fetchall()) == 7
"""


def test_duckdb_httpfs(lane: Running, tmp_path: Path) -> None:
    bucket(lane, "with-httpfs")
    spec = importlib.util.find_spec("duckdb_extension_httpfs")
    assert spec and spec.origin
    extension = next(Path(spec.origin).parent.glob("extensions/v1.5.5/httpfs.duckdb_extension"))
    run(lane, tmp_path, [sys.executable, "-c", HTTPFS, lane.host, extension])


S3FS = """
import os, s3fs, sys
fs = s3fs.S3FileSystem(endpoint_url=sys.argv[1], key="test", secret="test")
fs.mkdir("with-s3fs")
body = os.urandom(12 << 20)
with fs.open("with-s3fs/dir/large", "wb", block_size=5 << 20) as file:
    file.write(body)
fs.pipe("with-s3fs/dir/small", b"0123456789")
assert fs.cat_file("with-s3fs/dir/small", start=2, end=5) == b"234"
with fs.open("with-s3fs/dir/large") as file:
    file.seek(6 << 20)
    assert file.read(1000) == body[6 << 20:][:1000]
assert fs.cat("with-s3fs/dir/large") == body
assert sorted(fs.find("with-s3fs")) == ["with-s3fs/dir/large", "with-s3fs/dir/small"]
assert fs.info("with-s3fs/dir/large")["size"] == 12 << 20
assert fs.isdir("with-s3fs/dir") and not fs.exists("with-s3fs/none")
assert fs.glob("with-s3fs/*/sm*") == ["with-s3fs/dir/small"]
fs.copy("with-s3fs/dir/large", "with-s3fs/copied")
fs.mv("with-s3fs/copied", "with-s3fs/moved")
fs.touch("with-s3fs/empty")
assert fs.size("with-s3fs/empty") == 0 and not fs.exists("with-s3fs/copied")
try:
    fs.pipe_file("with-s3fs/empty", b"x", mode="create")
except OSError:
    pass
else:
    raise AssertionError("an exclusive create replaced an object")
fs.setxattr("with-s3fs/empty", copy_kwargs={}, owner="me")
assert fs.metadata("with-s3fs/empty", refresh=True) == {"owner": "me"}
fs.rm("with-s3fs", recursive=True)
assert not fs.exists("with-s3fs")
"""


def test_s3fs(lane: Running, tmp_path: Path) -> None:
    run(lane, tmp_path, [installed("s3fs"), "-c", S3FS, lane.url])
