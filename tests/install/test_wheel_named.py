"""An environment that is named with ``--python`` and is not active counts like the active one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex

from cudnn_doctor.errors import ExitCode
from cudnn_doctor.install.choose import with_absent_frameworks
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.target import FrameworkRequest, Target
from cudnn_doctor.report.plan import to_text


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for build in wheelworld.BUILDS:
        wheelworld.build_cuda12(folder, build)
    return folder


@pytest.fixture
def index(wheels: Path) -> Iterator[WheelIndex]:
    index = WheelIndex(wheels)
    yield index
    index.close()


@pytest.fixture
def prefix(tmp_path: Path, cli: Cli, index: WheelIndex, wheels: Path) -> Path:
    """A new environment and a matrix that knows the index's wheels."""
    fakewheels.make_venv(tmp_path / "env")
    cli.environ.update(wheelworld.environ_for(index, "uv", tmp_path))
    known = {
        (build, "12"): next(wheels.glob(f"nvidia_cudnn_cu12-{build}-*"))
        for build in wheelworld.BUILDS
    }
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels=known)
    return tmp_path / "env"


def ask(cli: Cli, *words: str | Path) -> list[str | Path]:
    return ["install", "--matrix", cli.base / "matrix.yaml", *words, "--yes"]


@pytest.mark.parametrize("where", [(), ("--glibc", "2.36")], ids=["here", "told"])
def test_its_frameworks_choose_the_version(cli: Cli, prefix: Path, where: tuple[str, ...]) -> None:
    fakewheels.install(prefix, fakewheels.torch_wheel(cli.base))
    done = cli(*ask(cli, "--python", prefix, "--cuda", "12", *where))
    assert "torch==2.9.1 requires cuDNN ==9.10.2.21" in " ".join(done.stdout.split())
    assert list((prefix / wheelworld.SITE).glob("nvidia_cudnn_cu12-9.10.2.21.*"))


def test_its_frameworks_forbid_a_version(cli: Cli, prefix: Path) -> None:
    fakewheels.install(prefix, fakewheels.torch_wheel(cli.base))
    wish = ask(cli, "--python", prefix, "--cuda", "12", "--version", "9.12")
    refused = cli(*wish, code=ExitCode.NO_COMPATIBLE_VERSION)
    assert "torch==2.9.1 requires cuDNN ==9.10.2.21" in refused.stderr


def test_the_tools_own_is_seen_only_when_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    fakewheels.make_venv(own)
    monkeypatch.setattr(sys, "prefix", str(own))
    host = Host("/", {"HOME": str(tmp_path), "PATH": "/no-programs"})

    def seen(*named: str) -> bool:
        return str(own) in {e.prefix for e in probe_environments(host, named)}

    assert not seen()
    assert seen(str(own))


def test_a_framework_that_is_not_there_is_told_of_with_the_command(tmp_path: Path) -> None:
    env = tmp_path / "env"
    fakewheels.make_venv(env)
    host = Host("/", {"HOME": str(tmp_path), "PATH": "/no-programs"})
    place = str(env)
    plan = Plan(action="install", method="wheel", version="9.10.2.21", cuda="12", target=place)
    target = Target(frameworks=(FrameworkRequest.parse("torch>=2.8"),))

    def shown() -> str:
        machine = Machine(environments=probe_environments(host, [place]))
        return to_text(with_absent_frameworks(plan, target, machine))

    assert "torch is not in this environment" in shown()
    assert f"\n      {env}/bin/python3 -m pip install 'torch>=2.8'\n" in shown()
    fakewheels.install(env, fakewheels.torch_wheel(tmp_path))
    assert "not in this environment" not in shown()


def test_what_is_there_already_is_proved_and_leaves_nothing_to_take_back(
    cli: Cli, prefix: Path
) -> None:
    wish = ("--python", prefix, "--cuda", "12", "--version", "9.10")
    cli(*ask(cli, *wish))
    again = ask(cli, *wish)[:-1]
    shown = cli(*again)
    assert "loaded: cuDNN 9.10.2" in shown.stderr
    assert "nothing was changed" in shown.stdout
    assert len(cli.json("list")["changes"]) == len(cli.json("list")["installed"]) == 1
    cli("rollback", "--yes")
    assert not list((prefix / wheelworld.SITE).glob("nvidia_cudnn_cu12-*"))


def test_the_list_names_the_one_that_is_there_and_where_each_change_was(
    cli: Cli, prefix: Path
) -> None:
    for version in ("9.1", "9.10"):
        cli(*ask(cli, "--python", prefix, "--cuda", "12", "--version", version))
    assert [e["name"] for e in cli.json("list")["installed"]] == ["9.10.2-cuda12"]
    changes = cli("list").stdout.partition("Changes")[2]
    assert changes.count(f"  {prefix}\n") == 2
    cli("rollback", "--yes")
    assert [e["name"] for e in cli.json("list")["installed"]] == ["9.1.0-cuda12"]


def test_an_environment_that_is_gone_is_in_nobodys_way(cli: Cli, prefix: Path) -> None:
    other = prefix.with_name("other")
    fakewheels.make_venv(other)
    for place in (prefix, other):
        cli(*ask(cli, "--python", place, "--cuda", "12", "--version", "9.10"))
    shutil.rmtree(other)
    assert [e["target"] for e in cli.json("list")["installed"]] == [str(prefix)]
    cli("rollback", "--yes")
    assert not list((prefix / wheelworld.SITE).glob("nvidia_cudnn_cu12-*"))
