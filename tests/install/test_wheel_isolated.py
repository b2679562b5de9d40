"""The tool installed by real pipx, ``uv tool`` and ``uvx``: it never puts a cuDNN into its isolated
own environment by accident, and finds the one that is meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import fakewheels, redist, wheelworld
from support.wheelindex import WheelIndex

PROJECT = Path(__file__).resolve().parents[2]
ASK = ("install", "--method", "wheel", "--version", "9.10.2", "--cuda", "12", "--no-gpu")
pytestmark = pytest.mark.wheels


class Tool(NamedTuple):
    """An installed ``cudnn-doctor``."""

    owner: str
    command: tuple[str, ...]
    environ: dict[str, str]
    own: Path
    """Folder that holds its environment."""

    def __call__(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *ASK, *map(str, words)],
            env={**self.environ, **more},
            check=False,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module", params=["pipx", "uv tool", "uvx"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    uv = pytest.importorskip("uv").find_uv_bin()
    base = tmp_path_factory.mktemp("tool")
    hidden = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
    environ = {k: v for k, v in os.environ.items() if k not in hidden}
    (base / "programs").mkdir()
    (base / "programs/uv").symlink_to(uv)
    environ |= {"PATH": f"{base}/programs:/usr/bin:/bin", "HOME": str(base / "home")}
    environ |= {"CUDNN_DOCTOR_STATE": str(base / "state"), "COLUMNS": "200"}
    environ |= {"UV_TOOL_DIR": str(base / "own"), "UV_TOOL_BIN_DIR": str(base / "bin")}
    environ |= {"PIPX_HOME": str(base / "own"), "PIPX_BIN_DIR": str(base / "bin")}
    program = (str(base / "bin/cudnn-doctor"),)
    if request.param == "uvx":
        program = (uv, *f"tool run --isolated -q --from {PROJECT} cudnn-doctor".split())
        return Tool("uvx", program, environ, base / "own")
    if request.param == "pipx":
        subprocess.run([sys.executable, "-m", "venv", base / "pipx"], check=True)
        subprocess.run([base / "pipx/bin/pip", "install", "-q", "pipx"], check=True)
        make = [base / "pipx/bin/pipx", "install", "--python", sys.executable, PROJECT]
    else:
        make = [uv, "tool", "install", "-q", "--python", sys.executable, PROJECT]
    subprocess.run(make, env=environ, check=True, capture_output=True)
    return Tool(request.param, program, environ, base / "own")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[WheelIndex]:
    wheelworld.build_cuda12(tmp_path / "wheels", "9.10.2.21")
    index = WheelIndex(tmp_path / "wheels")
    yield index
    index.close()


def test_its_own_environment_is_refused(tool: Tool) -> None:
    """Also where it is active: uvx makes it so, others by somebody's accident."""
    own = Path(tool.command[0]).resolve().parent
    path = f"{own}:/usr/bin:/bin" if tool.owner != "uvx" else tool.environ["PATH"]
    refused = tool("--dry-run", PATH=path)
    assert refused.returncode == 5, refused.stderr
    assert f"the one that {tool.owner} made" in " ".join(refused.stderr.split())
    assert "--python" in refused.stderr


def test_without_any_other_it_asks_for_one(tool: Tool) -> None:
    if tool.owner == "uvx":
        pytest.skip("without a Python, uv would download one")
    refused = tool("--dry-run", PATH=tool.environ["PATH"].partition(":")[0])
    assert refused.returncode == 2
    assert "--python" in refused.stderr


def test_the_active_environment_or_the_named_one_is_meant(tool: Tool, tmp_path: Path) -> None:
    active, named = tmp_path / "active", tmp_path / "named"
    for prefix in (active, named):
        fakewheels.make_venv(prefix)
    for words, environ, meant in (
        ((), {"VIRTUAL_ENV": str(active)}, active),
        (("--python", named), {}, named),
        (("--python", named / "bin/python"), {"VIRTUAL_ENV": str(active)}, named),
    ):
        done = tool("--dry-run", "--format", "json", *words, **environ)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["plan"]["target"] == str(meant)


def test_cudnn_comes_into_that_one_alone(tool: Tool, index: WheelIndex, tmp_path: Path) -> None:
    if tool.owner == "uvx":
        pytest.skip("it would ask the loopback index for the tool itself")
    fakewheels.make_venv(tmp_path / "env")
    wheel = next(index.folder.glob("nvidia_cudnn_cu12-*"))
    matrix = redist.write_matrix(tmp_path / "m.yaml", {}, wheels={("9.10.2.21", "12"): wheel})
    more = {"VIRTUAL_ENV": str(tmp_path / "env"), "UV_DEFAULT_INDEX": index.url}
    more["UV_CACHE_DIR"] = str(tmp_path / "uv-cache")
    done = tool("--matrix", matrix, "--yes", **more)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "env" / wheelworld.SITE).glob("nvidia_*.dist-info")]) == 3
    inside = [path.name for path in tool.own.rglob("nvidia_*.dist-info")]
    assert not [name for name in inside if "ml_py" not in name]
