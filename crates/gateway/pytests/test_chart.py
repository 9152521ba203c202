"""The Helm chart: it fits its values and schema, and Kubernetes takes what it renders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway_tests.manifests import (
    CHART,
    DEPLOY,
    REFERENCE,
    ROOT,
    check_workload,
    documents,
    setting_names,
)

TEMPLATES = sorted(CHART.glob("templates/*.yaml"))


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
    for path in [*TEMPLATES, CHART / "templates/_helpers.tpl", CHART / "templates/NOTES.txt"]:
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
    program: str = renderer_program()
    assert shutil.which(program) is not None

    def rendered(*changes: str) -> dict[str, Any]:
        done = rendering(program, SECRET, *changes)
        assert done.returncode == 0, done.stderr
        return {found["kind"]: found for found in documents(done.stdout)}

    return rendered


# The defaults take their secrets from it.
SECRET = "envFromSecret=penstock"


def rendering(program: str, *changes: str) -> subprocess.CompletedProcess[str]:
    command: list[str] = [program, str(CHART), *changes]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def renderer_program() -> str:
    command = [str(ROOT / "scripts/peers/helm-render.sh"), "install"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().strip()


def pod_of(found: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = found["Deployment"]["spec"]["template"]
    return pod


def test_the_chart_renders(render: Callable[..., dict[str, Any]]) -> None:
    plain = render()
    check_workload(plain)
    (container,) = pod_of(plain)["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "penstock"}}]
    # The Secret of the defaults is not the chart's: nothing of it stands in the release.
    assert not {"Ingress", "Secret", "PrometheusRule"} & set(plain)
    assert "replicas" not in plain["Deployment"]["spec"]
    assert plain["HorizontalPodAutoscaler"]["spec"]["minReplicas"] == 4
    assert plain["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 40
    everything = render(
        "ingress.enabled=true", "ingress.tlsSecretName=cert", "tls.secretName=cert",
        "azureWorkloadIdentity.clientId=an-id", "metrics.podMonitor=true",
        "image.repository=example/penstock", "keys.existing=mine",
    )  # fmt: skip
    check_workload(everything)
    assert "Secret" not in everything and "PodMonitor" in everything
    volumes = pod_of(everything)["spec"]["volumes"]
    assert {"name": "keys", "secret": {"secretName": "mine"}} in volumes
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((), "--set envFromSecret=NAME"),
        ((SECRET, 'config=secret_key_file = "/etc/penstock/keys/a"'), "--set keys.existing=NAME"),
        ((SECRET, "replicas=0"), "/replicas"),
        ((SECRET, "replicas=four"), "/replicas"),
        ((SECRET, "replicas=17"), "raise autoscaling.maxReplicas"),
        ((SECRET, "replica=4"), "replica"),
        ((SECRET, "image.pullPolicy=Sometimes"), "/image/pullPolicy"),
        ((SECRET, "image.tagg=1"), "tagg"),
        ((SECRET, "service.port=70000"), "/service/port"),
        ((SECRET, "service.type=Cluster"), "/service/type"),
        ((SECRET, "tls.secretName=No Name"), "/tls/secretName"),
        ((SECRET, "keys.values={lake: 5}"), "/keys/values/lake"),
        ((SECRET, "environment={A B: c}"), "A B"),
        ((SECRET, "metrics.alerts.enabled=yes please"), "/metrics/alerts/enabled"),
        ((SECRET, "drain.seconds=-1"), "/drain/seconds"),
        (("envFromSecret=Upper",), "/envFromSecret"),
    ],
)
def test_values_that_cannot_be_are_refused(changes: tuple[str, ...], said: str) -> None:
    done = rendering(renderer_program(), *changes)
    assert done.returncode != 0 and said in done.stderr, (changes, done.stderr)
    assert done.stdout == ""


def test_every_value_has_a_type_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def check(values: object, schema: dict[str, Any], path: str) -> None:
        if "properties" in schema:
            assert isinstance(values, dict) and schema["additionalProperties"] is False, path
            own = set(schema["properties"]) - ({"global"} if path == "" else set())
            assert own == set(values), path
            for name, inner in values.items():
                check(inner, schema["properties"][name], f"{path}/{name}")
        else:
            assert set(schema) & {"type", "enum", "anyOf", "$ref"}, path

    check(values, schema, "")


def test_the_notes_say_where_and_what_to_do_next() -> None:
    done = rendering(renderer_program(), SECRET, "tls.secretName=cert", "ingress.enabled=true")
    notes = "\n".join(line for line in done.stdout.splitlines() if line.startswith("#"))
    for words in (
        "https://release.default.svc:9000", "http://s3.example.com", "rollout status",
        "penstock doctor --config /etc/penstock/penstock.toml", "The Secret `penstock`",
    ):  # fmt: skip
        assert words in notes, notes


def test_alerts_ask_for_metrics_and_labels_that_there_are(
    render: Callable[..., dict[str, Any]],
) -> None:
    rule = render("metrics.alerts.enabled=true", "metrics.alerts.labels={release: mine}")
    found = rule["PrometheusRule"]
    assert found["metadata"]["labels"]["release"] == "mine"
    table = REFERENCE.split("## Metrics of the server")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\|", table, re.MULTILINE)
    kinds = {name: (kind, set(cell.split(", "))) for name, kind, cell in rows}
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) > 5
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        named = re.findall(r"(penstock_\w+)(?:\{([^}]*)\})?(\[)?", rule["expr"])
        assert named, rule
        for name, chosen, window in named:
            assert name in kinds, rule
            kind, labels = kinds[name]
            # Only what counts up has a rate.
            assert (kind == "counter") == bool(window), rule
            assert set(re.findall(r"(\w+)[=!]", chosen)) <= labels, rule
            for group in re.findall(r"by \(([^)]*)\)", rule["expr"]):
                assert set(group.split(", ")) <= labels, rule


def test_another_config_and_other_keys_make_other_pods(
    render: Callable[..., dict[str, Any]],
) -> None:
    def sums(*changes: str) -> tuple[str, str]:
        annotations = pod_of(render(*changes))["metadata"]["annotations"]
        return annotations["checksum/config"], annotations["checksum/keys"]

    config, keys = sums("keys.values={lake: one, pond: two}")
    made = render("keys.values={lake: one}")
    assert made["Secret"]["stringData"] == {"lake": "one"}
    check_workload(made)
    assert (config, keys) == sums("keys.values={pond: two, lake: one}")
    other_config, same_keys = sums("keys.values={lake: one, pond: two}", "config=listen")
    assert other_config != config and same_keys == keys
    same_config, other_keys = sums("keys.values={lake: one, pond: three}")
    assert same_config == config and other_keys != keys
    # Of a Secret that is not the chart's nothing is known.
    annotations = pod_of(render("keys.existing=mine", "keys.values={a: b}"))["metadata"][
        "annotations"
    ]
    assert "checksum/config" in annotations and "checksum/keys" not in annotations


def test_variables_are_told_as_they_were_written(render: Callable[..., dict[str, Any]]) -> None:
    told = {"A": 1_073_741_824, "B": True, "C": "1e3", "D": 0.5, "E": 'a "b"'}
    (container,) = pod_of(render(f"environment={json.dumps(told)}"))["spec"]["containers"]
    found = {row["name"]: row["value"] for row in container["env"] if len(row["name"]) == 1}
    assert found == {"A": "1073741824", "B": "true", "C": "1e3", "D": "0.5", "E": 'a "b"'}


def test_volumes_of_ones_own_are_mounted(render: Callable[..., dict[str, Any]]) -> None:
    """Those of the example, which is the documentation."""
    text = (CHART / "values.yaml").read_text()
    lines = re.findall(r"^#   (.*)", text.split("# Volumes of the pods")[1], re.MULTILINE)
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
    assert len(pod["volumes"]) == len(paths) == 4


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
