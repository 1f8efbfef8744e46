"""The image, Compose and Kubernetes files of ``deploy``, by the programs and schemas of those that read them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

import rollcall_ha
from rollcall_ha.cli.main import app
from rollcall_ha.node.config import BrokerSection, ControllerSection, FleetFile, load_fleet_file, split_address
from tests.support.cli import CliRunner

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed: the extra dev has it"
)
jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="jsonschema-rs is not installed: the extra test has it")

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
COMPOSE = DEPLOY / "compose.yaml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PAGE = ROOT / "docs/containers.md"
KUBERNETES = ("1.34", "1.37")
"""The oldest release that its authors support, and the newest that the schemas know."""
UID = 10001
NAMESPACE = "rollcall"


# --- the image -------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Word and rest of each instruction, continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", CONTAINERFILE.read_text()).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def last_stage() -> dict[str, str]:
    """The instructions of the image itself; of a repeated one the last."""
    all_of_them = instructions()
    begin = max(at for at, (word, _) in enumerate(all_of_them) if word == "FROM")
    return dict(all_of_them[begin:])


@pytest.mark.skipif(shutil.which("hadolint", path=Path(sys.executable).parent) is None, reason="no hadolint here")
def test_the_containerfile_has_nothing_that_hadolint_complains_of() -> None:
    program = Path(sys.executable).parent / "hadolint"
    told = subprocess.run(
        [program, "--no-color", CONTAINERFILE], check=False, capture_output=True, text=True, timeout=30
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


def test_the_image_runs_as_nobody_stops_by_sigterm_and_is_asked_by_our_own_command() -> None:
    image = last_stage()
    assert image["USER"] == f"{UID}:{UID}"
    assert image["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(image["ENTRYPOINT"]) == ["rollcall"]
    check = json.loads(image["HEALTHCHECK"].partition("CMD ")[2])
    assert check[0] == "rollcall"
    assert CliRunner().invoke(app, [*check[1:], "--help"]).exit_code == 0
    base = dict(instructions())["ARG"].removeprefix("BASE=")
    assert re.fullmatch(r"docker\.io/library/python:3\.1[123]-slim-[a-z]+", base)


def test_what_the_image_is_built_of_is_in_its_context() -> None:
    """A folder that a new package adds, and that the list of the context lacks, would be missing in the wheel only."""
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    folders = {path.name for path in (ROOT / "src" / "rollcall_ha").iterdir() if path.is_symlink()}
    assert given == folders | {"src", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in given)
    programs = re.findall(r"python (\S+\.py)", dict(instructions())["RUN"] + str(instructions()))
    assert programs
    assert all((ROOT / name).exists() for name in programs)


# --- compose ---------------------------------------------------------------------------------------------------------


@cache
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def test_the_compose_file_is_one_by_the_compose_specification() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = jsonschema_rs.validator_for(json.loads(schema.read_text()))
    assert [error.message for error in validator.iter_errors(compose())] == []
    unknown = {**compose(), "services": {"c1": {"image": "rollcall", "read-only": True}}}
    assert not validator.is_valid(unknown)


def test_a_service_is_a_node_with_its_own_key_and_no_right_but_that() -> None:
    services = compose()["services"]
    assert list(services) == ["c1", "c2", "c3", "broker-a-1", "broker-a-2", "broker-a-3"]
    for name, service in services.items():
        assert service["hostname"] == name == service["command"][1]
        assert service["user"] == f"{UID}:{UID}"
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["healthcheck"]["test"][1:] == ["rollcall", "health"]
        pair = (f"{name}.pem", f"{name}.key")
        *given, own = service["volumes"]
        read_only = [volume.removesuffix(":ro").rpartition(":") for volume in given if volume.endswith(":ro")]
        assert sorted(source.partition("}/")[2] for source, _, _ in read_only) == sorted(
            ["rollcall.toml", "tls/ca.pem", *(f"tls/{file}" for file in pair)]
        )
        for source, _, target in read_only:
            assert source.startswith("${FLEET")
            assert target == "/var/lib/rollcall/" + source.partition("}/")[2]
        assert len(given) == len(read_only), "what a node reads, it must not be able to change"
        source, _, target = own.partition(":")
        assert source.rpartition("/")[2] == name
        assert target.startswith("/var/lib/rollcall/data")
        published = [port.rpartition(":") for port in service.get("ports", [])]
        assert [port for _, _, port in published] == (["9200"] if name.startswith("c") else [])
        assert all(host.startswith("127.0.0.1:") for host, _, _ in published)


# --- kubernetes ------------------------------------------------------------------------------------------------------


@cache
def manifests() -> tuple[dict[str, Any], ...]:
    return tuple(document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in manifests() if document["kind"] == kind}


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each StatefulSet and Job."""
    return {
        name: document["spec"]["template"]["spec"]
        for kind in ("StatefulSet", "Job")
        for name, document in of_kind(kind).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("release", KUBERNETES)
def test_every_manifest_is_one_by_the_schemas_of_kubernetes(release: str) -> None:
    assert len(manifests()) > 10
    for document in manifests():
        kubernetes_validate.validate(document, release, strict=True)


def test_a_pod_has_no_right_that_its_process_does_not_need() -> None:
    assert set(pods()) >= {"controller", "broker-a"}
    for pod in pods().values():
        assert not pod["automountServiceAccountToken"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == UID
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in pod["containers"]:
            assert container["image"] == f"rollcall:{rollcall_ha.__version__}"
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"].keys() == {"memory"}
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"]
            assert not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"] == {"drop": ["ALL"]}


def test_no_manifest_lets_two_members_go_at_once() -> None:
    budgets = {name: document["spec"]["maxUnavailable"] for name, document in of_kind("PodDisruptionBudget").items()}
    assert budgets == dict.fromkeys(of_kind("StatefulSet"), 1)
    for name, pod in ((name, pods()[name]) for name in of_kind("StatefulSet")):
        (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        assert apart["labelSelector"]["matchLabels"]["rollcall/part"] == name


def test_a_pod_sees_the_key_of_no_other_pod() -> None:
    """By one path for each pod; the whole Secret would be six months of everybody's identity on each machine."""
    for name in of_kind("StatefulSet"):
        pod = pods()[name]
        (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
        for item in secret["items"]:
            owner, _, file = item["path"].partition("/")
            assert item["key"] == file
            assert file in ("ca.pem", f"{owner}.pem", f"{owner}.key")
        (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "identities")
        assert mount["subPathExpr"] == "$(POD_NAME)"


def test_probes_ask_for_life_by_tls_and_only_readiness_may_take_a_pod_out() -> None:
    for name in of_kind("StatefulSet"):
        (container,) = pods()[name]["containers"]
        for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            request = container[probe]["httpGet"]
            assert (request["path"], request["scheme"]) == (path, "HTTPS")
            assert request["port"] in [port["name"] for port in container["ports"]]
            # By the pod's address, which is no name of a controller, REST would answer 421.
            assert {"name": "Host", "value": "localhost"} in request["httpHeaders"]


# --- what the page says, and what the manifests have ------------------------------------------------------------------


def founded(tmp_path: Path, title: str) -> FleetFile:
    """The fleet of the command that the page prints under ``title``."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = re.search(r"```sh\n(rollcall init [^`]*?[^\\])\n", section)
    assert found is not None
    arguments = shlex.split(found[1].replace("\\\n", " "))[1:]
    result = CliRunner().invoke(app, [*arguments, "--directory", str(tmp_path)])
    assert result.exit_code == 0, result.output
    return load_fleet_file(tmp_path / "rollcall.toml")


def ports_of(section: ControllerSection | BrokerSection) -> dict[str, int]:
    keys = ("raft", "broker", "rest") if isinstance(section, ControllerSection) else ("listen", "ha", "health")
    return {key: split_address(getattr(section, key))[1] for key in keys}


def test_services_of_compose_are_the_nodes_of_the_fleet_that_the_page_founds(tmp_path: Path) -> None:
    fleet = founded(tmp_path, "Compose")
    assert list(compose()["services"]) == [*fleet.controllers, *fleet.brokers]
    for name, section in fleet.controllers.items():
        assert section.rest == f"{name}:9200"
    for name, broker in fleet.brokers.items():
        assert split_address(broker.listen)[0] == split_address(broker.ha)[0] == name


def test_pods_are_the_nodes_of_the_fleet_that_the_page_founds(tmp_path: Path) -> None:
    fleet = founded(tmp_path, "Kubernetes")
    sections: dict[str, ControllerSection | BrokerSection] = {**fleet.controllers, **fleet.brokers}
    expected = set(sections)
    services = of_kind("Service")
    for name, document in of_kind("StatefulSet").items():
        governing = services[document["spec"]["serviceName"]]["spec"]
        assert governing["clusterIP"] == "None"
        assert governing["publishNotReadyAddresses"]
        (container,) = document["spec"]["template"]["spec"]["containers"]
        offered = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert offered == {port["name"]: port["port"] for port in governing["ports"]}
        for ordinal in range(document["spec"]["replicas"]):
            section = sections[f"{name}-{ordinal}"]
            expected.remove(f"{name}-{ordinal}")
            assert ports_of(section) == offered
            host = f"{name}-{ordinal}.{document['spec']['serviceName']}.{NAMESPACE}.svc"
            assert {split_address(getattr(section, key))[0] for key in offered} == {host}
            assert section.data == f"data/{name}-{ordinal}"
    assert expected == set()
    claims = of_kind("PersistentVolumeClaim")
    assert set(claims) == {f"data-{name}" for name in fleet.controllers}
    template = of_kind("StatefulSet")["controller"]["spec"]["volumeClaimTemplates"][0]
    assert all(claim["spec"] == template["spec"] for claim in claims.values())


def test_policies_open_the_port_table_of_the_page_and_nothing_else() -> None:
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| (\d+) \|[^|]*\| ([^|]+) \|$", PAGE.read_text())
    table = {(to, int(port)): sorted(re.findall(r"`([a-z-]+)`", sources)) for to, port, sources in rows}
    opened: dict[tuple[str, int], list[str]] = {}
    for name, document in of_kind("NetworkPolicy").items():
        assert document["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for rule in document["spec"]["ingress"]:
            sources = [source["podSelector"]["matchLabels"] for source in rule["from"]]
            for port in rule["ports"]:
                opened[name, port["port"]] = sorted(
                    one.get("rollcall/part") or one["rollcall/access"] for one in sources
                )
    assert opened == table
    # Each way out of a part of the fleet into another one is a way in there.
    for name, document in of_kind("NetworkPolicy").items():
        for rule in document["spec"]["egress"]:
            for peer in (peer["podSelector"] for peer in rule["to"] if "podSelector" in peer):
                for port in rule["ports"]:
                    assert name in opened[peer["matchLabels"]["rollcall/part"], port["port"]]
