"""What the tests of deploy/ share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/penstock"
REFERENCE = (ROOT / "docs/reference.md").read_text()


def documents(text: str) -> list[Any]:
    return [found for found in yaml.safe_load_all(text) if found is not None]


def metric_names() -> set[str]:
    """From the printed table, which a test holds to the code."""
    table = REFERENCE.split("## Metrics of the server")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def setting_names() -> set[str]:
    table = REFERENCE.split("## Settings")[1] + REFERENCE.split("## Settings of the server")[1]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def check_workload(found: dict[str, Any]) -> None:
    """Ports, probes, volumes, selectors and rights of the pods."""
    deployment = found["Deployment"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"]
    for chooser in (deployment["selector"]["matchLabels"], found["Service"]["spec"]["selector"]):
        assert chooser.items() <= labels.items()
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == found["Deployment"]["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("readiness", "liveness")]
    assert [probe["path"] for probe in probes] == ["/readyz", "/healthz"]
    assert {probe["port"] for probe in probes} <= ports
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= ports
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert pod["spec"]["enableServiceLinks"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert found["ConfigMap"]["data"]["penstock.toml"]
