"""Real dnf, zypper and rpm with a database of their own, against a signed local repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from support import roots, rpms
from support.signing import SigningKey

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor, files, lock, state
from cudnn_doctor.install.choose import Wish
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages.dnf import Dnf
from cudnn_doctor.install.packages.manager import output_of
from cudnn_doctor.install.packages.planning import plan_package
from cudnn_doctor.install.plan import AnyStep, Plan, Run
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State, exclusive
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import rpm
from cudnn_doctor.machine.model import Machine, System
from cudnn_doctor.machine.repositories import probe_repositories
from cudnn_doctor.matrix import load
from cudnn_doctor.matrix.model import Matrix

pytestmark = pytest.mark.root
MIRROR = "/srv/mirror"
STATE = State(Path("/srv/state"), Path("/srv/cache"))
SYSTEMS = {
    "dnf": System(distro_id="rocky", distro_version="9.4", distro_like=("rhel", "fedora")),
    "zypper": System(distro_id="opensuse-leap", distro_version="15.6", distro_like=("suse",)),
}
VERIFY = "rpm -Va --nosignature --nodeps | grep -v glibc || true"
DISTROS = {"dnf": "rhel9", "zypper": "opensuse15"}


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey()


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    return make_mirror(tmp_path_factory.mktemp("rpms"), key)


def make_mirror(base: Path, key: SigningKey, *, build_ids: bool = False) -> Path:
    folder = base / "repository"
    folder.mkdir()
    rpms.build_packages(folder, base, build_ids=build_ids)
    rpms.sign_repository(folder, key, "D42D0685.pub")
    return folder


@pytest.fixture(params=["dnf", "zypper"])
def manager(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not here")
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path, mirror: Path, manager: str) -> roots.Overlay:
    """This machine's root with an empty rpm database where distributions of rpm keep it."""
    overlay = roots.Overlay(tmp_path)
    place = overlay.upper / MIRROR.strip("/") / "compute/cuda/repos" / DISTROS[manager] / "x86_64"
    shutil.copytree(mirror, place)
    (overlay.upper / "etc/rpm").mkdir(parents=True)
    (overlay.upper / "etc/rpm/macros").write_text("%_dbpath /var/lib/rpm\n")
    roots.inside(overlay, prepare)
    return overlay


@pytest.fixture(scope="module")
def matrix(key: SigningKey) -> Matrix:
    """The real matrix, but for the keys."""
    real = load.load()
    rows = tuple(
        msgspec.structs.replace(row, key_fingerprint=key.fingerprint) for row in real.repositories
    )
    return msgspec.structs.replace(real, repositories=rows)


# -- what runs inside the root


def prepare() -> None:
    shutil.rmtree("/var/lib/rpm", ignore_errors=True)
    subprocess.run(["rpm", "--initdb"], check=True)
    (glibc,) = Path(MIRROR).glob("compute/cuda/repos/*/x86_64/glibc-*.rpm")
    subprocess.run(["rpm", "--install", "--nosignature", str(glibc)], check=True)


def look(manager: str) -> Machine:
    host = Host("/")
    packages, repositories = rpm.installed(host), probe_repositories(host)
    return Machine(system=SYSTEMS[manager], packages=packages, repositories=repositories)


def plan(manager: str, matrix: Matrix, version: str, wishes: dict[str, object]) -> Plan:
    wanted = {"method": "package", "cuda": "12", "mirrors": (MIRROR,), **wishes}
    request = InstallRequest(version=version, **wanted)  # type: ignore[arg-type]
    return plan_package(request, look(manager), matrix)


def install(manager: str, matrix: Matrix, version: str, **wishes: object) -> str:
    return str(executor.execute(plan(manager, matrix, version, wishes), STATE, Silent()))


def hold(manager: str, matrix: Matrix, version: str) -> str:
    return install(manager, matrix, version, hold=True)


def jit(manager: str, matrix: Matrix, version: str) -> tuple[tuple[str, ...], str]:
    made = plan(manager, matrix, version, {"flavour": "jit"})
    return made.warnings, str(executor.execute(made, STATE, Silent()))


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
    command = ["rpm", "-qa", "--qf", "%{NAME} %{VERSION}\\n"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in told.splitlines() if not line.startswith("glibc ")]
    assert len({name for name, _ in rows}) == len(rows), "a package is there twice"
    return dict(rows)  # type: ignore[arg-type]


def shell(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def both(version: str, key: SigningKey) -> dict[str, str]:
    return {
        "libcudnn9-cuda-12": version,
        "libcudnn9-devel-cuda-12": version,
        "libcublas-12-8": "12.8.4.1",
        "gpg-pubkey": key.fingerprint[-8:].lower(),
    }


# -- the tests


def test_the_exact_version_comes_with_its_repository_and_goes_again(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    receipt = roots.inside(root, install, manager, matrix, "9.10.2.21")
    assert roots.inside(root, versions) == both("9.10.2.21", key)
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == {}
    assert not list(root.upper.glob("etc/*/*.repo"))


def test_down_and_back_up_again(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    roots.inside(root, install, manager, matrix, "9.12.0.46")
    receipt = roots.inside(root, install, manager, matrix, "9.1.0.70")
    assert roots.inside(root, versions) == both("9.1.0.70", key)
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46", key)


def test_full_gives_way_to_jit_with_a_warning_and_comes_back(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    roots.inside(root, install, manager, matrix, "9.12.0.46")
    warnings, receipt = roots.inside(root, jit, manager, matrix, "9.12.0.46")
    assert any("libcudnn9-cuda-12" in warning for warning in warnings)
    assert roots.inside(root, versions)["libcudnn9-jit-cuda-12"] == "9.12.0.46"
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46", key)


def test_a_key_with_another_fingerprint_is_not_let_in(root: roots.Overlay, manager: str) -> None:
    with pytest.raises(DoctorError, match="fingerprint") as caught:
        roots.inside(root, install, manager, load.load(), "9.10.2.21")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert roots.inside(root, versions) == {}


def test_a_package_that_is_not_signed_by_that_key_is_refused(
    root: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    folder = next(root.upper.glob("srv/mirror/compute/cuda/repos/*/x86_64"))
    rpms.sign_repository(folder, SigningKey(), "x.pub")
    with pytest.raises(DoctorError, match="failed"):
        roots.inside(root, install, manager, matrix, "9.10.2.21")
    assert roots.inside(root, versions) == {}


def test_what_would_lose_another_package_is_foreseen(
    root: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    roots.inside(root, install, manager, matrix, "9.12.0.46")
    argv = {"dnf": "dnf -y install", "zypper": "zypper -n install"}[manager]
    roots.inside(root, shell, f"{argv} a-framework")
    with pytest.raises(DoctorError, match="a-framework"):
        roots.inside(root, plan, manager, matrix, "9.12.0.46", {"flavour": "jit"})


def unpacking(root: roots.Overlay) -> bool:
    """rpm is at work on the new version."""
    folder = root.upper / "usr/lib64"
    return folder.is_dir() and any("9.12.0" in name for name in os.listdir(folder))


def linked(root: roots.Overlay) -> bool:
    """rpm has put the new version into place."""
    link = root.upper / "usr/lib64/libcudnn.so.9"
    return link.is_symlink() and "9.12.0" in os.readlink(link)


def next_package(root: roots.Overlay) -> bool:
    """rpm has written the package that comes next."""
    header = root.upper / "usr/include/cudnn_version_v9.h"
    return header.is_file() and "MINOR 12" in header.read_text()


def unlike_old(path: Path) -> bool:
    """A remainder of the new version (not a mark of the overlay that something is gone)."""
    return path.is_file() and ("9.12.0" in path.name or ";" in path.name)


def start_and_kill(
    root: roots.Overlay, manager: str, matrix: Matrix, moment: Callable[[roots.Overlay], bool]
) -> None:
    """Begin to install 9.12.0 and kill everything at that moment."""
    child, reading = roots.start(root, install, manager, matrix, "9.12.0.46")
    deadline = time.monotonic() + 60
    while not moment(root) and time.monotonic() < deadline:
        time.sleep(0.0005)
    roots.kill(child)
    assert roots.result(child, reading) is None


@pytest.mark.parametrize("moment", [unpacking, linked, next_package])
def test_a_kill_in_the_middle_of_rpm_is_mended(
    root: roots.Overlay,
    manager: str,
    matrix: Matrix,
    key: SigningKey,
    moment: Callable[[roots.Overlay], bool],
) -> None:
    roots.inside(root, install, manager, matrix, "9.1.0.70")
    start_and_kill(root, manager, matrix, moment)
    assert roots.inside(root, recover)
    assert roots.inside(root, versions) == both("9.1.0.70", key)
    assert roots.inside(root, shell, VERIFY) == ""
    assert not [p for p in (root.upper / "usr/lib64").iterdir() if unlike_old(p)]
    roots.inside(root, install, manager, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46", key)


@pytest.mark.parametrize("moment", [unpacking, linked, next_package])
def test_a_kill_between_packages_that_share_links_of_build_ids(
    root: roots.Overlay,
    manager: str,
    matrix: Matrix,
    key: SigningKey,
    tmp_path_factory: pytest.TempPathFactory,
    moment: Callable[[roots.Overlay], bool],
) -> None:
    folder = make_mirror(tmp_path_factory.mktemp("ids"), key, build_ids=True)
    place = next(root.upper.glob("srv/mirror/compute/cuda/repos/*/x86_64"))
    shutil.copytree(folder, place, dirs_exist_ok=True)
    roots.inside(root, install, manager, matrix, "9.1.0.70")
    assert "/.build-id/" in roots.inside(root, shell, "rpm -ql libcudnn9-cuda-12")
    before = roots.inside(root, database)
    start_and_kill(root, manager, matrix, moment)
    assert roots.inside(root, recover)
    assert roots.inside(root, database) == before
    roots.inside(root, install, manager, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46", key)


@pytest.fixture
def only_the_newest(root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey) -> None:
    """9.1.0 is installed, and the repository has only 9.12.0 by now."""
    roots.inside(root, install, manager, matrix, "9.1.0.70")
    folder = next(root.upper.glob("srv/mirror/compute/cuda/repos/*/x86_64"))
    for old in (*folder.glob("libcudnn9-*-9.1.*.rpm"), *folder.glob("libcudnn9-*-9.10.*.rpm")):
        old.unlink()
    rpms.sign_repository(folder, key, "x.pub")
    clean = {"dnf": "dnf clean all; dnf makecache", "zypper": "zypper clean -a; zypper refresh"}
    roots.inside(root, shell, clean[manager])


def database() -> str:
    """What rpm's database says of cuDNN, but for the times, and whether the files are so."""
    tags = (
        "%{NEVRA} %{SHA256HEADER} %{SIGPGP:pgpsig} %{RSAHEADER:pgpsig} %{PAYLOADDIGEST} %{VENDOR}"
    )
    return shell(f"rpm -qa --qf '{tags}\\n' 'libcudnn*' | sort; {VERIFY}")


@pytest.mark.usefixtures("only_the_newest")
def test_a_version_that_is_no_longer_served_comes_back(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    before = roots.inside(root, database)
    receipt = roots.inside(root, install, manager, matrix, "9.12.0.46")
    assert roots.inside(root, versions) == both("9.12.0.46", key)
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.1.0.70", key)
    assert roots.inside(root, database) == before
    assert not (root.upper / "usr/lib/.cudnn-doctor-kept").is_dir()


def fail_to_roll_back(receipt: str) -> None:
    with pytest.raises(DoctorError, match="false failed"):
        roll_back(receipt, Run(argv=("false",)))


def test_a_rollback_that_fails_at_its_end_is_taken_back(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    first = roots.inside(root, install, manager, matrix, "9.1.0.70")
    roots.inside(root, fail_to_roll_back, first)
    assert roots.inside(root, versions) == both("9.1.0.70", key)
    receipt = roots.inside(root, install, manager, matrix, "9.12.0.46")
    roots.inside(root, fail_to_roll_back, receipt)
    assert roots.inside(root, versions) == both("9.12.0.46", key)
    roots.inside(root, roll_back, receipt)
    roots.inside(root, roll_back, first)
    assert roots.inside(root, versions) == {}


@pytest.fixture
def layer(root: roots.Overlay, only_the_newest: None) -> Iterator[roots.Overlay]:
    """An upper layer over all that; on another file system, as layers must not overlap."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        subprocess.run(["cp", "-a", str(root.upper), f"{folder}/below"], check=True)
        yield roots.Overlay(Path(folder, "layer"), (Path(folder, "below"),))


def test_what_a_lower_layer_of_an_image_holds_comes_back(
    layer: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    before = roots.inside(layer, database)
    receipt = roots.inside(layer, install, manager, matrix, "9.12.0.46")
    roots.inside(layer, roll_back, receipt)
    assert roots.inside(layer, database) == before
    start_and_kill(layer, manager, matrix, unpacking)
    assert roots.inside(layer, recover)
    assert roots.inside(layer, database) == before


@pytest.mark.usefixtures("only_the_newest")
def test_full_that_is_no_longer_served_comes_back_for_jit(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    _, receipt = roots.inside(root, jit, manager, matrix, "9.12.0.46")
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == both("9.1.0.70", key)


@pytest.mark.parametrize("moment", [unpacking, linked, next_package])
@pytest.mark.usefixtures("only_the_newest")
def test_a_kill_on_the_way_from_a_version_that_is_no_longer_served(
    root: roots.Overlay,
    manager: str,
    matrix: Matrix,
    moment: Callable[[roots.Overlay], bool],
) -> None:
    before = roots.inside(root, database)
    start_and_kill(root, manager, matrix, moment)
    assert roots.inside(root, recover)
    assert roots.inside(root, database) == before
    assert not [p for p in (root.upper / "usr/lib64").iterdir() if unlike_old(p)]


def install_with_lock(manager: str, matrix: Matrix, version: str) -> None:
    request = InstallRequest(method="package", version=version, cuda="12", mirrors=(MIRROR,))
    made = plan_package(request, look(manager), matrix)
    with exclusive(state.locate()):
        executor.execute(made, state.locate(), Silent(), locked=True)
    lock.write("/srv/cudnn.lock", request, made, matrix)


def install_frozen(manager: str, matrix: Matrix) -> None:
    locked = lock.read("/srv/cudnn.lock")
    request = lock.request_from(locked, Wish(mirrors=(MIRROR,)))
    made = plan_package(request, look(manager), matrix)
    lock.verify(locked, made)
    executor.execute(made, STATE, Silent())


def test_a_lock_holds_the_next_machine_to_the_very_versions(
    root: roots.Overlay, manager: str, matrix: Matrix, key: SigningKey
) -> None:
    roots.inside(root, install_with_lock, manager, matrix, "9.10.2.21")
    roots.inside(root, shell, "rpm -e --nodeps $(rpm -qa 'libcu*')")
    folder = next(root.upper.glob("srv/mirror/compute/cuda/repos/*/x86_64"))
    rpms.build_rpm(folder, "libcublas-12-8", "12.8.9.9", {})
    rpms.sign_repository(folder, key, "x.pub")
    roots.inside(root, install_frozen, manager, matrix)
    assert roots.inside(root, versions) == both("9.10.2.21", key)
    roots.inside(root, shell, "rpm -e --nodeps $(rpm -qa 'libcu*')")
    next(folder.glob("libcudnn9-cuda-12-9.10.2.21*.rpm")).unlink()
    rpms.sign_repository(folder, key, "x.pub")
    with pytest.raises(DoctorError, match=r"9\.10\.2\.21"):
        roots.inside(root, install_frozen, manager, matrix)
    assert not roots.inside(root, versions).keys() - {"gpg-pubkey"}


LOCKS = {"dnf": "dnf versionlock list", "zypper": "zypper locks"}


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of dnf's plugins, whose package cannot be installed beside zypper."""
    folder = tmp_path_factory.mktemp("plugins")
    subprocess.run(["apt-get", "download", "dnf-plugins-core"], cwd=folder, check=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "tree")], check=True)
    return folder / "tree"


@pytest.fixture
def lockable(root: roots.Overlay, manager: str, request: pytest.FixtureRequest) -> None:
    if manager == "dnf":
        tree = request.getfixturevalue("plugins")
        roots.inside(root, shell, f"cp -a {tree}/. /")


@pytest.mark.usefixtures("lockable")
def test_held_packages_are_respected_and_released_by_a_rollback(
    root: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    receipt = roots.inside(root, hold, manager, matrix, "9.10.2.21")
    assert "libcudnn9-cuda-12" in roots.inside(root, shell, LOCKS[manager])
    with pytest.raises(DoctorError, match=r"held.*libcudnn9-cuda-12 9\.10\.2") as caught:
        roots.inside(root, plan, manager, matrix, "9.12.0.46", {})
    lock = {"dnf": "versionlock.list: ", "zypper": "/etc/zypp/locks: libcudnn9-cuda-12"}
    assert lock[manager] in caught.value.where
    release = caught.value.next_step.split("`")[1::2]
    roots.inside(root, plan, manager, matrix, "9.10.2.21", {})
    roots.inside(root, roll_back, receipt)
    assert "cudnn" not in roots.inside(root, shell, LOCKS[manager])
    roots.inside(root, hold, manager, matrix, "9.10.2.21")
    roots.inside(root, shell, "; ".join(release))
    roots.inside(root, plan, manager, matrix, "9.12.0.46", {})


@pytest.mark.usefixtures("lockable")
def test_a_lock_on_all_of_cudnn_is_named(root: roots.Overlay, manager: str, matrix: Matrix) -> None:
    roots.inside(root, install, manager, matrix, "9.10.2.21")
    add = {"dnf": "dnf -y versionlock add --raw 'libcudnn*'", "zypper": "zypper -n al 'libcudnn*'"}
    roots.inside(root, shell, add[manager])
    with pytest.raises(DoctorError, match="held") as caught:
        roots.inside(root, plan, manager, matrix, "9.12.0.46", {})
    assert "libcudnn*" in caught.value.where


def test_without_dnfs_plugin_holding_is_refused_before_anything(
    root: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    if manager == "zypper":
        pytest.skip("zypper can always hold")
    with pytest.raises(DoctorError, match="versionlock plugin"):
        roots.inside(root, hold, manager, matrix, "9.10.2.21")
    assert roots.inside(root, versions) == {}


def pack_again(package: Path, name: str) -> str:
    """Install a package, pack it again, and install that in its place; what rpm finds wrong."""
    shell(f"rpm --install --nodeps --nosignature {package}")
    scratch = Path("/srv/again")
    for path in shell(f"rpm -ql {name}").split():
        target = scratch / "root" / path.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target, follow_symlinks=False)
    Dnf().describe(f"{name}.x86_64", "1.0-1", scratch)
    shell(f"rpm --erase {name}")
    again = Dnf().repack(scratch, "/srv/packed")
    for argv in Dnf().restore({}, (), {f"{name}.x86_64": again}):
        subprocess.run(argv, check=True)
    return shell(f"rpm -V {name}; rpm -ql {name}")


@pytest.mark.parametrize("payload", ["w3.gzdio", "w1.xzdio", "w1.zstdio", "w1.bzdio", "w1.lzdio"])
def test_a_package_is_packed_again_whatever_compresses_it(
    root: roots.Overlay, manager: str, tmp_path: Path, payload: str
) -> None:
    if manager == "zypper":
        pytest.skip("the same for both")
    library = tmp_path / "library"
    library.write_bytes(os.urandom(300_000) * 5)
    (tmp_path / "link").symlink_to("liba.so")
    (tmp_path / "empty").touch()
    files = {"usr/lib64/liba.so": library, "usr/lib64/libb.so": tmp_path / "link"}
    files["usr/lib64/empty"] = tmp_path / "empty"
    folder = root.upper / "srv/packages"
    folder.mkdir()
    rpms.build_rpm(folder, "packed", "1.0", files, [f"%global _binary_payload {payload}"])
    told = roots.inside(root, pack_again, Path("/srv/packages/packed-1.0-1.x86_64.rpm"), "packed")
    assert told.split() == [f"/{place}" for place in sorted(files)]


def settle_a_package_that_is_there_twice() -> tuple[str, ...]:
    """As a kill leaves it between the installation of the new and the removal of the old one."""
    database = Dnf()
    before = database.parse_installed(output_of(database.installed()))
    (newer,) = Path(MIRROR).glob("compute/cuda/repos/*/x86_64/libcudnn9-cuda-12-9.12*.rpm")
    shell(f"rpm --install --justdb --nodeps --force --nosignature {newer}")
    now = database.parse_installed(output_of(database.installed()))
    for argv in database.outdated(before, now):
        subprocess.run(argv, check=True)
    return tuple(shell("rpm -qa 'libcudnn9-cuda-12'").split())


def test_the_old_one_of_a_package_that_is_there_twice_goes(
    root: roots.Overlay, manager: str, matrix: Matrix
) -> None:
    roots.inside(root, install, manager, matrix, "9.1.0.70")
    left = roots.inside(root, settle_a_package_that_is_there_twice)
    assert left == ("libcudnn9-cuda-12-9.12.0.46-1.x86_64",)


STALE = """#!/bin/sh
case "$*" in
*--rebuilddb*) touch /srv/rebuilt; exec /srv/real/rpm "$@" ;;
esac
[ -e /srv/rebuilt ] || { echo "error: BDB1507 Thread died in Berkeley DB library" >&2; exit 1; }
exec /srv/real/rpm "$@"
"""


def mend_a_database_with_stale_locks() -> list[tuple[tuple[str, ...], ...]]:
    """Berkeley DB, which rpm had until 4.16, refuses to go on after a kill."""
    shell("mkdir /srv/real; mv /usr/bin/rpm /srv/real/")
    Path("/usr/bin/rpm").write_text(STALE)
    Path("/usr/bin/rpm").chmod(0o755)
    first = Dnf().mend()
    for argv in first:
        subprocess.run(argv, check=True)
    return [first, Dnf().mend()]


def test_a_database_that_a_kill_left_unreadable_is_rebuilt(
    root: roots.Overlay, manager: str
) -> None:
    if manager == "dnf":
        commands = roots.inside(root, mend_a_database_with_stale_locks)
        assert commands == [(("rpm", "--rebuilddb"),), ()]
