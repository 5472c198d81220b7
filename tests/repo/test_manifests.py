"""The manifests for Kubernetes, the Dockerfile and compose.yaml fit their schemas, and one another."""

from __future__ import annotations

import copy
import io
import ipaddress
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Set

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError

from tests.support import dockerfiles, kubernetes_models
from tests.support.processes import REPOSITORY
from tf_strategies.cluster import Cluster
from tf_strategies.secret import SECRET_FILE

pytestmark = pytest.mark.any_line

KUBERNETES = REPOSITORY / "examples" / "kubernetes"
DOCKERFILE = REPOSITORY / "examples" / "docker" / "Dockerfile"
COMPOSE = REPOSITORY / "examples" / "docker" / "compose.yaml"
CLUSTERS = REPOSITORY / "docs" / "clusters.md"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))


def documents(text: str) -> List[Any]:
    """Reads YAML 1.1, as Kubernetes does: 0400 is octal. A key that stands twice is an error."""
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)
    return list(reader.load_all(io.StringIO(text)))


def compose() -> Any:
    (found,) = documents(COMPOSE.read_text())
    return found


def containers() -> List[Any]:
    """Returns the pods of all manifests, each with its only container."""
    found = []
    for manifest in (each for path in MANIFESTS for each in documents(path.read_text())):
        if manifest["kind"] in ("Job", "TFJob"):
            spec = manifest["spec"]
            owner = spec["tfReplicaSpecs"]["Worker"] if manifest["kind"] == "TFJob" else spec
            (container,) = owner["template"]["spec"]["containers"]
            found.append((owner["template"]["spec"], container))
    return found


# --- Kubernetes ---


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path) -> None:
    found = documents(path.read_text())
    assert found and [kubernetes_models.problems_of(each) for each in found] == [[] for _ in found]


def test_manifests_in_the_documents_fit_them_too() -> None:
    blocks = [
        (page.name, block)
        for page in sorted((REPOSITORY / "docs").glob("*.md"))
        for block in re.findall(r"```yaml\n(apiVersion: .*?)```", page.read_text(), re.DOTALL)
    ]
    assert blocks
    for page, block in blocks:
        assert [kubernetes_models.problems_of(each) for each in documents(block)] == [[]], page


POD = ("spec", "template", "spec")
WORKER = ("spec", "tfReplicaSpecs", "Worker")


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("elastic_job.yaml", ("spec", "completion"), 4, "Job.spec.completion is unknown"),
        ("elastic_job.yaml", ("spec", "completions"), "4", "Job.spec.completions must be int"),
        ("elastic_job.yaml", ("kind",), "Jub", "no schema for Jub of batch/v1"),
        ("elastic_job.yaml", (*POD, "containers"), {}, "Job.spec.template.spec.containers must be a list"),
        (
            "elastic_job.yaml",
            (*POD, "containers", 0, "resources", "limits", "memory"),
            "4 GB",
            "Job.spec.template.spec.containers.0.resources.limits.memory must be a quantity",
        ),
        (
            "elastic_job.yaml",
            (*POD, "volumes", 0),
            {"secret": {"secretName": "digits-secret"}},
            "Job.spec.template.spec.volumes.0: Invalid value for `name`, must not be `None`",
        ),
        (
            "tfjob.yaml",
            ("spec", "runPolicy", "cleanPod"),
            "All",
            "TFJob.spec.runPolicy.cleanPod is unknown",
        ),
        ("tfjob.yaml", (*WORKER, "replica"), 2, "TFJob.spec.tfReplicaSpecs.Worker.replica is unknown"),
        (
            "tfjob.yaml",
            (*WORKER, "template", "spec", "containers", 0, "env", 0, "value"),
            True,
            "TFJob.spec.tfReplicaSpecs.Worker.template.spec.containers.0.env.0.value must be str",
        ),
    ],
)
def test_a_manifest_with_a_mistake_is_refused(name: str, place: tuple, value: Any, message: str) -> None:
    spoiled = copy.deepcopy(documents((KUBERNETES / name).read_text())[-1])
    inner = spoiled
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert kubernetes_models.problems_of(spoiled) == [message]


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(DuplicateKeyError):
        documents("spec:\n  replicas: 2\n  replicas: 4\n")


# --- compose.yaml ---


def checked_compose(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run(
        [*command, "--verbose", *map(str, files)], capture_output=True, text=True, timeout=60
    )


def test_the_compose_file_fits_the_schema_of_compose(tmp_path: Path) -> None:
    done = checked_compose(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr
    mistakes = {"pull_policy: never": "pull: never", "internal: true": "internal: [yes]"}
    spoiled = []
    for number, (right, wrong) in enumerate(mistakes.items()):
        spoiled.append(tmp_path / f"{number}.yaml")
        spoiled[-1].write_text(COMPOSE.read_text().replace(right, wrong))
    done = checked_compose(*spoiled)
    assert done.returncode == 1
    assert "'pull' was unexpected" in done.stdout and "networks.training" in done.stdout, done.stdout


def test_each_service_is_the_worker_that_its_name_says() -> None:
    services = compose()["services"]
    (subnet,) = compose()["networks"]["training"]["ipam"]["config"]
    clusters = {
        name: Cluster.from_tf_config(each["environment"]["TF_CONFIG"]) for name, each in services.items()
    }
    for rank, (name, cluster) in enumerate(clusters.items()):
        assert (name, cluster.rank, cluster.size) == (f"worker-{rank}", rank, len(services))
        address = services[name]["networks"]["training"]["ipv4_address"]
        assert cluster.address_of(cluster.task) == f"{address}:2222"
        assert cluster.addresses == clusters["worker-0"].addresses
        assert ipaddress.ip_address(address) in ipaddress.ip_network(subnet["subnet"])


def test_each_service_may_read_the_secret() -> None:
    content = compose()
    assert list(content["secrets"]) == ["digits"]
    assert content["secrets"]["digits"]["file"].startswith(f"${{{SECRET_FILE}:?")
    for service in content["services"].values():
        assert (service["secrets"], service["environment"][SECRET_FILE]) == (
            ["digits"],
            "/run/secrets/digits",
        )
        assert service["user"] == f"${{TRAINER:-{image_setting('USER')}}}"


# --- the Dockerfile ---


def tracked() -> Set[str]:
    """Returns the files of this repository and their folders."""
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files"], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        pytest.skip("this is no clone of the repository")
    files = [Path(line) for line in done.stdout.splitlines()]
    return {each.as_posix() for file in files for each in (file, *file.parents)}


def image_setting(instruction: str) -> str:
    """Returns what the last such instruction of the image says."""
    _, commands = dockerfiles.stages(DOCKERFILE.read_text())[-1]
    return next(" ".join(each.value) for each in reversed(commands) if each.cmd == instruction)


def test_the_dockerfile_builds_as_far_as_can_be_told() -> None:
    assert dockerfiles.problems_of(DOCKERFILE.read_text(), tracked()) == []


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("COPY ops ops", "COPY kernels ops", "kernels is not in the build context"),
        ("WORKDIR /source", "WORKDR /source", "line {}: WORKDR is unknown"),
        ("COPY --from=build", "COPY --from=builder", "line {}: no earlier stage builder"),
        ("ARG PACKAGES=scikit-learn", "ARG PACKAGE=scikit-learn", "line {}: PACKAGES is not declared"),
        ("STOPSIGNAL SIGTERM", "ARG SIGNAL", "the argument SIGNAL is not used"),
    ],
)
def test_a_dockerfile_with_a_mistake_is_refused(right: str, wrong: str, message: str) -> None:
    text = DOCKERFILE.read_text()
    assert text.count(right) == 1
    problems = dockerfiles.problems_of(text.replace(right, wrong), tracked())
    assert re.fullmatch(message.replace("{}", r"\d+"), problems[0]), problems


def test_the_build_context_is_what_the_dockerfile_copies() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored and kept == set(dockerfiles.copied_sources(DOCKERFILE.read_text()))


def test_python_gets_the_signals_and_is_not_root() -> None:
    *_, (_, image) = dockerfiles.stages(DOCKERFILE.read_text())
    commands = {each.cmd: each for each in image}
    assert commands["ENTRYPOINT"].json and commands["ENTRYPOINT"].value == ("tini", "--")
    assert commands["CMD"].json and image_setting("STOPSIGNAL") == "SIGTERM"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image_setting("USER"))
    assert not any("g++" in each.original for each in image)


def test_the_dockerfile_builds_for_the_newest_tensorflow_with_what_the_build_needs() -> None:
    _, (_, build), _ = dockerfiles.stages(DOCKERFILE.read_text())
    installed = next(
        each.original for each in build if "pip install" in each.original and "$TENSORFLOW" in each.original
    )
    project = (REPOSITORY / "pyproject.toml").read_text()
    for requirement in re.findall(r'"([^"]+)"', re.search(r"^requires = \[(.*)\]$", project, re.M)[1]):
        assert requirement in installed
    newest = re.search(r"tensorflow>=(\d+\.\d+),", (REPOSITORY / "Makefile").read_text())[1]
    assert f"ARG TENSORFLOW=tensorflow-cpu=={newest}.*" in [each.original for each in build]


# --- all of them ---


def test_all_run_the_same_image_with_scripts_that_are_in_it() -> None:
    built = re.search(r"docker build .* -t (\S+) \.", DOCKERFILE.read_text())[1]
    services = list(compose()["services"].values())
    pods = containers()
    assert len(services) >= 2 and len(pods) >= 2
    assert {each["image"] for each in [*services, *(container for _, container in pods)]} == {built}
    assert {container["workingDir"] for _, container in pods} == {image_setting("WORKDIR")}
    commands = [each["command"] for each in services]
    commands += [container["command"] + container.get("args", []) for _, container in pods]
    for command in commands:
        (script,) = (word for word in command if word.endswith(".py"))
        assert command[0] == "python" and script.startswith("examples/") and script in tracked()


def test_pods_run_as_the_user_of_the_image_and_may_read_their_secret() -> None:
    user, group = map(int, image_setting("USER").split(":"))
    for pod, _ in containers():
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": user, "fsGroup": group}


def commands_of(path: Path) -> str:
    """Returns the lines with commands of a file, each on one line."""
    text = re.sub(r"\\\n(# +)?", " ", path.read_text())
    return "\n".join(line for line in text.splitlines() if re.match(r"(# +)?(docker|export) ", line))


def test_commands_in_the_documents_name_files_and_arguments_that_exist() -> None:
    commands = "\n".join(commands_of(path) for path in (DOCKERFILE, COMPOSE, CLUSTERS))
    assert set(re.findall(r" -f (\S+)", commands)) == {
        str(each.relative_to(REPOSITORY)) for each in (DOCKERFILE, COMPOSE)
    }
    declared = {
        each.value[0].partition("=")[0]
        for _, stage in dockerfiles.stages(DOCKERFILE.read_text())
        for each in stage
        if each.cmd == "ARG"
    }
    given = set(re.findall(r"--build-arg (\w+)=", commands))
    assert given and given <= declared
    images = set(re.findall(r"registry\.example\.com/\S+", commands))
    assert images == {compose()["services"]["worker-0"]["image"]}
    for script in re.findall(r"\b(examples/[\w/]+\.py)", commands):
        assert (REPOSITORY / script).is_file()


@pytest.mark.parametrize("path", [COMPOSE, CLUSTERS], ids=lambda path: path.name)
def test_the_variables_of_the_compose_file_are_set_before(path: Path) -> None:
    asked = set(re.findall(r"\$\{(\w+):", COMPOSE.read_text()))
    exported = [line for line in commands_of(path).splitlines() if "TRAINER=" in line]
    assert [set(re.findall(r"(\w+)=", line)) for line in exported] == [asked]
