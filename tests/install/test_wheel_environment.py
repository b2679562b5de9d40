"""Which environment a wheel may go into, and by which program: refusals with their reasons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import uv
from support import fakewheels, wheelworld

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheels.environment import choose, installer_for
from cudnn_doctor.install.wheels.planning import plan_wheel
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Machine


def machine_with(prefix: Path, active: bool = True) -> Machine:
    environ = {"HOME": str(prefix.parent), "PATH": "/no-programs"}
    if active:
        environ["VIRTUAL_ENV"] = str(prefix)
    return Machine(environments=probe_environments(Host("/", environ), [str(prefix)]))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    fakewheels.make_venv(tmp_path / "env")
    return tmp_path / "env"


def test_the_active_environment_is_taken_unless_another_is_named(
    prefix: Path, tmp_path: Path
) -> None:
    fakewheels.make_venv(tmp_path / "other")
    host = Host("/", {"HOME": str(tmp_path), "PATH": "/none", "VIRTUAL_ENV": str(prefix)})
    machine = Machine(environments=probe_environments(host, [str(tmp_path / "other")]))
    assert choose(None, machine).prefix == str(prefix)
    assert choose(str(tmp_path / "other/bin/python"), machine).prefix == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("file", "owner"), [("pipx_metadata.json", "pipx"), ("uv-receipt.toml", "uv tool")]
)
def test_the_tools_own_isolated_environment_is_refused(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, file: str, owner: str
) -> None:
    (prefix / file).write_text("")
    assert choose(None, machine_with(prefix)).prefix == str(prefix)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(DoctorError, match=owner) as caught:
        choose(None, machine_with(prefix))
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert "--python" in caught.value.next_step
    assert choose(str(prefix), machine_with(prefix)).prefix == str(prefix)


def test_an_externally_managed_python_is_refused_unless_the_user_asked_pip_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = tmp_path / "usr/lib" / version
    (library / "site-packages").mkdir(parents=True)
    (library / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/python3").symlink_to(sys.executable)
    machine = machine_with(tmp_path / "usr")
    with pytest.raises(DoctorError, match="PEP 668") as caught:
        choose(None, machine)
    assert "python3 -m venv .venv" in caught.value.next_step
    monkeypatch.setenv("PIP_BREAK_SYSTEM_PACKAGES", "1")
    assert choose(None, machine).prefix == str(tmp_path / "usr")


def test_uv_where_it_is_else_the_pip_of_that_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = wheelworld.make_template(tmp_path / "env")
    environment = choose(None, machine_with(prefix))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "pip").write_text("#!/bin/sh\nexit 1\n")
    (programs / "pip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    pip = installer_for(environment)
    assert (pip.command, pip.is_uv) == ((str(prefix / "bin/python3"), "-m", "pip"), False)
    (prefix / "bin/uv").symlink_to(uv.find_uv_bin())
    assert installer_for(environment).command == (str(prefix / "bin/uv"), "pip")
    (programs / "uv").symlink_to(uv.find_uv_bin())
    assert installer_for(environment) == (("uv", "pip"), environment.executable, True)


def test_neither_uv_nor_pip(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(DoctorError, match="neither uv nor") as caught:
        installer_for(choose(None, machine_with(prefix)))
    assert "ensurepip" in caught.value.next_step


def test_a_folder_that_is_no_environment(tmp_path: Path, prefix: Path) -> None:
    with pytest.raises(DoctorError, match="no Python environment") as caught:
        choose(str(tmp_path / "nothing"), machine_with(prefix))
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_bare_folder_of_packages_has_no_interpreter(tmp_path: Path) -> None:
    machine = Machine(environments=(Environment(prefix=str(tmp_path), kind="target", active=True),))
    with pytest.raises(DoctorError, match="without an interpreter"):
        choose(None, machine)


def test_a_wheel_that_the_matrix_does_not_know(tmp_path: Path) -> None:
    wheelworld.build_wheels(tmp_path)
    request = InstallRequest(method="wheel", version="9.12.0.46", cuda="11")
    with pytest.raises(DoctorError, match="no wheel of cuDNN"):
        plan_wheel(request, Machine(), wheelworld.matrix_of(tmp_path))
