"""Real apt and dpkg in a debootstrap root, against a signed local repository in NVIDIA's layout."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import distro
import msgspec
import pytest
from support import debs, roots
from support.signing import SigningKey

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor, files
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages.planning import plan_package
from cudnn_doctor.install.plan import AnyStep, Plan, Run
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State, exclusive
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.machine.packages import probe_packages
from cudnn_doctor.machine.system import probe_system
from cudnn_doctor.matrix import load
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.report.recipe import to_shell

pytestmark = pytest.mark.root
MIRROR = "/srv/mirror"
NVIDIAS_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
PLACE = "compute/cuda/repos/debian12/x86_64"
STATE = State(Path("/var/lib/cudnn-doctor"), Path("/var/cache/cudnn-doctor"))
SOURCES = "/etc/apt/sources.list.d/cudnn-doctor-nvidia.sources"


@pytest.fixture(scope="session")
def key() -> SigningKey:
    return SigningKey()


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    """A minimal Debian with the mirror in it."""
    base = tmp_path_factory.mktemp("debian")
    root = base / "root"
    kept = os.environ.get("CUDNN_DOCTOR_TEST_DEBIAN")
    if kept:
        subprocess.run(["cp", "-a", kept, str(root)], check=True)
    else:
        command = ["debootstrap", "--variant=minbase", "bookworm", str(root)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    mirror = root / MIRROR.strip("/") / PLACE
    mirror.mkdir(parents=True)
    debs.build_packages(mirror, base)
    debs.sign_repository(mirror, key, "3bf863cc.pub")
    return root


@pytest.fixture
def root(tmp_path: Path, debian: Path) -> Path:
    subprocess.run(["cp", "-a", str(debian), str(tmp_path / "root")], check=True)
    return tmp_path / "root"


@pytest.fixture(scope="session")
def matrix(key: SigningKey) -> Matrix:
    """The real matrix, but for the key of Debian's repository."""
    real = load.load()
    rows = tuple(
        msgspec.structs.replace(row, key_fingerprint=key.fingerprint)
        if row.distro == "debian12"
        else row
        for row in real.repositories
    )
    return msgspec.structs.replace(real, repositories=rows)


# -- what runs inside the root


def look() -> Machine:
    importlib.reload(distro.distro)  # it remembers the os-release of the machine outside
    importlib.reload(distro)
    host = Host("/")
    packages, repositories, _ = probe_packages(host)
    return Machine(system=probe_system(host), packages=packages, repositories=repositories)


def plan(matrix: Matrix, version: str, **wishes: object) -> Plan:
    wanted = {"method": "package", "cuda": "12", "mirrors": (MIRROR,), **wishes}
    return plan_package(InstallRequest(version=version, **wanted), look(), matrix)  # type: ignore[arg-type]


def install(matrix: Matrix, version: str, **wishes: object) -> str:
    return str(executor.execute(plan(matrix, version, **wishes), STATE, Silent()))


def roll_back(receipt: str, *also: AnyStep) -> None:
    done = Journal.open(Path(receipt))
    numbered = [*enumerate(done.plan.steps)]
    steps = [s for n, step in reversed(numbered) for s in files.inverse(step, done.saved(n))]
    back = Plan(
        action="rollback",
        method="package",
        version="",
        cuda="",
        target="",
        steps=(*steps, *also),
        undoes="it",
    )
    executor.execute(back, STATE, Silent())


def recover() -> bool:
    with exclusive(STATE, wait=30):
        return executor.recover(STATE, Silent())


def versions() -> dict[str, str]:
    return {p.name: p.version + (" held" if p.held else "") for p in look().packages}


def shell(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def both(version: str) -> dict[str, str]:
    names = ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12", "libcudnn9-headers-cuda-12")
    return {**dict.fromkeys(names, f"{version}-1"), "libcublas-12-8": "12.8.4.1-1"}


def session(*calls: tuple[object, ...]) -> list[object]:
    """Call several functions inside the root, one after another."""
    return [function(*args) for function, *args in calls]  # type: ignore[operator]


# -- the tests


def test_the_exact_version_comes_with_its_repository_and_goes_again(
    root: Path, matrix: Matrix
) -> None:
    receipt = roots.inside(root, install, matrix, "9.10.2.21")
    assert roots.inside(root, versions) == both("9.10.2.21")
    sources = (root / SOURCES.strip("/")).read_text()
    assert "Signed-By: /usr/share/keyrings/cudnn-doctor-nvidia.asc" in sources
    assert not (root / "etc/apt/preferences.d/cudnn-doctor").exists()
    assert not list((root / "etc/apt/trusted.gpg.d").glob("*cudnn*"))
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == {}
    assert not (root / SOURCES.strip("/")).exists()
    assert not (root / "usr/share/keyrings/cudnn-doctor-nvidia.asc").exists()


def test_down_and_back_up_again(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.12.0.46")
    receipt = roots.inside(root, install, matrix, "9.1.0.70")
    assert roots.inside(root, versions) == both("9.1.0.70")
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46")


def held_install(matrix: Matrix) -> str:
    return install(matrix, "9.10.2.21", hold=True)


def test_held_packages_are_respected(root: Path, matrix: Matrix) -> None:
    roots.inside(root, held_install, matrix)
    assert roots.inside(root, versions)["libcudnn9-cuda-12"] == "9.10.2.21-1 held"
    with pytest.raises(DoctorError, match="held") as caught:
        roots.inside(root, plan, matrix, "9.12.0.46")
    assert "apt-mark unhold" in caught.value.next_step


def jit(matrix: Matrix) -> tuple[tuple[str, ...], str]:
    made = plan(matrix, "9.12.0.46", flavour="jit")
    return made.warnings, str(executor.execute(made, STATE, Silent()))


def test_full_gives_way_to_jit_with_a_warning_and_comes_back(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.12.0.46")
    warnings, receipt = roots.inside(root, jit, matrix)
    assert any("libcudnn9-cuda-12" in warning for warning in warnings)
    now = roots.inside(root, versions)
    assert now["libcudnn9-jit-cuda-12"] == "9.12.0.46-1"
    assert "libcudnn9-cuda-12" not in now
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46")


def test_cudnn_8_beside_9(root: Path, matrix: Matrix) -> None:
    roots.inside(root, session, (install, matrix, "9.12.0.46"), (install, matrix, "8.9.7.29"))
    now = roots.inside(root, versions)
    assert now["libcudnn8"] == "8.9.7.29-1+cuda12.2"
    assert now["libcudnn9-cuda-12"] == "9.12.0.46-1"


def test_a_hold_alone_is_taken_back_alone(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.10.2.21")
    roots.inside(root, shell, "apt-mark hold libcudnn9-dev-cuda-12")
    receipt = str(roots.inside(root, held_install, matrix))
    assert roots.inside(root, versions)["libcudnn9-cuda-12"] == "9.10.2.21-1 held"
    roots.inside(root, roll_back, receipt)
    dev = {"libcudnn9-dev-cuda-12": "9.10.2.21-1 held"}
    assert roots.inside(root, versions) == both("9.10.2.21") | dev


def warned_install(matrix: Matrix, version: str) -> tuple[tuple[str, ...], str]:
    made = plan(matrix, version)
    return made.warnings, str(executor.execute(made, STATE, Silent()))


def test_development_packages_of_two_majors_are_foreseen(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "8.9.7.29")
    header = "readlink -f /usr/include/cudnn.h"
    assert "cudnn_v8.h" in roots.inside(root, shell, header)
    warnings, receipt = roots.inside(root, warned_install, matrix, "9.12.0.46")
    assert any("libcudnn8-dev" in w and "update-alternatives" in w for w in warnings)
    assert "cudnn_v9.h" in roots.inside(root, shell, header)
    roots.inside(root, roll_back, receipt)
    assert "cudnn_v8.h" in roots.inside(root, shell, header)


def test_a_damaged_list_of_alternatives_is_foreseen(root: Path, matrix: Matrix) -> None:
    (root / "var/lib/dpkg/alternatives/libcudnn").touch()
    with pytest.raises(DoctorError, match="alternatives") as caught:
        roots.inside(root, install, matrix, "9.12.0.46")
    roots.inside(root, shell, caught.value.next_step.split("`")[1])
    roots.inside(root, install, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46")


def test_the_distributions_own_package_gives_way_and_comes_back(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.10.2.21")
    roots.inside(root, shell, "apt-get install -y nvidia-cudnn")
    roots.inside(root, shell, "dpkg --purge $(dpkg-query -Wf '${Package} ' 'libcu[bd]*')")
    warnings, receipt = roots.inside(root, warned_install, matrix, "9.12.0.46")
    assert any("nvidia-cudnn" in warning for warning in warnings)
    assert roots.inside(root, versions) == both("9.12.0.46")
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == {"nvidia-cudnn": "8.5.0.96~cuda11.7"}


def test_a_key_with_another_fingerprint_is_not_let_in(root: Path) -> None:
    before = sorted(str(p) for p in (root / "etc/apt").rglob("*"))
    with pytest.raises(DoctorError, match="fingerprint") as caught:
        roots.inside(root, install, load.load(), "9.10.2.21")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert sorted(str(p) for p in (root / "etc/apt").rglob("*")) == before
    assert roots.inside(root, versions) == {}


def test_an_index_altered_after_signing_is_refused(root: Path, matrix: Matrix) -> None:
    index = root / MIRROR.strip("/") / PLACE / "Packages"
    index.write_text(index.read_text() + "\n")
    with pytest.raises(DoctorError, match="apt-get failed"):
        roots.inside(root, install, matrix, "9.10.2.21")
    assert roots.inside(root, versions) == {}
    assert not (root / SOURCES.strip("/")).exists()


def test_another_distributions_repository_is_foreseen(root: Path, matrix: Matrix) -> None:
    line = "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/ /\n"
    (root / "etc/apt/sources.list.d/cuda.list").write_text(line)
    with pytest.raises(DoctorError, match="ubuntu2004"):
        roots.inside(root, plan, matrix, "9.10.2.21")


def test_what_depends_on_the_distributions_own_package_is_foreseen(
    root: Path, matrix: Matrix
) -> None:
    roots.inside(
        root,
        session,
        (install, matrix, "9.10.2.21"),
        (shell, "apt-get install -y a-framework"),
    )
    with pytest.raises(DoctorError, match="a-framework"):
        roots.inside(root, plan, matrix, "9.12.0.46")


def test_a_pin_of_the_administrator_is_foreseen(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.10.2.21")
    pin = "Package: libcublas*\nPin: version *\nPin-Priority: -1\n"
    (root / "etc/apt/preferences.d/mine").write_text(pin)
    roots.inside(root, shell, "dpkg --purge --force-all libcublas-12-8")
    with pytest.raises(DoctorError, match="libcublas"):
        roots.inside(root, plan, matrix, "9.12.0.46")


def become_nobody_and_plan(matrix: Matrix, version: str) -> Plan:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    return plan(matrix, version)


def test_a_plan_can_be_made_without_root_and_says_what_needs_it(root: Path, matrix: Matrix) -> None:
    first = roots.inside(root, become_nobody_and_plan, matrix, "9.10.2.21")
    assert {type(s).__name__ for s in first.steps if s.needs_root} >= {
        "FetchKey",
        "WriteFile",
        "Run",
    }
    roots.inside(root, install, matrix, "9.10.2.21")
    second = roots.inside(root, become_nobody_and_plan, matrix, "9.12.0.46")
    assert second.needs_root
    assert not [step for step in second.steps if type(step).__name__ == "FetchKey"]


def test_ubuntu_gets_ubuntus_repository(root: Path, matrix: Matrix, key: SigningKey) -> None:
    (root / "usr/lib/os-release").write_text('ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n')
    base = root / MIRROR.strip("/") / "compute/cuda/repos"
    (base / "debian12").rename(base / "ubuntu2404")
    rows = tuple(
        msgspec.structs.replace(row, key_fingerprint=key.fingerprint) for row in matrix.repositories
    )
    roots.inside(root, install, msgspec.structs.replace(matrix, repositories=rows), "9.10.2.21")
    assert "/repos/ubuntu2404/x86_64/" in (root / SOURCES.strip("/")).read_text()
    assert roots.inside(root, versions) == both("9.10.2.21")


def command(*arguments: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "cudnn_doctor", *arguments]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def ask(root: Path, key: SigningKey) -> list[str]:
    """Words of a command that installs from the mirror."""
    text = load.default_path().read_text().replace(NVIDIAS_KEY, key.fingerprint)
    (root / "srv/matrix.yaml").write_text(text)
    words = ["install", "--method", "package", "--cuda", "12", "--no-gpu"]
    return [*words, "--matrix", "/srv/matrix.yaml", "--mirror", MIRROR]


def test_the_commands_as_a_person_types_them(root: Path, ask: list[str]) -> None:
    ask += ["--version", "9.10.2"]
    code, told = roots.inside(root, command, *ask, "--dry-run")
    assert code == 0, told
    assert "libcudnn9-cuda-12 9.10.2.21-1" in told
    assert roots.inside(root, versions) == {}
    code, told = roots.inside(root, command, *ask, "--yes")
    assert code == 0, told
    assert roots.inside(root, versions) == both("9.10.2.21")
    code, told = roots.inside(root, command, "rollback", "--yes")
    assert code == 0, told
    assert roots.inside(root, versions) == {}


def test_a_lock_holds_the_next_machine_to_the_very_versions(
    root: Path, ask: list[str], key: SigningKey, tmp_path: Path
) -> None:
    ask += ["--yes", "--lock", "/srv/cudnn.lock"]
    code, told = roots.inside(root, command, *ask, "--version", "8.9.7")
    assert code == 0, told
    same = {"libcudnn8=8.9.7.29-1+cuda12.2", "libcudnn8-dev=8.9.7.29-1+cuda12.2"}
    assert set(json.loads((root / "srv/cudnn.lock").read_text())["pinned"]) == same
    roots.inside(root, shell, "dpkg --purge libcudnn8 libcudnn8-dev")
    folder = root / MIRROR.strip("/") / PLACE
    rebuilt = "8.9.7.29-1+cuda12.8"
    debs.build_deb(folder, "libcudnn8", rebuilt, {})
    debs.build_deb(folder, "libcudnn8-dev", rebuilt, {}, [f"Depends: libcudnn8 (= {rebuilt})"])
    debs.sign_repository(folder, key, "3bf863cc.pub")
    code, told = roots.inside(root, command, *ask, "--frozen")
    assert code == 0, told
    assert {f"{n}={v}" for n, v in roots.inside(root, versions).items()} == same
    roots.inside(root, shell, "dpkg --purge libcudnn8 libcudnn8-dev; apt-get clean")
    (folder / "libcudnn8_8.9.7.29-1+cuda12.2_amd64.deb").unlink()
    debs.sign_repository(folder, key, "3bf863cc.pub")
    code, told = roots.inside(root, command, *ask, "--frozen")
    assert code == ExitCode.NOTHING_CHANGED, told
    assert "8.9.7.29-1+cuda12.2" in told
    assert roots.inside(root, versions) == {}


def test_a_lock_names_what_came_along(root: Path, ask: list[str], key: SigningKey) -> None:
    ask += ["--yes", "--lock", "/srv/cudnn.lock"]
    assert roots.inside(root, command, *ask, "--version", "9.10.2")[0] == 0
    roots.inside(root, shell, "dpkg --purge $(dpkg-query -Wf '${Package} ' 'libcu[bd]*')")
    folder = root / MIRROR.strip("/") / PLACE
    debs.build_deb(folder, "libcublas-12-8", "12.8.9.9-1", {})
    debs.sign_repository(folder, key, "3bf863cc.pub")
    code, told = roots.inside(root, command, *ask, "--frozen")
    assert code == 0, told
    assert roots.inside(root, versions) == both("9.10.2.21")


def fresh(matrix: Matrix, version: str) -> str:
    return to_shell(plan(matrix, version, fresh=True))


def test_the_script_for_an_image_needs_nothing_but_apt(root: Path, matrix: Matrix) -> None:
    script = roots.inside(root, fresh, matrix, "9.10.2.21")
    assert "gpg" in script
    assert "cudnn_doctor" not in script
    roots.inside(root, shell, script)
    assert roots.inside(root, versions) == both("9.10.2.21")


@pytest.fixture
def only_the_newest(root: Path, matrix: Matrix, key: SigningKey) -> None:
    """9.1.0 is installed, and the repository has only 9.12.0 by now."""
    roots.inside(root, install, matrix, "9.1.0.70")
    folder = root / MIRROR.strip("/") / PLACE
    for old in folder.glob("libcudnn9*9.1*.deb"):
        if "9.12" not in old.name:
            old.unlink()
    debs.sign_repository(folder, key, "3bf863cc.pub")
    roots.inside(root, shell, "apt-get update; apt-get clean")


def state_of_files(root: Path) -> dict[str, str]:
    """What dpkg's database and the folders of cuDNN hold."""
    told = roots.inside(root, shell, "dpkg -V; dpkg --audit; dpkg-query -W 'libcudnn*'")
    scripts = sorted(p for p in (root / "var/lib/dpkg/info").glob("libcudnn*"))
    libraries = sorted((root / debs.FOLDER).glob("libcudnn*"))
    links = {str(p): os.readlink(p) for p in libraries if p.is_symlink()}
    found = (*scripts, *(p for p in libraries if not p.is_symlink()))
    return {"dpkg": told, **links, **{str(p): p.read_bytes().hex() for p in found}}


@pytest.mark.usefixtures("only_the_newest")
def test_a_version_that_is_no_longer_served_comes_back(root: Path, matrix: Matrix) -> None:
    before = state_of_files(root)
    receipt = roots.inside(root, install, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46")
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.1.0.70")
    assert state_of_files(root) == before
    assert not (root / "usr/lib/.cudnn-doctor-kept").exists()


def fail_to_roll_back(receipt: str) -> None:
    with pytest.raises(DoctorError, match="false failed"):
        roll_back(receipt, Run(argv=("false",)))


@pytest.mark.usefixtures("only_the_newest")
def test_a_rollback_that_fails_at_its_end_is_taken_back(root: Path, matrix: Matrix) -> None:
    receipt = roots.inside(root, install, matrix, "9.12.0.46")
    roots.inside(root, fail_to_roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46")
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.1.0.70")


@pytest.mark.usefixtures("only_the_newest")
def test_a_kill_on_the_way_from_a_version_that_is_no_longer_served(
    root: Path, matrix: Matrix
) -> None:
    before = state_of_files(root)
    start_and_kill(root, matrix, "9.12.0.46")
    assert roots.inside(root, recover)
    assert state_of_files(root) == before
    assert not (root / "usr/lib/.cudnn-doctor-kept").exists()


def unpacking(root: Path) -> bool:
    """dpkg is at work on the new version."""
    journal = root / "var/lib/cudnn-doctor/journal/log"
    updates = root / "var/lib/dpkg/updates"
    try:
        return "begin" in journal.read_text() and any(updates.iterdir())
    except OSError:
        return False


def half_written(root: Path) -> bool:
    """dpkg has written files under the names that they have before they are put into place."""
    return any((root / debs.FOLDER).glob("libcudnn*.dpkg-new"))


def start_and_kill(
    root: Path, matrix: Matrix, version: str, moment: Callable[[Path], bool] = unpacking
) -> None:
    child, reading = roots.start(root, install, matrix, version)
    deadline = time.monotonic() + 60
    while not moment(root) and time.monotonic() < deadline:
        time.sleep(0.0005)
    roots.kill(child)
    assert roots.result(child, reading) is None


def test_a_kill_in_the_middle_of_dpkg_is_mended(root: Path, matrix: Matrix) -> None:
    roots.inside(root, install, matrix, "9.1.0.70")
    start_and_kill(root, matrix, "9.12.0.46")
    assert roots.inside(root, recover)
    assert roots.inside(root, versions) == both("9.1.0.70")
    assert roots.inside(root, shell, "dpkg --audit") == ""
    roots.inside(root, install, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46")


def test_files_half_written_by_a_killed_dpkg_go(root: Path, matrix: Matrix) -> None:
    start_and_kill(root, matrix, "9.12.0.46", half_written)
    assert half_written(root)
    assert roots.inside(root, recover)
    assert roots.inside(root, versions) == {}
    assert not [*(root / debs.FOLDER).glob("libcudnn*")]
    assert roots.inside(root, shell, "dpkg --audit") == ""
    assert not (root / SOURCES.strip("/")).exists()
