"""The chart as Helm's own library renders it: valid for Kubernetes, and each part finds the others.

Needs helm-python-sdk and kubernetes-validate, which the extra `test` brings.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

import openbook
from openbook.application.admission import WorkPool
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.settings import settings_class
from tests.deploy.conftest import every
from tests.deploy.test_files import DOCKERFILE, environment_of_the_image
from tests.places import ROOT

helm = pytest.importorskip("helm_python")

CHART = ROOT / "deploy" / "helm" / "openbook"
KUBERNETES = "1.31"
GIVEN = {"secret": {"adminToken": "open sesame"}}
VALUES: dict[str, dict[str, Any]] = {
    "least": GIVEN,
    "a secret of one's own": {"secret": {"existing": "mine"}, "serviceAccount": "reader", "replicas": 5},
    "everything": {
        "secret": {"adminToken": 'quo"ted', "accessKeyId": "reader", "secretAccessKey": "secret"},
        "store": {"url": "gs://books/indexes", "endpoint": "http://minio:9000"},
        "settings": {"swap_policy": "resource", "residents": 1, "follow_s": 0, "log_questions": True},
        "hosts": ["ask.example.org"],
        "autoscaling": {"enabled": True},
        "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "proxy"}}}], "egressPorts": [443, 9000]},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "canary": {"version": "wiki-2018"},
    },
    "a shared volume": {**GIVEN, "claims": {"indexes": "shared", "checkpoints": "models"}},
    "on nodes of its own, behind a gateway": {
        **GIVEN,
        "image": {"pullSecrets": [{"name": "registry"}]},
        "nodeSelector": {"pool": "books"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
                ]
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "extraEnv": [{"name": "AWS_REGION", "value": "eu-west-1"}],
        "extraVolumes": [{"name": "certificates", "configMap": {"name": "of-the-company"}}],
        "extraVolumeMounts": [{"name": "certificates", "mountPath": "/etc/ssl/certs", "readOnly": True}],
        "ingress": {"host": "ask.example.org", "className": "nginx", "annotations": {"a": "b"}, "tlsSecret": "ask"},
        "gateway": {"host": "books.example.org", "parent": {"name": "outer", "namespace": "gateways"}},
    },
    "open to all": {**GIVEN, "networkPolicy": {"enabled": False}},
}
KINDS = {"Deployment", "Service", "PodDisruptionBudget", "Secret", "NetworkPolicy"}

Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def render() -> Iterator[Render]:
    """The objects that an installation with these values makes, in the namespace `books`."""
    with helm.Chart.load(str(CHART)) as chart:

        def render(values: dict[str, Any], release: str = "openbook") -> list[dict[str, Any]]:
            chart.validate_schema(values)
            files = chart.render(values, name=release, namespace="books")
            objects = [text for file, text in files.items() if not file.endswith("NOTES.txt")]
            return [one for text in objects for one in yaml.safe_load_all(text) if one is not None]

        yield render


def of_kind(kind: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def selects(selector: dict[str, str], pod: dict[str, Any]) -> bool:
    return bool(selector.items() <= pod["metadata"]["labels"].items())


def rows(node: dict[str, Any], values: Any, path: str = "") -> Iterator[str]:
    """The README's table of values: what the schema says of each, and its default."""
    for name, one in node["properties"].items():
        value = values.get(name) if isinstance(values, dict) else None
        if "properties" in one:
            yield from rows(one, value, f"{path}{name}.")
        elif name in values:
            kind = one.get("type", "string")
            default = "" if value in ("", [], {}) else f"`{json.dumps(value)}`"
            choice = " or ".join(one.get("enum", ()))
            meaning = f"{one['description']}: {choice}" if choice else one["description"]
            kinds = kind if isinstance(kind, str) else " or ".join(kind)
            yield f"| `{path}{name}` | {kinds} | {default} | {meaning} |"


def test_the_readme_of_the_chart_has_every_value_as_the_schema_says() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    said = (CHART / "README.md").read_text(encoding="utf-8")
    assert [line for line in said.splitlines() if line.startswith("| `")] == list(rows(schema, values))


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_what_is_rendered_is_valid_for_kubernetes(name: str, render: Render) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    objects = render(VALUES[name])
    for one in objects:
        # the schemas of the other two are no part of Kubernetes
        if one["kind"] not in ("ServiceMonitor", "HTTPRoute"):
            validate(one, KUBERNETES, strict=True)
    if name == "everything":
        assert {one["kind"] for one in objects} == {*KINDS, "HorizontalPodAutoscaler", "ServiceMonitor"}
    if name == "least":
        assert {one["kind"] for one in objects} == KINDS


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    found = helm.lint(str(CHART), values=GIVEN)["messages"]
    assert [one for one in found if "icon" not in one["error"]] == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (openbook.__version__, openbook.__version__)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("release", ["openbook", "book"])
def test_each_part_finds_the_others(name: str, release: str, render: Render) -> None:
    objects = render(VALUES[name], release)
    deployments = of_kind("Deployment", objects)
    pods = [one["spec"]["template"] for one in deployments]
    for one, pod in zip(deployments, pods, strict=True):
        # each its own pods and no others
        assert [selects(one["spec"]["selector"]["matchLabels"], other) for other in pods] == [
            other is pod for other in pods
        ]
    (service,) = of_kind("Service", objects)
    selectors = [service["spec"]["selector"]]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind("PodDisruptionBudget", objects)]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind("NetworkPolicy", objects)]
    assert all(selects(selector, pod) for selector in selectors for pod in pods)
    ports = {port["name"] for pod in pods for one in pod["spec"]["containers"] for port in one["ports"]}
    assert {one["targetPort"] for one in service["spec"]["ports"]} <= ports
    named = [port for part in ("startupProbe", "readinessProbe", "livenessProbe") for port in every(part, pods)]
    assert {one["httpGet"]["port"] for one in named} <= ports
    for policy in of_kind("NetworkPolicy", objects):
        assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == ["http"]
    for monitor in of_kind("ServiceMonitor", objects):
        assert selects(monitor["spec"]["selector"]["matchLabels"], service)
        assert {one["port"] for one in monitor["spec"]["endpoints"]} == {
            one["name"] for one in service["spec"]["ports"]
        }
        assert set(monitor["spec"]["podTargetLabels"]) <= set(pods[0]["metadata"]["labels"])
    for backend in [*every("backend", objects), *(one for refs in every("backendRefs", objects) for one in refs)]:
        named = backend.get("service", backend)
        assert named["name"] == service["metadata"]["name"]
        assert (named["port"]["name"] if isinstance(named["port"], dict) else named["port"]) in service["spec"][
            "ports"
        ][0].values()
    for spread in (one for spreads in every("topologySpreadConstraints", pods) for one in spreads):
        assert all(selects(spread["labelSelector"]["matchLabels"], pod) for pod in pods)
    for autoscaler in of_kind("HorizontalPodAutoscaler", objects):
        (scaled,) = (one for one in deployments if "replicas" not in one["spec"])
        assert autoscaler["spec"]["scaleTargetRef"]["name"] == scaled["metadata"]["name"]
    made = {one["metadata"]["name"]: one["stringData"] for one in of_kind("Secret", objects)}
    for reference in every("secretKeyRef", pods):
        there = made.get(reference["name"], {})
        assert reference["key"] in there or reference.get("optional") or reference["name"] == "mine"
    assert bool(made) is (name != "a secret of one's own")
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(names)) == len(names)


def test_pods_run_the_image_as_it_is_with_settings_that_are_there(render: Render) -> None:
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user is not None
    for name, values in VALUES.items():
        for one in of_kind("Deployment", render(values)):
            pod = one["spec"]["template"]["spec"]
            security, (container,) = pod["securityContext"], pod["containers"]
            assert (security["runAsUser"], security["runAsGroup"]) == (int(user[1]), int(user[2]))
            assert security["fsGroup"] == int(user[2])
            assert container["image"] == f"openbook:{openbook.__version__}"
            port = int(environment_of_the_image()["OPENBOOK_PORT"])
            assert [port["containerPort"] for port in container["ports"]] == [port]
            assert one["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port)
            given = {one["name"]: one.get("value") for one in container["env"] if not one["name"].startswith("AWS_")}
            # as the service reads them
            read: dict[str, Any] = {key.removeprefix("OPENBOOK_").lower(): value or "x" for key, value in given.items()}
            settings = settings_class()(**read)
            assert {key.removeprefix("OPENBOOK_").lower() for key in given} == settings.model_fields_set
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            assert set(mounts.values()) == set(volumes)
            if name == "a shared volume":
                assert "OPENBOOK_INDEXES" not in given
                folder = environment_of_the_image()["OPENBOOK_INDEXES"]
                assert volumes[mounts[folder]]["persistentVolumeClaim"] == {"claimName": "shared"}
            else:
                assert FsspecStore(settings.indexes_url or "").url == given["OPENBOOK_INDEXES"]
                assert "emptyDir" in volumes[mounts[str(settings.cache)]]
            assert settings.allowed_hosts.split(",")[:2] == ["openbook", "openbook.books"]
            outer = [values[way]["host"] for way in ("ingress", "gateway") if way in values]
            assert set(outer) <= set(settings.allowed_hosts.split(","))
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert settings.swap_policy == "availability"


def test_the_canary_alone_is_pinned_and_the_service_sends_it_questions(render: Render) -> None:
    pinned = {
        deployment["spec"]["template"]["metadata"]["labels"]["openbook/track"]: [
            one["value"] for part in every("env", deployment) for one in part if one["name"] == "OPENBOOK_INDEX"
        ]
        for deployment in of_kind("Deployment", render(VALUES["everything"]))
    }
    assert pinned == {"stable": [], "canary": ["wiki-2018"]}


def test_the_autoscaler_asks_for_a_gauge_of_the_service(render: Render) -> None:
    (autoscaler,) = of_kind("HorizontalPodAutoscaler", render(VALUES["everything"]))
    (name,) = (one["name"] for one in every("metric", autoscaler))
    telemetry = Telemetry()
    pool = WorkPool(1, 1)
    telemetry.watch(LiveIndex(), pool)
    assert f"\n# TYPE {name} gauge\n" in telemetry.render().decode()
    asyncio.run(pool.close(within_s=0))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "secret.adminToken, or secret.existing"),
        ({**GIVEN, "setings": {}}, "setings"),
        ({**GIVEN, "settings": {"admin_token": "readable"}}, "admin_token"),
        ({**GIVEN, "store": {"url": "/a/folder"}}, "url"),
        ({**GIVEN, "gateway": {"host": "books.example.org"}}, "gateway.parent"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any], said: str, render: Render) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(said)):
        render(values)


def test_a_new_token_begins_new_pods(render: Render) -> None:
    first, second = (
        json.dumps(of_kind("Deployment", render({"secret": {"adminToken": token}}))) for token in ("one", "two")
    )
    assert first != second
    assert not any(f'"{token}"' in text for token in ("one", "two") for text in (first, second))
