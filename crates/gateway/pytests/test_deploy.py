"""The files in deploy/: they parse, name what exists, and the chart fits its values."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/penstock"
TEMPLATES = sorted(CHART.glob("templates/*.yaml"))
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
        "chart": (yaml.safe_load((CHART / "values.yaml").read_text())["config"], {}),
        "compose": (
            (DEPLOY / "compose/penstock.toml").read_text(),
            compose["services"]["penstock"]["environment"],
        ),
    }


def start(text: str, variables: dict[str, str], directory: Path) -> tuple[str, str]:
    """What the gateway says with a config, until it serves or gives up: on stdout and on stderr.

    It asks no back end at its start. Its secrets are in files of their own.
    """
    (directory / "lake").write_text("a secret of some length\n")
    config = directory / "penstock.toml"
    config.write_text(text.replace("/etc/penstock/keys", str(directory)))
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
    needed = [ROOT / "Cargo.lock", DEPLOY / "rootfs.sh", *members]
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


def defined(values: object, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def leaves(values: object, path: str = "") -> list[str]:
    if isinstance(values, dict) and values:
        return [leaf for name, inner in values.items() for leaf in leaves(inner, f"{path}.{name}")]
    return [path.lstrip(".")]


def test_templates_use_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used: set[str] = set()
    for path in [*TEMPLATES, CHART / "templates/_helpers.tpl"]:
        for name in re.findall(r"\.Values\.([\w.]+)", path.read_text()):
            assert defined(values, name), f"{path.name}: {name}"
            used.add(name)
    for leaf in leaves(values):
        assert any(leaf == name or leaf.startswith(f"{name}.") for name in used), leaf


def test_templates_close_what_they_open_and_include_what_is_defined() -> None:
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    names = set(re.findall(r'define "([\w.]+)"', helpers))
    for path in [*TEMPLATES, CHART / "templates/_helpers.tpl"]:
        text = path.read_text()
        actions = re.findall(r"\{\{-?\s*(\w+)", text)
        opened = sum(word in ("if", "range", "with", "define") for word in actions)
        assert opened == actions.count("end"), path.name
        assert text.count("{{") == text.count("}}"), path.name
        assert set(re.findall(r'include "([\w.]+)"', text)) <= names, path.name


@pytest.fixture(scope="module")
def render() -> Callable[..., dict[str, Any]]:
    """A renderer of our own: Go's templates with the few functions that the chart uses."""
    renderer = ROOT / "scripts/peers/helm-render.sh"
    command = subprocess.run([renderer, "install"], check=True, stdout=subprocess.PIPE)
    program = command.stdout.decode().strip()
    assert shutil.which(program) is not None

    def rendered(*changes: str) -> dict[str, Any]:
        done = subprocess.run([program, CHART, *changes], check=True, stdout=subprocess.PIPE)
        return {found["kind"]: found for found in documents(done.stdout.decode())}

    return rendered


def pod_of(found: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = found["Deployment"]["spec"]["template"]
    return pod


def test_the_chart_renders(render: Callable[..., dict[str, Any]]) -> None:
    plain = render()
    check_workload(plain)
    assert "Ingress" not in plain and "replicas" not in plain["Deployment"]["spec"]
    assert plain["HorizontalPodAutoscaler"]["spec"]["minReplicas"] == 4
    assert plain["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 40
    everything = render(
        "ingress.enabled=true", "ingress.tlsSecretName=cert", "tls.secretName=cert",
        "azureWorkloadIdentity.clientId=an-id", "metrics.podMonitor=true",
        "image.repository=example/penstock", "keys.existing=mine",
    )  # fmt: skip
    check_workload(everything)
    assert "Secret" not in everything and "PodMonitor" in everything
    (container,) = everything["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example/penstock:latest"
    environment = {row["name"]: row["value"] for row in container["env"]}
    assert environment["PENSTOCK_TLS_CERT_FILE"] == "/etc/penstock/tls/tls.crt"
    assert environment["PENSTOCK_DRAIN_DELAY_MS"] == "5000"
    for variable in environment:
        assert variable.removeprefix("PENSTOCK_").lower() in setting_names(), variable
    annotations = everything["ServiceAccount"]["metadata"]["annotations"]
    assert annotations["azure.workload.identity/client-id"] == "an-id"
    assert everything["Ingress"]["spec"]["tls"][0]["secretName"] == "cert"
    fixed = render("autoscaling.enabled=false", "disruptionBudget.enabled=false")
    assert fixed["Deployment"]["spec"]["replicas"] == 4
    assert not {"HorizontalPodAutoscaler", "PodDisruptionBudget"} & set(fixed)


@pytest.mark.parametrize("version", ["1.25.0", "1.31.0", kubernetes_validate.latest_version()])
def test_manifests_fit_the_schemas_of_kubernetes(
    render: Callable[..., dict[str, Any]], version: str
) -> None:
    """Those of the API server, which takes no field that it does not know."""
    plain = documents((DEPLOY / "kubernetes/penstock.yaml").read_text())
    assert len(plain) == 7
    everything = render(
        "ingress.enabled=true", "ingress.tlsSecretName=cert", "tls.secretName=cert",
        "azureWorkloadIdentity.clientId=an-id", "keys.existing=mine",
    )  # fmt: skip
    fixed = render("autoscaling.enabled=false", "serviceAccount.create=false")
    for found in (plain, *(list(them.values()) for them in (render(), everything, fixed))):
        for resource in found:
            kubernetes_validate.validate(resource, version, strict=True)
    wrong = next(one for one in plain if one["kind"] == "Deployment")
    wrong["spec"]["replica"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_another_config_and_other_keys_make_other_pods(
    render: Callable[..., dict[str, Any]],
) -> None:
    def sums(*changes: str) -> tuple[str, str]:
        annotations = pod_of(render(*changes))["metadata"]["annotations"]
        return annotations["checksum/config"], annotations["checksum/keys"]

    config, keys = sums("keys.values={lake: one, pond: two}")
    assert (config, keys) == sums("keys.values={pond: two, lake: one}")
    other_config, same_keys = sums("keys.values={lake: one, pond: two}", "config=listen")
    assert other_config != config and same_keys == keys
    same_config, other_keys = sums("keys.values={lake: one, pond: three}")
    assert same_config == config and other_keys != keys
    # Of a Secret that is not the chart's nothing is known.
    annotations = pod_of(render("keys.existing=mine"))["metadata"]["annotations"]
    assert "checksum/config" in annotations and "checksum/keys" not in annotations


def test_volumes_of_ones_own_are_mounted(render: Callable[..., dict[str, Any]]) -> None:
    """Those of the example, which is the documentation."""
    text = (CHART / "values.yaml").read_text()
    lines = re.findall(r"^#   (.*)", text, re.MULTILINE)
    example = yaml.safe_load("\n".join(lines))
    assert set(example) == {"extraVolumes", "extraVolumeMounts"}
    changes = [f"{name}={json.dumps(value)}" for name, value in example.items()]
    found = render(*changes)
    check_workload(found)
    pod = pod_of(found)["spec"]
    (container,) = pod["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    named = re.findall(r'# (\w+) = "(/[^"]+)"', "\n".join(lines))
    assert {name for name, _ in named} == {"cache_dir", "ca_file", "service_account_path"}
    for name, file in named:
        assert f"| `{name}` |" in REFERENCE
        assert any(Path(file).is_relative_to(path) for path in paths), file
    assert len(pod["volumes"]) == len(paths) == 5


def test_pods_have_an_account_that_is_there(render: Callable[..., dict[str, Any]]) -> None:
    for changes, made, name in (
        ((), "release", "release"),
        (("serviceAccount.name=mine",), "mine", "mine"),
        (("serviceAccount.create=false",), None, "default"),
        (("serviceAccount.create=false", "serviceAccount.name=mine"), None, "mine"),
    ):
        found = render(*changes)
        assert pod_of(found)["spec"]["serviceAccountName"] == name, changes
        account = found.get("ServiceAccount")
        assert (account and account["metadata"]["name"]) == made, changes


def test_the_ingress_lets_large_bodies_through(render: Callable[..., dict[str, Any]]) -> None:
    nginx = "nginx.ingress.kubernetes.io"

    def annotations(*changes: str) -> dict[str, str]:
        found = render("ingress.enabled=true", *changes)
        told: dict[str, str] = found["Ingress"]["metadata"]["annotations"]
        return told

    plain = annotations()
    assert plain[f"{nginx}/proxy-body-size"] == "0"
    assert plain[f"{nginx}/proxy-request-buffering"] == "off"
    assert f"{nginx}/backend-protocol" not in plain
    # A certificate of the Ingress itself changes nothing behind it.
    assert annotations("ingress.tlsSecretName=cert") == plain
    secure = annotations("tls.secretName=cert")
    assert secure == plain | {f"{nginx}/backend-protocol": "HTTPS"}
    told = f"{nginx}/backend-protocol"
    assert annotations("tls.secretName=cert", f"ingress.annotations={{{told}: GRPCS}}") == {
        told: "GRPCS"
    }


def test_the_root_of_the_image_runs_alone(tmp_path: Path) -> None:
    """The binary with the libraries that the recipe gathers, and nothing else."""
    root = tmp_path / "root"
    subprocess.run([DEPLOY / "rootfs.sh", ROOT / "build/penstock", root], check=True)
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    assert Path("usr/bin/penstock") in files and len(files) < 12
    loader = next(root / path for path in files if path.name.startswith("ld-linux"))
    libraries = {str(path.parent) for path in root.rglob("*.so*")}
    # The loader of that root, told to look nowhere else.
    only = ["--inhibit-cache", "--library-path", ":".join(libraries)]
    command = [str(loader), *only, str(root / "usr/bin/penstock"), "--version"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert done.stdout.startswith(b"penstock ")
