"""Package plans as data: names, versions and repositories for described machines."""

from __future__ import annotations

import pytest

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.packages.planning import plan_package
from cudnn_doctor.install.plan import FetchKey, GuardSystem, Plan, Run, WriteFile
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.machine.model import Machine, Package, Repository, System
from cudnn_doctor.matrix import load
from cudnn_doctor.matrix.model import Matrix


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load.load()


def system(distro: str, version: str | None = None) -> System:
    return System(distro_id=distro, distro_version=version)


def fresh(matrix: Matrix, machine: System, version: str, cuda: str, **wishes: object) -> Plan:
    wanted = {"method": "package", "version": version, "cuda": cuda, "fresh": True, **wishes}
    request = InstallRequest(**wanted)  # type: ignore[arg-type]
    return plan_package(request, Machine(system=machine), matrix)


def words(plan: Plan) -> list[str]:
    return [word for step in plan.steps if isinstance(step, Run) for word in step.argv]


@pytest.mark.parametrize(
    ("machine", "version", "cuda", "expected"),
    [
        (system("ubuntu", "22.04"), "9.10.2.21", "12", "libcudnn9-dev-cuda-12=9.10.2.21-1"),
        (system("ubuntu", "24.04"), "9.12.0.46", "13", "libcudnn9-cuda-13=9.12.0.46-1"),
        (system("debian", "12"), "8.9.7.29", "12", "libcudnn8-dev=8.9.7.29-1+cuda12.*"),
        (system("rocky", "9.4"), "9.10.2.21", "12", "libcudnn9-devel-cuda-12-9.10.2.21-1"),
        (system("fedora", "42"), "9.12.0.46", "13", "libcudnn9-cuda-13-9.12.0.46-1"),
        (system("opensuse-leap", "15.6"), "9.10.2.21", "12", "libcudnn9-cuda-12=9.10.2.21-1"),
        (system("sles", "15.5"), "9.12.0.46", "12", "libcudnn9-devel-cuda-12=9.12.0.46-1"),
    ],
)
def test_names_and_versions(
    matrix: Matrix, machine: System, version: str, cuda: str, expected: str
) -> None:
    plan = fresh(matrix, machine, version, cuda)
    assert expected in words(plan)
    (key,) = (step for step in plan.steps if isinstance(step, FetchKey))
    assert len(key.fingerprint) == 40
    assert key.urls[0].startswith("https://")
    assert plan.needs_root


def test_the_run_time_alone(matrix: Matrix) -> None:
    plan = fresh(matrix, system("ubuntu", "24.04"), "9.12.0.46", "12", dev=False)
    assert not [word for word in words(plan) if "-dev" in word]


def test_the_sbsa_repository(matrix: Matrix) -> None:
    plan = fresh(
        matrix, system("ubuntu", "24.04"), "9.12.0.46", "13", platform="linux-sbsa", mirrors=()
    )
    (file,) = (s for s in plan.steps if isinstance(s, WriteFile) and s.path.endswith(".sources"))
    assert "/repos/ubuntu2404/sbsa/\n" in file.content
    (key,) = (step for step in plan.steps if isinstance(step, FetchKey))
    assert f"\nSigned-By: {key.path}\n" in file.content


@pytest.mark.parametrize(
    "machine",
    [system("ubuntu", "26.04"), system("debian", "9"), system("alpine", "3.20"), System()],
)
def test_without_a_repository_or_its_key_there_is_no_plan(matrix: Matrix, machine: System) -> None:
    with pytest.raises(DoctorError) as caught:
        fresh(matrix, machine, "9.12.0.46", "12")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert "tarball" in caught.value.next_step


def test_a_configured_repository_is_used_and_a_held_package_is_not_touched(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no-programs")  # nobody rehearses
    url = "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64"
    known = Repository(manager="dnf", url=url, file="/etc/yum.repos.d/cuda.repo", distro="rhel9")
    machine = Machine(system=system("rhel", "9.4"), repositories=(known,))
    request = InstallRequest(method="package", version="9.10.2.21", cuda="12")
    plan = plan_package(request, machine, matrix)
    assert not [step for step in plan.steps if isinstance(step, FetchKey | WriteFile)]
    held = Package(
        name="libcudnn9-cuda-12",
        version="9.1.0.70-1",
        manager="rpm",
        held=True,
        held_by="/etc/dnf/versionlock.toml",
        lock="libcudnn9-cuda-12",
    )
    machine = Machine(system=system("rhel", "9.4"), repositories=(known,), packages=(held,))
    with pytest.raises(DoctorError, match="held") as caught:
        plan_package(request, machine, matrix)
    assert "versionlock delete" in caught.value.next_step


def test_the_space_that_a_package_takes_is_asked_for_roughly(matrix: Matrix) -> None:
    needed = fresh(matrix, system("ubuntu", "22.04"), "9.10.2.21", "12").space_needed
    assert 10**9 < needed["/usr"] < 4 * 10**9
    assert needed["/usr"] > needed["/var/cache"] > 5 * 10**8


def test_what_is_replaced_is_kept_and_the_space_for_its_return_asked_for(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no-programs")
    names = ("libcudnn9-cuda-12", "libcudnn9-headers-cuda-12", "libcudnn8", "libcublas-12-8")
    old = tuple(Package(name=name, version="9.1.0.70-1", manager="dpkg") for name in names)
    request = InstallRequest(method="package", version="9.10.2.21", cuda="12")
    ubuntu = system("ubuntu", "22.04")
    first = plan_package(request, Machine(system=ubuntu), matrix)
    second = plan_package(request, Machine(system=ubuntu, packages=old), matrix)
    kept = [step.keep for step in second.steps if isinstance(step, GuardSystem)]
    assert kept == [(), ("libcudnn8", "libcudnn9-cuda-12", "libcudnn9-headers-cuda-12")]
    assert second.space_needed["/usr"] == 2 * first.space_needed["/usr"]


def test_what_cannot_be_kept_is_told_in_the_plan(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no-programs")  # no rpmdb either
    old = (Package(name="libcudnn9-cuda-12", version="9.1.0.70-1", manager="rpm"),)
    request = InstallRequest(method="package", version="9.10.2.21", cuda="12")
    plan = plan_package(request, Machine(system=system("rhel", "9.4"), packages=old), matrix)
    assert any("libcudnn9-cuda-12 cannot be kept" in warning for warning in plan.warnings)
    assert not any(isinstance(step, GuardSystem) and step.keep for step in plan.steps)


@pytest.mark.parametrize(("nvidias", "told"), [(None, ["own"]), (5, []), (200, ["own", "base"])])
def test_a_repository_that_goes_before_nvidias_is_told_in_the_plan(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, nvidias: int | None, told: list[str]
) -> None:
    monkeypatch.setenv("PATH", "/no-programs")
    url = "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64"
    known = Repository(manager="dnf", url=url, file="/c.repo", distro="rhel9", priority=nvidias)
    others = (("dnf", "own", 10), ("dnf", "base", 99), ("zypper", "else", 1))
    machine = Machine(
        system=system("rhel", "9.4"),
        repositories=(known,) if nvidias else (),
        preferred=tuple(
            Repository(manager=manager, name=name, file="/o.repo", priority=priority)
            for manager, name, priority in others
        ),
    )
    request = InstallRequest(method="package", version="9.10.2.21", cuda="12")
    warnings = plan_package(request, machine, matrix).warnings
    assert [name for _, name, _ in others if f" {name} (priority" in "".join(warnings)] == told


@pytest.mark.parametrize(
    ("wishes", "there", "told"),
    [
        ({}, "nvidia-cudnn", "removes nvidia-cudnn: it excludes"),
        ({}, "libcudnn9-jit-cuda-12", "removes libcudnn9-jit-cuda-12: it excludes"),
        ({"flavour": "jit"}, "libcudnn9-cuda-12", "removes libcudnn9-cuda-12: it excludes"),
        ({}, "libcudnn8-dev", "libcudnn8-dev is there too: cudnn.h and libcudnn.so are"),
    ],
)
def test_what_is_in_the_way_is_foreseen(
    matrix: Matrix,
    monkeypatch: pytest.MonkeyPatch,
    wishes: dict[str, str],
    there: str,
    told: str,
) -> None:
    monkeypatch.setenv("PATH", "/no-programs")
    machine = Machine(
        system=system("ubuntu", "24.04"),
        packages=(Package(name=there, version="8.9.7.29-1+cuda12.2", manager="dpkg"),),
    )
    wanted = {"method": "package", "version": "9.12.0.46", "cuda": "12", **wishes}
    plan = plan_package(InstallRequest(**wanted), machine, matrix)  # type: ignore[arg-type]
    assert told in "\n".join(plan.warnings)
    assert (f"{there}-" in words(plan)) == told.startswith("removes")


def test_the_repository_of_another_release_is_foreseen(matrix: Matrix) -> None:
    url = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/"
    other = Repository(manager="apt", url=url, file="/a.list", distro="ubuntu2204")
    machine = Machine(system=system("ubuntu", "24.04"), repositories=(other,))
    request = InstallRequest(method="package", version="9.12.0.46", cuda="12")
    with pytest.raises(DoctorError, match="ubuntu2204 is configured") as caught:
        plan_package(request, machine, matrix)
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert "/a.list" in caught.value.next_step
