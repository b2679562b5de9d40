"""The method that suits what a machine is for, with the reason why."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support import fakewheels

from cudnn_doctor.install.choose import Wish, choose_method, settle
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Machine
from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.target import Target

DISTRO = "ubuntu 24.04"
SYSTEMS = Environment(prefix="/usr", kind="system", active=True, site_packages=("/tmp",))


@pytest.fixture(scope="module")
def active(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    prefix = tmp_path_factory.mktemp("active") / "env"
    fakewheels.make_venv(prefix)
    host = Host("/", {"HOME": "/none", "PATH": "/none", "VIRTUAL_ENV": str(prefix)})
    return Machine(environments=probe_environments(host, [str(prefix)]))


def chosen(wish: dict[str, Any], machine: Machine, distro: str = DISTRO) -> tuple[str, str]:
    return choose_method(Wish(**wish), Target(distro=distro), load(), lambda: machine)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("wish", "method"),
    [
        ({}, "wheel"),
        ({"python": "/env"}, "wheel"),
        ({"frameworks_asked": True}, "wheel"),
        ({"prefix": "/p"}, "tarball"),
        ({"archive": "/a"}, "tarball"),
        ({"mirrors": ("/m",)}, "tarball"),
        ({"static": True}, "tarball"),
        ({"source": "wheel"}, "tarball"),
        ({"fresh": True}, "tarball"),
        ({"method": "package"}, "package"),
    ],
)
@pytest.mark.usefixtures("as_root")
def test_what_was_said_goes_before_what_is_active(
    active: Machine, wish: dict[str, Any], method: str
) -> None:
    assert chosen(wish, active)[0] == method


@pytest.mark.usefixtures("as_root")
def test_root_without_an_environment_gets_packages_where_there_are_any() -> None:
    assert chosen({}, Machine())[0] == "package"
    assert chosen({}, Machine(environments=(SYSTEMS,)))[0] == "package"
    assert chosen({}, Machine(), "alpine 3.20")[0] == "tarball"
    assert chosen({"fresh": True}, Machine())[0] == "tarball"


@pytest.mark.usefixtures("as_user")
def test_others_get_a_prefix_of_their_own() -> None:
    assert chosen({}, Machine())[0] == "tarball"


def test_the_reason_is_told(active: Machine) -> None:
    (environment,) = (e for e in active.environments if e.active)
    assert environment.prefix in chosen({}, active)[1]
    request = settle(Wish(prefix="/p"), Target(distro=DISTRO), load(), lambda: active)
    assert "method tarball: a prefix, archive, mirror or source was named" in request.reasons


def test_every_wish_reaches_the_request() -> None:
    told = {"prefix": "/p", "source": "archive", "mirrors": ("/m",), "static": True}
    told |= {"python": "/e", "break_pins": True, "hold": True, "sudo": True, "fresh": True}
    request = settle(Wish(**told), Target(), load(), Machine)  # type: ignore[arg-type]
    assert {name: getattr(request, name) for name in told} == told
