"""The feature parity page, docs/clickhouse.md: what ClickHouse can do with the gateway.

Pure but for reading the page. Decides which features are shown in which table, and the page's
text.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_bench.config import ROOT

from gateway_tests import content_addressed
from gateway_tests.features import FEATURES, Feature
from gateway_tests.lanes import LANES, PARITY_LANES
from gateway_tests.object_features import OBJECT_FEATURES, PLAIN_FEATURES

PAGE = ROOT / "docs" / "clickhouse.md"

Cells = dict[tuple[str, str], dict[str, str]]
"""Group and lane to feature and what is said of it."""


@dataclass(frozen=True)
class Group:
    """Features that are shown in one table."""

    name: str
    title: str
    features: dict[str, Feature]


GROUPS = (
    Group("s3", "MergeTree on `disk(type = s3)`", FEATURES),
    Group("s3_plain_rewritable", "MergeTree on `disk(type = s3_plain_rewritable)`", FEATURES),
    Group("s3_plain", "Disks of type `s3_plain`", PLAIN_FEATURES),
    Group("function", "The table function `s3`", OBJECT_FEATURES),
)

HEAD = """\
# ClickHouse on `penstock serve`

Printed by `make parity`, which runs every line below with the engine itself (chdb, ClickHouse
{version}); a test compares. "yes" means: no error, the same answers as on a local MergeTree, and,
once the tables are dropped, not one of their objects left in the bucket, nor an upload that was
begun and not completed. "no, says ClickHouse" is the kind of disk, not the store: it is the same on
S3 without a gateway.

A DROP that meets a running merge can leave the part that the merge was writing: ClickHouse then
never asks for the deletion of those objects. The table of "BACKUP and RESTORE", which is dropped
with several parts in each partition, is therefore set not to merge.

A disk through the gateway is an S3 disk with the gateway's address and keys:

```sql
CREATE TABLE events (id UInt64, at DateTime, text String) ENGINE = MergeTree ORDER BY id
SETTINGS disk = disk(type = s3, endpoint = 'http://127.0.0.1:9000/lake/clickhouse/',
                     access_key_id = 'lake', secret_access_key = 'change-me', region = 'us-east-1');
```

What it costs: [requests, CPU and memory][figures] beside s3proxy and versitygw, and
[200 queries of ClickHouse][replay] with the gateway, without, and on ClickHouse's own Azure disk:
1 to 3 % more time with the store 30 ms away, 28 % less where the gateway has a cache in memory
(`cache_validation = "never"`).

[figures]: ../bench/results/2026-11-27-gateway/README.md
[replay]: ../bench/results/2026-11-27-gateway/README.md#with-a-cache-in-memory
"""


def render(cells: Cells, version: str) -> str:
    """The page."""
    parts = [HEAD.format(version=version)]
    for group in GROUPS:
        lanes = [lane for lane in PARITY_LANES if (group.name, lane) in cells]
        titles = [LANES[lane].title for lane in lanes]
        rows = [["feature", *titles], ["---"] * (len(lanes) + 1)]
        for name, feature in group.features.items():
            rows.append([feature.title, *(cells[group.name, lane][name] for lane in lanes)])
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        parts.append(f"## {group.title}\n\n{table}\n")
    parts.append(content_addressed.section({lane: kind.title for lane, kind in LANES.items()}))
    return "\n".join(parts)


def told() -> Cells:
    """What the page says now."""
    cells: Cells = {}
    # The last section is not ClickHouse's.
    sections = PAGE.read_text().split("\n## ")[1:-1]
    for group, section in zip(GROUPS, sections, strict=True):
        lines = [line for line in section.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        by_title = {kind.title: lane for lane, kind in LANES.items()}
        names = {feature.title: name for name, feature in group.features.items()}
        for column, title in enumerate(rows[0][1:], 1):
            said = {names[row[0]]: row[column] for row in rows[2:]}
            cells[group.name, by_title[title]] = said
    return cells
