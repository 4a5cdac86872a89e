"""The README's commands for two services on two nodes run as they stand, and a file arrives whole."""

from __future__ import annotations

import hashlib
import random
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.ports import free_ports
from tests.support.serve_process import END_SEC, ROOT, environment

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
NODE: Final = "waku+http://127.0.0.1:8645"


def commands() -> list[str]:
    """Return the commands of the section, in order; a line that ends with a backslash goes on."""
    section = re.search(
        r"^## Two services and a Waku network$(.*?)^## ", README, re.DOTALL | re.MULTILINE
    )
    assert section is not None
    blocks = re.findall(r"^```sh\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    return [line for line in re.findall(r"(?:.*\\\n)*.+\n", blocks[0]) if line.strip()]


def own(command: str, ports: dict[str, int]) -> str:
    """Return a command of the README as the test runs it: its ports, this interpreter."""
    command = command.replace("devnode ", "devnode --port 8645 ")  # the default, said aloud
    command = re.sub(r"\b(8645|8646|8081|8082)\b", lambda found: str(ports[found[0]]), command)
    python = shlex.quote(sys.executable)
    command = re.sub(r"^reliable-channel ", f"exec {python} -m api ", command)
    return re.sub(r"\bpython3 ", f"{python} ", command)


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_file_goes_from_one_service_to_the_other(tmp_path: Path) -> None:
    for tool in ("curl", "sha256sum"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: apt-get install curl coreutils")
    photo = random.Random(7).randbytes(700_000)
    (tmp_path / "photo.jpg").write_bytes(photo)
    ports = dict(zip(("8645", "8646", "8081", "8082"), free_ports(4), strict=True))
    printed = ""
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        for command in commands():
            line = own(command, ports).strip()
            background = line.endswith("&")
            process = subprocess.Popen(
                ["sh", "-c", line.removesuffix("&")],
                cwd=tmp_path,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log if background else subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            if not background:
                printed, _ = process.communicate(timeout=2 * END_SEC)
                assert process.returncode == 0, (command, printed, (tmp_path / "log").read_text())
    digest = hashlib.sha256(photo).hexdigest()
    assert printed == f"{digest}  photo.jpg\n{digest}  copy.jpg\n"


def test_the_section_shows_a_stand_in_and_a_real_node_with_the_same_flags() -> None:
    serving = [line.split("--node")[0] for line in commands() if " serve " in line]
    assert len(serving) == 2
    real = re.findall(
        r"^    (reliable-channel serve .*) --node waku\+http://(?!127)\S+$", README, re.MULTILINE
    )
    assert real == [serving[0].strip()]
    assert NODE in "".join(commands())
