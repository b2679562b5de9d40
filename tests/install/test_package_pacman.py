"""Real pacman with a database of its own, against a signed local repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import arch, roots
from support.signing import SigningKey

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.install import executor, files
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages.pacman import Pacman
from cudnn_doctor.install.packages.planning import plan_package
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State, exclusive
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import pacman
from cudnn_doctor.machine.model import Machine, System
from cudnn_doctor.matrix import load

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("pacman") is None, reason="pacman is not here"),
]
STATE = State(Path("/srv/state"), Path("/srv/cache"))
WHAT = "pacman -Qi cudnn | grep -v 'Install Date\\|Validated'; pacman -Ql cudnn; pacman -Qkk cudnn"
CONFIG = """
[options]
Architecture = auto
SigLevel = Required TrustAll
LocalFileSigLevel = Optional
[extra]
Server = file:///srv/mirror
"""


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey()


@pytest.fixture
def root(tmp_path: Path, key: SigningKey) -> roots.Overlay:
    overlay = roots.Overlay(tmp_path)
    mirror = overlay.upper / "srv/mirror"
    mirror.mkdir(parents=True)
    arch.publish(mirror, "9.20.0.48", tmp_path, key)
    (overlay.upper / "etc").mkdir()
    (overlay.upper / "etc/pacman.conf").write_text(CONFIG)
    keys = overlay.upper / "etc/pacman.d/gnupg"
    keys.mkdir(parents=True, mode=0o700)
    (keys / "pubring.gpg").write_bytes(key.public(armoured=False))
    fresh = "rm -rf /var/lib/pacman; mkdir -p /var/lib/pacman"
    roots.inside(overlay, shell, f"{fresh}; pacman -Sy --noconfirm filesystem")
    return overlay


# -- what runs inside the root


def look() -> Machine:
    return Machine(
        system=System(distro_id="arch", package_managers=("pacman",)),
        packages=pacman.installed(Host("/")),
    )


def plan(version: str, exact: str = "") -> Plan:
    packages = {"cudnn": exact} if exact else {}
    request = InstallRequest(method="package", version=version, cuda="13", packages=packages)
    return plan_package(request, look(), load.load())


def install(version: str) -> str:
    return str(executor.execute(plan(version), STATE, Silent()))


def roll_back(receipt: str) -> None:
    done = Journal.open(Path(receipt))
    numbered = [*enumerate(done.plan.steps)]
    steps = [s for n, step in reversed(numbered) for s in files.inverse(step, done.saved(n))]
    back = Plan(
        action="rollback",
        method="package",
        version="",
        cuda="",
        target="",
        steps=tuple(steps),
        undoes="it",
    )
    executor.execute(back, STATE, Silent())


def versions() -> dict[str, str]:
    return {p.name: p.version for p in look().packages}


def shell(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- the tests


def test_the_repositorys_version_comes_and_goes_again(root: roots.Overlay) -> None:
    receipt = roots.inside(root, install, "9.20.0.48")
    assert roots.inside(root, versions) == {"cuda": "13.0.2-1", "cudnn": "9.20.0.48-1"}
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions) == {}


def test_another_version_than_the_repositorys_is_foreseen(root: roots.Overlay) -> None:
    with pytest.raises(DoctorError, match=r"9\.20\.0\.48-1 only, not 9\.21\.0"):
        roots.inside(root, plan, "9.21.0.82")


def hold() -> Plan:
    request = InstallRequest(method="package", version="9.20.0.48", cuda="13", hold=True)
    return plan_package(request, look(), load.load())


def test_holding_is_told_not_done(root: roots.Overlay) -> None:
    with pytest.raises(DoctorError, match="IgnorePkg = cudnn"):
        roots.inside(root, hold)


@pytest.mark.parametrize("line", ["IgnorePkg = linux cud*", "IgnoreGroup = nvidia"])
def test_a_package_that_pacman_ignores_is_not_upgraded(
    root: roots.Overlay, key: SigningKey, tmp_path: Path, line: str
) -> None:
    roots.inside(root, install, "9.20.0.48")
    arch.publish(root.upper / "srv/mirror", "9.21.0.82", tmp_path, key)
    roots.inside(root, shell, f"sed -i '/options/a {line}' /etc/pacman.conf")
    with pytest.raises(DoctorError, match="held") as caught:
        roots.inside(root, plan, "9.21.0.82")
    assert caught.value.where == f"/etc/pacman.conf: {line.split()[-1]}"
    assert "IgnorePkg" in caught.value.next_step


def test_a_lock_is_held_to_the_packages_own_release(root: roots.Overlay) -> None:
    roots.inside(root, plan, "9.20.0.48", "9.20.0.48-1")
    with pytest.raises(DoctorError, match=r"9\.20\.0\.48-1 only, not 9\.20\.0\.48-2"):
        roots.inside(root, plan, "9.20.0.48", "9.20.0.48-2")


def test_an_upgrade_goes_back_to_what_the_cache_holds(
    root: roots.Overlay, key: SigningKey, tmp_path: Path
) -> None:
    roots.inside(root, install, "9.20.0.48")
    arch.publish(root.upper / "srv/mirror", "9.21.0.82", tmp_path, key)
    roots.inside(root, shell, "pacman -Syy")
    receipt = roots.inside(root, install, "9.21.0.82")
    assert roots.inside(root, versions)["cudnn"] == "9.21.0.82-1"
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, versions)["cudnn"] == "9.20.0.48-1"


def test_an_upgrade_goes_back_without_a_cache(
    root: roots.Overlay, key: SigningKey, tmp_path: Path
) -> None:
    roots.inside(root, install, "9.20.0.48")
    before = roots.inside(root, shell, f"{WHAT}; rm -r /var/cache/pacman")
    arch.publish(root.upper / "srv/mirror", "9.21.0.82", tmp_path, key)
    roots.inside(root, shell, "pacman -Syy")
    receipt = roots.inside(root, install, "9.21.0.82")
    roots.inside(root, shell, "rm -rf /var/cache/pacman")
    assert roots.inside(root, versions)["cudnn"] == "9.21.0.82-1"
    roots.inside(root, roll_back, receipt)
    assert roots.inside(root, shell, WHAT) == before
    assert not (root.upper / "usr/lib/.cudnn-doctor-kept").is_dir()


def recover() -> bool:
    with exclusive(STATE, wait=30):
        return executor.recover(STATE, Silent())


def extracting(root: roots.Overlay) -> bool:
    """pacman is at work on the new version."""
    folder = root.upper / "usr/lib"
    return folder.is_dir() and any("9.21.0" in name for name in os.listdir(folder))


def recorded(root: roots.Overlay) -> bool:
    """pacman has written the new version into its database."""
    return (root.upper / "var/lib/pacman/local/cudnn-9.21.0.82-1/files").is_file()


def old_gone(root: roots.Overlay) -> bool:
    """pacman has taken the old version out of its database."""
    return not (root.upper / "var/lib/pacman/local/cudnn-9.20.0.48-1/desc").is_file()


@pytest.mark.parametrize(
    ("moment", "then"),
    [
        (old_gone, ""),
        (extracting, ""),
        (recorded, ""),
        (recorded, "rm -f desc files"),
        (recorded, "rm files"),
        (recorded, "truncate --size 0 files"),
    ],
)
def test_a_kill_in_the_middle_of_pacman_is_mended(
    root: roots.Overlay,
    key: SigningKey,
    tmp_path: Path,
    moment: Callable[[roots.Overlay], bool],
    then: str,
) -> None:
    """``then``: what an earlier or later moment would have left of the record."""
    roots.inside(root, install, "9.20.0.48")
    before = roots.inside(root, shell, WHAT)
    arch.publish(root.upper / "srv/mirror", "9.21.0.82", tmp_path, key)
    roots.inside(root, shell, "pacman -Syy")
    child, reading = roots.start(root, install, "9.21.0.82")
    deadline = time.monotonic() + 60
    while not moment(root) and time.monotonic() < deadline:
        time.sleep(0.0002)
    roots.kill(child)
    assert roots.result(child, reading) is None
    if then:
        roots.inside(root, shell, f"cd /var/lib/pacman/local/cudnn-9.21.0.82-1; {then}")
    assert roots.inside(root, recover)
    assert roots.inside(root, shell, WHAT) == before
    assert not [p for p in (root.upper / "usr/lib").glob("*9.21.0*") if p.is_file()]
    assert not (root.upper / "var/lib/pacman/db.lck").is_file()
    roots.inside(root, install, "9.21.0.82")
    assert roots.inside(root, versions)["cudnn"] == "9.21.0.82-1"


def mend_while_pacman_runs() -> tuple[object, object]:
    shutil.copy("/bin/sleep", "/tmp/pacman")
    Path("/var/lib/pacman/db.lck").touch()
    with subprocess.Popen(["/tmp/pacman", "60"]) as another:
        time.sleep(0.2)
        meanwhile = Pacman().mend()
        another.kill()
    return meanwhile, Pacman().mend()


def test_a_lock_is_removed_only_when_nobody_holds_it(root: roots.Overlay) -> None:
    meanwhile, afterwards = roots.inside(root, mend_while_pacman_runs)
    assert meanwhile == ()
    assert afterwards == (("rm", "--recursive", "--force", "/var/lib/pacman/db.lck"),)


def test_a_package_signed_by_nobody_known_is_refused(root: roots.Overlay, tmp_path: Path) -> None:
    stranger = SigningKey()
    mirror = root.upper / "srv/mirror"
    arch.publish(mirror, "9.20.0.48", tmp_path, stranger)
    roots.inside(root, shell, "sed -i s/Required/'PackageRequired DatabaseNever'/ /etc/pacman.conf")
    roots.inside(root, shell, "pacman -Syy")
    with pytest.raises(DoctorError, match="pacman failed"):
        roots.inside(root, install, "9.20.0.48")
    assert roots.inside(root, versions) == {}
