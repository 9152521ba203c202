"""Every lane with the gateway takes what content-addressed disks ask of a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock_bench.gateways import Lane

from gateway_tests.content_addressed import TOLD, answers
from gateway_tests.lanes import LANES, chosen, client

BUCKET = "content-addressed"
RUN = [lane for lane in chosen(tuple(TOLD)) if lane in TOLD]


@pytest.mark.parametrize("name", RUN)
def test_a_store_takes_every_step(name: str, scratch: Path) -> None:
    kind = LANES[name]
    with Lane(kind.gateway, kind.back_end, scratch / f"addressed-{name}") as lane:
        s3 = client(lane)
        s3.create_bucket(Bucket=BUCKET)
        assert answers(s3, BUCKET) == TOLD[name]
