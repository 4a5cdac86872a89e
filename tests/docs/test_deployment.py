"""What docs/deployment holds works, as far as it can be tried without Docker and as a user."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.cli import run
from api.devnode import command
from api.devnode.settings import DevnodeSettings
from api.settings import PREFIX, ServiceSettings
from messaging_adapter.factory import TRANSPORTS
from tests.support.serve_process import ROOT, environment, serving

FOLDER = ROOT / "docs" / "deployment"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
UNIT = FOLDER / "reliable-channel.service"

COMPOSE = (FOLDER / "compose.yaml").read_text(encoding="utf-8")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that there is."""
    path = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    path.write_text(re.sub(r"/opt/\S+/reliable-channel", sys.executable, text), encoding="utf-8")
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@needs_systemd
@pytest.mark.timeout(60)
def test_the_unit_is_accepted(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.timeout(60)
def test_the_unit_leaves_the_service_little_to_break(unit: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=20", str(unit))
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_unit_gives_the_service_time_to_stop() -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert int(found[1]) > ServiceSettings().shutdown_timeout_sec + 5


def test_the_image_runs_as_nobody_in_particular() -> None:
    final = DOCKERFILE.split("\nFROM ")[-1]
    assert re.findall(r"^USER (\S+)$", final, re.MULTILINE) == ["10001"]
    assert "--uid 10001" in final


def test_the_image_holds_no_secrets() -> None:
    instructions = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    assert not re.search(r"(?i)token|keys_file|_KEY_|password|^ARG", instructions, re.MULTILINE)


def test_the_settings_of_the_image_are_settings() -> None:
    names = {name.lower() for name in re.findall(rf"{PREFIX}(\w+)=(?!\.)", DOCKERFILE)}
    assert names
    assert names <= ServiceSettings.model_fields.keys()


def test_what_the_image_is_made_of_is_there_and_let_through() -> None:
    let_through = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in let_through or (
                name.startswith("LICENSE") and "!LICENSE*" in let_through
            )


@pytest.mark.timeout(60)
def test_the_health_check_knows_living_from_dead() -> None:
    found = re.search(r'CMD \["python", "-c", "(.*)"\]', DOCKERFILE)
    assert found is not None

    def check(port: int) -> int:
        return subprocess.run(
            [sys.executable, "-c", found[1]],
            env=environment({f"{PREFIX}PORT": str(port)}),
            capture_output=True,
            timeout=20,
            check=False,
        ).returncode

    with serving("--database", "memory://") as service:
        assert check(service.port) == 0
        service.stop()
        assert check(service.port) == 1


def compose_section(name: str) -> dict[str, str]:
    """Return the texts of the entries of a section, by name; the file keeps to two spaces."""
    section = re.search(rf"^{name}:\n((?: .*\n|\n)+)", COMPOSE, re.MULTILINE)
    assert section is not None, name
    parts = re.split(r"^  (\w+):", section[1], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def compose_commands() -> dict[str, list[str]]:
    found = {}
    for name, text in compose_section("services").items():
        (line,) = re.findall(r"^    command: (\[.*\])$", text, re.MULTILINE)
        found[name] = json.loads(line)
    return found


def test_the_services_of_the_composition_are_built_from_here() -> None:
    services = compose_section("services")
    assert sorted(services) == ["alice", "bob", "devnode"]
    assert all(text.startswith("\n    <<: *image\n") for text in services.values())
    image = COMPOSE.split("x-image: &image")[1].split("\nservices:")[0]
    (context,) = re.findall(r"context: (\S+)", image)
    (dockerfile,) = re.findall(r"dockerfile: (\S+)", image)
    assert (FOLDER / context).resolve() == ROOT
    assert (ROOT / dockerfile).read_text(encoding="utf-8") == DOCKERFILE


def test_the_services_of_the_composition_keep_to_themselves() -> None:
    services = compose_section("services")
    for name in ("alice", "bob"):
        assert re.findall(r'ports: \["127\.0\.0\.1:\d+:8080"\]', services[name])
        assert f'volumes: ["{name}:/data"]' in services[name]
        assert "devnode:\n        condition: service_healthy" in services[name]
    assert "ports:" not in services["devnode"]
    assert sorted(compose_section("volumes")) == ["alice", "bob"]


def test_the_stand_in_of_the_composition_has_a_node_for_each_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[DevnodeSettings] = []
    monkeypatch.setattr(command, "run_devnode", lambda settings, **_: seen.append(settings))
    commands = compose_commands()
    assert run(commands.pop("devnode")) == 0
    assert seen[0].host == "0.0.0.0"
    nodes = [re.findall(r"waku\+http://devnode:(\d+)", " ".join(c)) for c in commands.values()]
    ports = range(seen[0].port, seen[0].port + seen[0].nodes)
    assert sorted(nodes) == [[str(port)] for port in ports]
    checked = re.search(r"http://127\.0\.0\.1:(\d+)/health", compose_section("services")["devnode"])
    assert checked is not None
    assert int(checked[1]) in ports


@pytest.mark.skipif("waku+http" not in TRANSPORTS, reason="there is no transport waku+http yet")
@pytest.mark.parametrize("name", ["alice", "bob"])
def test_the_services_of_the_composition_could_begin(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in re.findall(rf"({PREFIX}\w+)=(\S+)", DOCKERFILE.split("\nFROM ")[-1]):
        monkeypatch.setenv(variable, value)
    assert run([*compose_commands()[name], "--check"]) == 0
    assert capsys.readouterr().out.startswith("ok: 0.0.0.0:8080, database sqlite:////data/")


def test_links_of_the_pages_lead_somewhere() -> None:
    for name in ("operations.md", "compatibility.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)", page):
            path = ROOT / "docs" / (target or name)
            assert path.exists(), target
            if anchor:
                titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {
                    re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles
                }
                assert anchor in anchors, anchor
