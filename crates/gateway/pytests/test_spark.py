"""Spark through Hadoop's S3A: the magic committer, partitions, directories, renames."""

from __future__ import annotations

import json
from pathlib import Path

from penstock_bench.gateways import Running

from gateway_tests import lanes
from gateway_tests.programs import installed, run

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.multipart.size": "5M",
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.retry.limit": "1",
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    ),
}
SCRIPT = """
import glob, json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
jars = ",".join(sorted(glob.glob(sys.argv[2] + "/*.jar")))
spark = builder.config("spark.jars", jars).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.range(0, 300000, numPartitions=3)
frame = frame.selectExpr("id", "id % 3 AS part", "sha2(cast(id as string), 256) AS text")
def check(back):
    row = back.selectExpr("count(*)", "sum(id)").collect()[0]
    assert (row[0], row[1]) == (300000, sum(range(300000))), row
frame.write.parquet("s3a://with-spark/one")
check(spark.read.parquet("s3a://with-spark/one"))
for _ in range(2):
    frame.write.partitionBy("part").mode("overwrite").parquet("s3a://with-spark/parts")
check(spark.read.parquet("s3a://with-spark/parts"))
assert spark.read.parquet("s3a://with-spark/parts").where("part = 2").count() == 100000
frame.coalesce(1).write.csv("s3a://with-spark/csv")
assert spark.read.csv("s3a://with-spark/csv").count() == 300000
path = spark._jvm.org.apache.hadoop.fs.Path
root = path("s3a://with-spark/")
fs = root.getFileSystem(spark._jsc.hadoopConfiguration())
assert fs.mkdirs(path(root, "empty/dir")) and fs.getFileStatus(path(root, "empty")).isDirectory()
assert fs.rename(path(root, "one"), path(root, "renamed"))
check(spark.read.parquet("s3a://with-spark/renamed"))
assert fs.delete(path(root, "parts"), True) and not fs.exists(path(root, "parts"))
names = sorted(one.getPath().getName() for one in fs.listStatus(root))
assert names == ["csv", "empty", "renamed"], names
spark.stop()
"""


def test_spark(lane: Running, tmp_path: Path) -> None:
    client = lanes.client(lane)
    client.create_bucket(Bucket="with-spark")
    python, jars = installed("spark").splitlines()
    settings = SETTINGS | {
        "spark.hadoop.fs.s3a.endpoint": lane.url,
        "spark.hadoop.fs.s3a.access.key": lane.access_key,
        "spark.hadoop.fs.s3a.secret.key": lane.secret_key,
    }
    run(lane, tmp_path, [python, "-c", SCRIPT, json.dumps(settings), jars])
    assert "Uploads" not in client.list_multipart_uploads(Bucket="with-spark")
