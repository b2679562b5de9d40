"""Package databases, file owners and repositories in root folders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import locks, pacman
from cudnn_doctor.machine.managers.dpkg import _packages
from cudnn_doctor.machine.packages import file_owner, probe_packages

LIB = "/usr/lib/x86_64-linux-gnu"


def write(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def install_deb(root: Path, name: str, version: str, files: list[str]) -> None:
    """Build a real package and let dpkg install it into ``root``."""
    tree = root.parent / f"{name}-tree"
    for file in files:
        write(tree, file, name)
    write(
        tree,
        "/DEBIAN/control",
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nDescription: a test\n"
        "Maintainer: cudatools <cudatools@example.invalid>\n",
    )
    deb = root.parent / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", tree, deb], check=True, capture_output=True)
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/updates").mkdir(exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    force = ["--force-not-root", "--force-bad-path", "--log=/dev/null"]
    command = ["dpkg", f"--root={root}", *force, "--install", deb]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg on this machine")
def test_a_database_that_dpkg_itself_wrote(tmp_path: Path) -> None:
    root = tmp_path / "root"
    install_deb(root, "libcudnn9-cuda-12", "9.10.2.21-1", [f"{LIB}/libcudnn.so.9.10.2"])
    install_deb(root, "coreutils-like", "1", ["/usr/bin/like"])
    hold = "libcudnn9-cuda-12 hold\n"
    command = ["dpkg", f"--root={root}", "--force-not-root", "--set-selections"]
    subprocess.run(command, input=hold, text=True, check=True, capture_output=True)
    host = Host(str(root))
    packages, *_ = probe_packages(host)
    (package,) = packages
    assert (package.name, package.version) == ("libcudnn9-cuda-12", "9.10.2.21-1")
    assert (package.manager, package.held) == ("dpkg", True)
    assert package.origin.startswith("cudatools")

    (root / LIB[1:] / "libcudnn.so.9").symlink_to("libcudnn.so.9.10.2")
    write(root, f"{LIB}/libcudnn_ops.so.9.1.0", "stray")
    (root / "lib").symlink_to("usr/lib")
    paths = ["libcudnn.so.9.10.2", "libcudnn.so.9", "libcudnn_ops.so.9.1.0"]
    owners = file_owner(host, [f"{LIB}/{name}" for name in paths])
    assert set(owners) == {f"{LIB}/libcudnn.so.9.10.2", f"{LIB}/libcudnn.so.9"}
    assert {(o.kind, o.name, o.version) for o in owners.values()} == {
        ("dpkg", "libcudnn9-cuda-12", "9.10.2.21-1")
    }
    merged = "/lib/x86_64-linux-gnu/libcudnn.so.9.10.2"
    assert file_owner(host, [merged])[merged].name == "libcudnn9-cuda-12"


def test_removed_packages_with_leftover_configuration_are_not_installed(tmp_path: Path) -> None:
    block = "Package: libcudnn8\nStatus: deinstall ok config-files\nVersion: 8.9.7.29-1\n\n"
    write(tmp_path, "/var/lib/dpkg/status", block)
    assert probe_packages(Host(str(tmp_path)))[0] == ()


def test_an_image_made_without_dpkg(tmp_path: Path) -> None:
    block = "Package: cuda-cudart-12-8\nVersion: 12.8.90-1\n"
    write(tmp_path, "/var/lib/dpkg/status.d/cuda-cudart-12-8", block)
    (package,) = probe_packages(Host(str(tmp_path)))[0]
    assert (package.name, package.version) == ("cuda-cudart-12-8", "12.8.90-1")


def test_pacman(tmp_path: Path) -> None:
    folder = "/var/lib/pacman/local/cudnn-9.5.1.17-1"
    write(tmp_path, f"{folder}/desc", "%NAME%\ncudnn\n\n%VERSION%\n9.5.1.17-1\n\n%BASE%\nx\n")
    write(tmp_path, f"{folder}/files", "%FILES%\nusr/\nusr/lib/\nusr/lib/libcudnn.so.9.5.1\n")
    write(tmp_path, "/var/lib/pacman/local/bash-5.2-1/desc", "%NAME%\nbash\n")
    host = Host(str(tmp_path))
    assert [(p.name, p.version, p.manager) for p in probe_packages(host)[0]] == [
        ("cudnn", "9.5.1.17-1", "pacman")
    ]
    owned, stray = "/usr/lib/libcudnn.so.9.5.1", "/usr/lib/libcudnn.so.8.9.7"
    assert {p: o.name for p, o in file_owner(host, [owned, stray]).items()} == {owned: "cudnn"}


def test_apk(tmp_path: Path) -> None:
    text = (
        "P:musl\nV:1.2\nF:lib\nR:ld.so\n\nP:nvidia-utils\nV:550-r0\nF:usr/lib\nR:libcuda.so.1\n\n"
    )
    write(tmp_path, "/lib/apk/db/installed", text)
    host = Host(str(tmp_path))
    assert [(p.name, p.version) for p in probe_packages(host)[0]] == [("nvidia-utils", "550-r0")]
    owners = file_owner(host, ["/usr/lib/libcuda.so.1", "/lib/ld.so"])
    assert {path: owner.name for path, owner in owners.items()} == {
        "/usr/lib/libcuda.so.1": "nvidia-utils"
    }


def test_an_rpm_database_in_an_image_is_told_as_unread(tmp_path: Path) -> None:
    write(tmp_path, "/var/lib/rpm/rpmdb.sqlite", "")
    host = Host(str(tmp_path))
    assert probe_packages(host)[0] == ()
    assert [failure.probe for failure in host.failures] == ["packages"]


def rpm_program(tmp_path: Path, answers: str) -> Host:
    """A live host whose ``rpm`` is a program that prints ``answers`` and says what it was asked."""
    write(
        tmp_path,
        "/bin/rpm",
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\ncat <<END\n{answers}\nEND\n',
    )
    (tmp_path / "bin/rpm").chmod(0o755)
    return Host(environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})


def test_rpm_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudnn_doctor.machine.managers import rpm

    write(tmp_path, "/db/rpmdb.sqlite")
    monkeypatch.setattr(rpm, "_DATABASES", (f"{tmp_path}/db",))
    listed = (
        "libcudnn9-cuda-12\t9.8.0.87-1\t0\tx86_64\tNVIDIA\nbash\t5.2-1\t0\tx86_64\tFedora\n"
        "akmod-nvidia\t3:570-1\t3\tx86_64\t(none)"
    )
    packages = rpm.installed(rpm_program(tmp_path, listed))
    assert [(p.name, p.version, p.origin) for p in packages] == [
        ("akmod-nvidia", "3:570-1", ""),
        ("libcudnn9-cuda-12", "9.8.0.87-1", "NVIDIA"),
    ]
    files = (
        "libcudnn9-cuda-12\t9.8.0.87-1\t/usr/lib64/libcudnn.so.9\n"
        "file /usr/lib64/stray is not owned by any package\n"
        "libcudnn9-cuda-12\t9.8.0.87-1\t/usr/lib64/libcudnn.so.9.8.0"
    )
    asked = ["/usr/lib64/stray", "/usr/lib64/libcudnn.so.9.8.0"]
    owners = rpm.owners(rpm_program(tmp_path, files), asked)
    assert {path: (o.kind, o.version) for path, o in owners.items()} == {
        "/usr/lib64/libcudnn.so.9.8.0": ("rpm", "9.8.0.87-1")
    }
    assert "/usr/lib64/libcudnn.so.9.8.0" in (tmp_path / "asked").read_text()


NET = "https://mirror.example/compute/cuda/repos"


def test_apt_repositories_in_both_forms(tmp_path: Path) -> None:
    write(
        tmp_path,
        "/etc/apt/sources.list.d/cuda.list",
        f"deb [arch=amd64 signed-by=/usr/share/keyrings/c.gpg] {NET}/ubuntu2204/x86_64/ /\n"
        f"# deb {NET}/ubuntu2004/x86_64/ /\n"
        f"deb-src {NET}/ubuntu2404/x86_64/ /\n"
        "deb https://deb.example/debian bookworm main\n"
        "deb file:///var/cudnn-local-repo-debian12-9.10.2 /\n",
    )
    write(
        tmp_path,
        "/etc/apt/sources.list.d/cuda.sources",
        f"# a remark\nTypes: deb deb-src\nURIs: {NET}/debian12/x86_64/\n  https://deb.example/x\n"
        "Suites: /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
        f"Enabled: no\nTypes: deb\nURIs: {NET}/ubuntu2404/sbsa/\nSuites: /\nSigned-By: /k.gpg\n",
    )
    _, repositories, _ = probe_packages(Host(str(tmp_path)))
    assert [(r.distro, r.enabled, r.signed_by) for r in repositories] == [
        ("ubuntu2204", True, "/usr/share/keyrings/c.gpg"),
        ("ubuntu2004", False, ""),
        ("debian12", True, ""),
        ("debian12", True, "inline key"),
        ("ubuntu2404", False, "/k.gpg"),
    ]
    assert {r.manager for r in repositories} == {"apt"}
    assert repositories[0].url == f"{NET}/ubuntu2204/x86_64/"


def test_rpm_repositories(tmp_path: Path) -> None:
    text = f"[cuda-rhel9]\nname=cuda\nbaseurl={NET}/rhel9/x86_64\nenabled=0\ngpgkey={NET}/k.pub\n"
    write(tmp_path, "/etc/yum.repos.d/cuda.repo", text + "[base]\nbaseurl=https://rpm.example/b\n")
    write(tmp_path, "/etc/zypp/repos.d/cuda.repo", f"[c]\nbaseurl={NET}/sles15/x86_64\n")
    write(tmp_path, "/etc/yum.repos.d/broken.repo", "no section\n")
    host = Host(str(tmp_path))
    _, repositories, _ = probe_packages(host)
    assert [(r.manager, r.distro, r.enabled) for r in repositories] == [
        ("dnf", "rhel9", False),
        ("zypper", "sles15", True),
    ]
    assert repositories[0].signed_by == f"{NET}/k.pub"
    assert "broken.repo" in host.failures[0].why


@pytest.mark.parametrize(
    ("nvidias", "expected"),
    [("", [("own", 10)]), ("priority=200\n", [("own", 10), ("base", 99), ("late", 150)])],
)
def test_repositories_that_go_before_nvidias(
    tmp_path: Path, nvidias: str, expected: list[tuple[str, int]]
) -> None:
    text = f"[cuda-rhel9]\nbaseurl={NET}/rhel9/x86_64\n{nvidias}"
    others = (
        "[main]\npriority=1\n[own]\nmetalink=https://rpm.example/o\npriority = 10\n"
        "[off]\npriority=1\nenabled=0\n[base]\npriority=often\n[late]\npriority=150\n"
    )
    write(tmp_path, "/etc/yum.repos.d/cuda.repo", text)
    write(tmp_path, "/etc/yum.repos.d/others.repo", others)
    _, (known,), preferred = probe_packages(Host(str(tmp_path)))
    assert known.priority == (200 if nvidias else 99)
    assert [(p.name, p.priority) for p in preferred] == expected


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for package in _packages("Package: cudnn\n" + text):
        assert package.manager == "dpkg"
    pacman._fields(text)


def test_locks_of_dnf_5_and_of_others(tmp_path: Path) -> None:
    toml = 'version = "1.0"\n[[packages]]\nname = "libcudnn9-cuda-12"\n'
    conditions = '[[packages.conditions]]\nkey = "evr"\ncomparator = "="\nvalue = "9.1.0.70-1"\n'
    write(tmp_path, "/etc/dnf/versionlock.toml", toml + conditions)
    write(tmp_path, "/etc/dnf/plugins/versionlock.conf", "[main]\nlocklist = /etc/mine\n")
    write(tmp_path, "/etc/mine", "# a comment\n!libcudnn9-cuda-11-*\nlibcudnn8-0:8.9.7.29-1.*\n")
    zypp = "type: package\nmatch_type: {}\ncase_sensitive: on\nsolvable_name: {}\n"
    blocks = [zypp.format("exact", "a+b"), zypp.format("regex", "c.*d"), zypp.format("regex", "(")]
    other = "type: patch\nsolvable_name: libcublas*\n"
    write(tmp_path, "/etc/zypp/locks", "\n".join([*blocks, other]))
    host = Host(str(tmp_path))
    found = {lock.text: lock for lock in locks.of_rpm(host)}
    assert set(found) == {"libcudnn9-cuda-12", "libcudnn8-0:8.9.7.29-1.*", "a+b", "c.*d"}
    assert found["libcudnn8-0:8.9.7.29-1.*"].holds("libcudnn8-0:8.9.7.29-1.x86_64")
    assert found["libcudnn9-cuda-12"].file == "/etc/dnf/versionlock.toml"
    assert found["a+b"].holds("a+b")
    assert found["c.*d"].holds("cxd")
    assert any("(" in problem.why for problem in host.failures)


@pytest.mark.parametrize("text", ["packages = 1", "packages = [1]", "[[packages]]\nx=1", '"', "[["])
def test_a_damaged_lock_file_is_told(tmp_path: Path, text: str) -> None:
    write(tmp_path, "/etc/dnf/versionlock.toml", text)
    host = Host(str(tmp_path))
    assert locks.of_rpm(host) == []
    assert "versionlock.toml" in host.failures[0].why


def test_packages_that_pacman_ignores(tmp_path: Path) -> None:
    write(tmp_path, "/etc/pacman.conf", "[options]\nIgnorePkg = linux cud*\nIgnoreGroup=nv\n")
    desc = "%NAME%\n{}\n\n%VERSION%\n1-1\n\n%GROUPS%\nother\n{}\n"
    for name, group in (("cudnn", "x"), ("nvidia-utils", "nv"), ("libcublas", "x")):
        write(tmp_path, f"/var/lib/pacman/local/{name}-1-1/desc", desc.format(name, group))
    packages, *_ = probe_packages(Host(str(tmp_path)))
    told = {p.name: (p.held, p.held_by, p.lock) for p in packages}
    assert told == {
        "cudnn": (True, "/etc/pacman.conf", "cud*"),
        "nvidia-utils": (True, "/etc/pacman.conf", "nv"),
        "libcublas": (False, "", ""),
    }
