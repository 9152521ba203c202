"""One replay: an embedded ClickHouse with one wide table on one disk, and queries one by one.

A process of its own, because ClickHouse is embedded once. Reads a job (JSON) from standard input,
writes one JSON object. Decides what the table and the queries are; compares nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import time
from typing import Any

from penstock_bench.processes import cpu_s

COLUMNS = 120
"""Besides the key: whole numbers, fractions, words and texts in turn."""
PARTS = 4
SEED = 20231120
_TYPES = ("UInt32", "Float64", "LowCardinality(String)", "String")
_VALUES = (
    "toUInt32(sipHash64(number, {n}) % 1000000)",
    "sipHash64(number, {n}) / 1e18",
    "concat('w', toString(sipHash64(number, {n}) % 50))",
    "hex(sipHash64(number, {n}))",
)


def create(disk: str) -> str:
    """The table: every column in files of its own."""
    columns = ", ".join(f"c{n} {_TYPES[n % 4]}" for n in range(COLUMNS))
    return (
        f"CREATE TABLE wide (id UInt64, day UInt16, {columns}) ENGINE = MergeTree ORDER BY id"
        f" SETTINGS min_bytes_for_wide_part = 0, {disk}"
    )


def insert(part: int, rows: int) -> str:
    """One part of it, the same on every run."""
    values = ", ".join(_VALUES[n % 4].format(n=n) for n in range(COLUMNS))
    return (
        f"INSERT INTO wide SELECT number, number % 365, {values}"
        f" FROM numbers({part * rows}, {rows}) SETTINGS max_insert_block_size = {rows},"
        f" min_insert_block_size_rows = {rows}, max_insert_threads = 1"
    )


def queries(count: int, rows: int) -> list[str]:
    """What a production log looks like: few columns of many; lookups, ranges and scans."""
    chance = random.Random(SEED)  # noqa: S311 - the same on every run is what is wanted
    made = []
    for number in range(count):
        ints, fractions, words, texts = (
            [f"c{n}" for n in chance.sample(range(kind, COLUMNS, 4), 3)] for kind in range(4)
        )
        begin = chance.randrange(rows)
        where = f"id BETWEEN {begin} AND {begin + rows // 50}"
        made.append(
            (
                f"SELECT {words[0]}, count(), sum({ints[0]}), round(avg({fractions[0]}), 6)"
                f" FROM wide GROUP BY 1 ORDER BY 1",
                f"SELECT count(), sum({ints[0]}), max({texts[0]}), min({texts[1]}) FROM wide"
                f" WHERE {where}",
                f"SELECT id, {ints[0]}, {ints[1]}, {texts[0]}, {words[1]} FROM wide"
                f" WHERE id = {begin}",
                f"SELECT day, uniqExact({words[2]}), max({ints[2]}) FROM wide"
                f" WHERE {ints[1]} < 20000 GROUP BY day ORDER BY day LIMIT 20",
            )[number % 4]
        )
    return made


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Loads, then asks."""
    from chdb import session

    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as directory:
        # The package is not typed.
        open_session: Any = session.Session
        con: Any = open_session(f"{directory}/db")
        con.query("CREATE DATABASE replay")
        con.query("USE replay")
        begin = time.perf_counter()
        con.query(create(job["disk"]))
        for part in range(PARTS):
            con.query(insert(part, job["rows"] // PARTS))
        loaded_s = time.perf_counter() - begin
        digest, times, cpu = hashlib.sha256(), [], cpu_s(job["server"])
        for query in queries(job["queries"], job["rows"]):
            begin = time.perf_counter()
            answer = con.query(query).bytes()
            times.append(time.perf_counter() - begin)
            digest.update(answer)
        queries_cpu_s = cpu_s(job["server"]) - cpu
        parts = con.query("SELECT count() FROM system.parts WHERE active AND table = 'wide'")
        con.query("DROP TABLE wide SYNC")
        return {
            "load_s": loaded_s,
            "queries_s": times,
            "queries_cpu_s": queries_cpu_s,
            "answers": digest.hexdigest(),
            "parts": int(parts.bytes()),
        }


if __name__ == "__main__":
    json.dump(work(json.load(sys.stdin)), sys.stdout)
