"""The files in deploy/: they parse, and name what exists. The chart has tests of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
import yaml

from gateway_tests.manifests import (
    CHART,
    DEPLOY,
    REFERENCE,
    ROOT,
    check_workload,
    documents,
    metric_names,
    setting_names,
)


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "grafana/penstock.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    known = metric_names()
    asked: set[str] = set()
    for query in queries:
        for name in re.findall(r"\b(?:penstock|process)_\w+", query):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in known, f"{name} in {query}"
            asked.add(base)
    assert len(queries) > 20
    # What no panel shows nobody looks at, but for when the process began.
    assert known - asked == {"penstock_connections_total", "process_start_time_seconds"}


def test_labels_of_the_dashboard_are_those_of_the_metrics() -> None:
    table = REFERENCE.split("## Metrics of the server")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([\w, ]*?) ?\|", table, re.MULTILINE)
    labels = {label for _, cell in rows for label in cell.split(", ") if label}
    dashboard = json.loads((DEPLOY / "grafana/penstock.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert set(group.split(", ")) <= labels | {"le"}, target["expr"]


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes/penstock.yaml"])
def test_manifests_parse_and_their_settings_exist(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert documents(text)
    for variable in re.findall(r"\bPENSTOCK_([A-Z0-9_]+)", text):
        assert variable.lower() in setting_names(), variable


def test_the_balancer_of_compose_is_believed_and_tells_clients() -> None:
    (compose,) = documents((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    address = services["haproxy"]["networks"]["default"]["ipv4_address"]
    assert services["penstock"]["environment"]["PENSTOCK_TRUSTED_PROXIES"] == address
    (pool,) = compose["networks"]["default"]["ipam"]["config"]
    subnet, given_out = IPv4Network(pool["subnet"]), IPv4Network(pool["ip_range"])
    assert IPv4Address(address) in subnet and given_out.subnet_of(subnet)
    # Nobody else is given it.
    assert IPv4Address(address) not in given_out
    haproxy = (DEPLOY / "compose/haproxy.cfg").read_text()
    assert re.search(r"^\s*option forwardfor$", haproxy, re.MULTILINE)


def test_images_have_no_registry() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text()
        for image in re.findall(r"^\s*(?:image:|FROM)\s+\"?([\w./:-]+)", text, re.MULTILINE):
            host = image.split("/")[0]
            assert "/" not in image or not re.search(r"[.:]", host), f"{path}: {image}"


IMAGE_BYTES_MAX = 40_000_000

# What the Secret of the chart's defaults holds.
CHART_SECRET = {
    "LAKE_SECRET_KEY": "a secret of some length",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=lake;AccountKey=bGFrZQ==",
}


def configs() -> dict[str, tuple[str, dict[str, str]]]:
    """Each config file in deploy/, and the variables that stand beside it."""
    manifests = {
        row["kind"]: row for row in documents((DEPLOY / "kubernetes/penstock.yaml").read_text())
    }
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    (compose,) = documents((DEPLOY / "compose.yaml").read_text())
    return {
        "kubernetes": (
            manifests["ConfigMap"]["data"]["penstock.toml"],
            {row["name"]: row["value"] for row in container["env"]},
        ),
        "chart": (yaml.safe_load((CHART / "values.yaml").read_text())["config"], CHART_SECRET),
        "compose": (
            (DEPLOY / "compose/penstock.toml").read_text(),
            compose["services"]["penstock"]["environment"],
        ),
        "Debian": ((DEPLOY / "debian/penstock.toml").read_text(), CHART_SECRET),
    }


def start(text: str, variables: dict[str, str], directory: Path) -> tuple[str, str]:
    """What the gateway says with a config, until it serves or gives up: on stdout and on stderr.

    It asks no back end at its start. Its secrets are in files of their own.
    """
    (directory / "lake").write_text("a secret of some length\n")
    config = directory / "penstock.toml"
    for place in ("/etc/penstock/keys", "/var/lib/penstock"):
        text = text.replace(place, str(directory))
    config.write_text(text)
    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    with subprocess.Popen(
        [ROOT / "build/penstock", "serve", "--config", config, *listen],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **variables},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.readline()
        # With nothing on stdout it has ended by itself.
        process.kill()
        return said, process.stderr.read()


@pytest.mark.parametrize("name", configs())
def test_configs_in_the_files_are_configs(name: str, tmp_path: Path) -> None:
    """Each is tried by the program itself, and so is each with a slip of the pen."""
    text, variables = configs()[name]
    assert tomllib.loads(text)["backend"][0]["dynamic"] is True
    said, complaint = start(text, variables, tmp_path)
    assert said.startswith("penstock: serving the config file's buckets as S3 on "), complaint
    for right, wrong in (("dynamic = ", "dynamik = "), ("access_key = ", "acces_key = ")):
        assert text.count(right) == 1
        said, complaint = start(text.replace(right, wrong), variables, tmp_path)
        assert said == "" and f"unknown key `{wrong.split()[0]}`" in complaint, complaint


def test_a_service_by_the_name_of_the_program_does_not_keep_it_from_starting(
    tmp_path: Path,
) -> None:
    """Kubernetes tells of it in variables that begin as settings do, where a pod lets it."""
    text, variables = configs()["kubernetes"]
    links = {
        "SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "9000", "SERVICE_PORT_S3": "9000",
        "PORT": "tcp://10.0.0.1:9000", "PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "PORT_9000_TCP_PROTO": "tcp", "PORT_9000_TCP_PORT": "9000",
        "PORT_9000_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    told = {f"PENSTOCK_{name}": value for name, value in links.items()}
    said, complaint = start(text, {**variables, **told}, tmp_path)
    assert said.startswith("penstock: serving"), complaint


def test_the_image_is_built_from_what_is_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    ignored = {line for line in lines if line and not line.startswith("#")}
    assert {".git", "build", "target"} <= ignored
    # Podman would read that one instead, and Docker would not.
    assert not (ROOT / ".containerignore").exists()
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    members = [path for name in manifest["workspace"]["members"] for path in ROOT.glob(name)]
    # The profile by which release.sh builds, and the list by which the binary is laid out.
    profile = next((ROOT / "crates/cli").glob("rustc-*.profdata"))
    steps = [ROOT / "scripts/release.sh", DEPLOY / "rootfs.sh"]
    needed = [ROOT / "Cargo.lock", *steps, profile, ROOT / "crates/cli/called.txt", *members]
    recipe = (DEPLOY / "Containerfile").read_text()
    for step in steps:
        assert f"\nRUN {step.relative_to(ROOT)}" in recipe
    # By it rustup would fetch tools that no build needs.
    assert "rust-toolchain.toml" in ignored
    assert len(needed) > 8
    for path in needed:
        parts = path.relative_to(ROOT).parts
        ways = {"/".join(parts[: count + 1]) for count in range(len(parts))}
        assert not ways & ignored, path


def test_kubernetes_names_fit_together() -> None:
    found = {
        row["kind"]: row for row in documents((DEPLOY / "kubernetes/penstock.yaml").read_text())
    }
    assert set(found) == {
        "ServiceAccount", "Secret", "ConfigMap", "Deployment", "Service",
        "HorizontalPodAutoscaler", "PodDisruptionBudget",
    }  # fmt: skip
    check_workload(found)


def test_the_root_of_the_image_runs_alone(tmp_path: Path) -> None:
    """The binary with the libraries that the recipe gathers, and nothing else."""
    root = tmp_path / "root"
    subprocess.run([DEPLOY / "rootfs.sh", ROOT / "build/penstock", root], check=True)
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    assert Path("usr/bin/penstock") in files and len(files) < 12
    size = sum((root / path).stat().st_size for path in files)
    assert size < IMAGE_BYTES_MAX, f"the image would have {size} bytes"
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert user and "0" not in user.groups()
    assert f"nobody:x:{user[1]}:{user[2]}:" in (root / "etc/passwd").read_text()
    loader = next(root / path for path in files if path.name.startswith("ld-linux"))
    libraries = {str(path.parent) for path in root.rglob("*.so*")}
    # The loader of that root, told to look nowhere else.
    only = ["--inhibit-cache", "--library-path", ":".join(libraries)]
    command = [str(loader), *only, str(root / "usr/bin/penstock"), "--version"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert done.stdout.startswith(b"penstock ")
