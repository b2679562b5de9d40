"""Which remedy is taken, and which is left to a person with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from cudnn_doctor.checks.model import Finding, Links, Remedy, SearchPath, Wheels
from cudnn_doctor.install.plan import Run, SwitchLink, WriteFile
from cudnn_doctor.install.wheels.mend import plan_mending
from cudnn_doctor.install.wheels.searchpath import path_with
from cudnn_doctor.machine.model import Distribution, Environment, Machine
from cudnn_doctor.matrix.load import load


def finding(*remedies: Remedy, id: str = "wheel-files-missing", subject: str = "") -> Finding:
    return Finding(id=id, severity="error", title=id, remedies=remedies, subject=subject)


def automatic(action: Wheels | SearchPath | Links) -> Remedy:
    return Remedy(title="it", automatic=True, action=action)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One active environment with a torch that pins its cuDNN."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text("export PATH\n")
    pin = "nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'"
    environment = Environment(
        prefix=str(tmp_path),
        python="3.11.7",
        executable=sys.executable,
        active=True,
        site_packages=(str(tmp_path),),
        distributions=(Distribution(name="torch", version="2.8.0", requires=(pin,)),),
    )
    return Machine(environments=(environment,))


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("nvidia-cudnn-cu12==9.10.2.21", True),
        ("nvidia-cudnn-cu12==9.*", True),
        ("nvidia-cudnn-cu12", True),
        ("nvidia-cublas-cu12==12.8.4.1", True),
        ("nvidia-cudnn-cu12==9.11.0.98", False),
        ("nvidia-cudnn-cu12>9.10.2.21,<10", False),
    ],
)
def test_no_pin_is_broken(machine: Machine, wanted: str, taken: bool) -> None:
    prefix = machine.environments[0].prefix
    action = Wheels(environment=prefix, put=(wanted,))
    mending = plan_mending([finding(automatic(action))], machine, load(None))
    assert bool(mending.chosen) is taken
    assert taken or "torch 2.8.0" in mending.left[0].reason


def test_a_folder_of_others_is_not_put_on_the_path(machine: Machine) -> None:
    prefix = machine.environments[0].prefix
    for folder, taken in ((f"{prefix}/lib/x", True), ("/usr/local/cuda/lib64", False)):
        action = SearchPath(add=(folder,))
        mending = plan_mending([finding(automatic(action))], machine, load(None))
        assert bool(mending.chosen) is taken


def test_the_second_remedy_is_taken_where_the_first_cannot_be(machine: Machine) -> None:
    first = automatic(SearchPath(add=("/elsewhere",)))
    second = automatic(SearchPath(drop=("/elsewhere",)))
    mending = plan_mending([finding(first, second)], machine, load(None))
    (step,) = mending.plan.steps
    assert isinstance(step, WriteFile) and "/elsewhere" in step.content
    assert mending.path == SearchPath(drop=("/elsewhere",))


def test_consequences_and_destructive_remedies_are_left_alone(
    machine: Machine, tmp_path: Path
) -> None:
    action = Links(links={str(tmp_path / "libcudnn.so"): ""})
    destructive = Remedy(title="it", automatic=True, action=action, safety="destructive")
    cause = finding(destructive, id="cudnn-fake-symlink")
    effect = Finding(
        id="cudnn-not-installed",
        severity="error",
        title="x",
        remedies=(automatic(action),),
        caused_by="cudnn-fake-symlink",
    )
    mending = plan_mending([cause, effect], machine, load(None))
    assert not mending.chosen and [left.finding for left in mending.left] == [cause]


def test_links_are_made_and_taken_away(machine: Machine, tmp_path: Path) -> None:
    path = str(tmp_path / "libcudnn.so")
    for target in ("libcudnn.so.9", ""):
        mending = plan_mending(
            [finding(automatic(Links(links={path: target})))], machine, load(None)
        )
        (step,) = mending.plan.steps
        assert isinstance(step, SwitchLink) and (step.path, step.target) == (path, target)


def test_the_path_that_the_activation_leaves() -> None:
    wanted = SearchPath(drop=("/a",), add=("/n",))
    assert path_with("/a:/b:/a:/n", wanted) == "/n:/b"
    assert path_with("", SearchPath(drop=("/a",))) == ""


def test_a_framework_that_goes_for_another_comes_back(machine: Machine) -> None:
    environment = machine.environments[0]
    old = Distribution(name="onnxruntime", version="1.22.0")
    environment = msgspec.structs.replace(
        environment, distributions=(*environment.distributions, old)
    )
    action = Wheels(
        environment=environment.prefix, drop=("onnxruntime",), put=("onnxruntime-gpu==1.22.0",)
    )
    changed = msgspec.structs.replace(machine, environments=(environment,))
    plan = plan_mending([finding(automatic(action))], changed, load(None)).plan
    last = plan.steps[-1]
    assert isinstance(last, Run)
    _, uninstall, install = last.rollback
    assert isinstance(uninstall, Run) and isinstance(install, Run)
    assert uninstall.argv[-2:] == ("onnxruntime", "onnxruntime-gpu")
    assert install.stdin == "onnxruntime==1.22.0\n"
