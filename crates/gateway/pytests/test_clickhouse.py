"""ClickHouse on every lane, and the page that tells of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import chdb
import pytest
from penstock_bench.gateways import Lane

from gateway_tests.clickhouse import REFUSED, WORKS, every_cell, left_on
from gateway_tests.lanes import LANES, PARITY_LANES, chosen, client
from gateway_tests.parity import GROUPS, PAGE, Cells, render, told
from gateway_tests.places import DISK_TYPES, S3Place, configuration

RUN = [lane for lane in chosen(PARITY_LANES) if lane in PARITY_LANES]
EVERY = [
    pytest.param(lane, group.name, feature, id=f"{lane}-{group.name}-{feature}")
    for lane in RUN
    for group in GROUPS
    for feature in group.features
]


@pytest.fixture(scope="module")
def cells(scratch: Path) -> Cells:
    return every_cell(RUN, scratch / "clickhouse")


@pytest.mark.parametrize(("lane_name", "group", "feature"), EVERY)
def test_feature(cells: Cells, lane_name: str, group: str, feature: str) -> None:
    cell = cells[group, lane_name][feature]
    # The whole of a wrong answer is worth reading.
    if cell not in (WORKS, REFUSED):
        pytest.fail(cell)
    assert cell == told()[group, lane_name][feature]


def test_the_page_is_as_it_is_printed() -> None:
    said = told()
    assert render(said, chdb.engine_version) == PAGE.read_text()
    assert {lane for _, lane in said} == set(PARITY_LANES)


def test_what_clickhouse_refuses_it_refuses_without_a_gateway_too() -> None:
    said = told()
    for group in GROUPS:
        for lane in PARITY_LANES:
            assert said[group.name, lane] == said[group.name, "s3"], (group.name, lane)


@pytest.mark.parametrize("disk_type", DISK_TYPES)
def test_tables_move_to_a_disk_of_the_kind_that_is_told_of(disk_type: str) -> None:
    place = S3Place("http://nowhere", "key", "secret", "bucket", "/tmp", disk_type)
    policy = ET.fromstring(configuration(place, "/tmp"))
    assert policy.findtext("storage_configuration/disks/cold/type") == disk_type


@pytest.mark.parametrize("name", RUN)
def test_what_nobody_completed_is_seen(name: str, scratch: Path) -> None:
    kind = LANES[name]
    with Lane(kind.gateway, kind.back_end, scratch / f"left-{name}") as lane:
        place = S3Place(lane.url, lane.access_key, lane.secret_key, "left", str(scratch))
        s3 = client(lane)
        for bucket in (place.bucket, place.backups):
            s3.create_bucket(Bucket=bucket)
        begun = {"Bucket": place.bucket, "Key": "objects/half"}
        upload = s3.create_multipart_upload(**begun)["UploadId"]
        s3.upload_part(**begun, UploadId=upload, PartNumber=1, Body=b"part")
        s3.put_object(Bucket=place.bucket, Key="objects/one", Body=b"a feature's own")
        assert left_on(lane, place, timeout_s=0) == ["objects/half (not completed)"]
        s3.abort_multipart_upload(**begun, UploadId=upload)
        s3.put_object(Bucket=place.bucket, Key="cold/part", Body=b"of a table")
        assert left_on(lane, place, timeout_s=0) == ["cold/part"]
