"""What dnf and zypper share: rpm's database, its keys and their repository files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.install.packages import repack_rpm
from cudnn_doctor.install.packages.manager import TREE, RepositoryFile, Target, output_of
from cudnn_doctor.install.plan import AnyStep, Run, WriteFile

REPOSITORY = "cudnn-doctor-nvidia"
KEY_PATH = "/etc/pki/rpm-gpg/RPM-GPG-KEY-cudnn-doctor-nvidia"
_KEYS = "gpg-pubkey"
_KEY_FILE = "key.asc"
_UNCHECKED = ("--replacepkgs", "--nodeps", "--nosignature", "--nodigest", "--nofiledigest")


def repository_steps(file: RepositoryFile, options: tuple[str, ...]) -> list[AnyStep]:
    """Import the key, which rpm keeps for all repositories, and write the repository's file."""
    lines = (
        f"[{REPOSITORY}]",
        "name=NVIDIA CUDA (added by cudnn-doctor)",
        f"baseurl={file.url}",
        "enabled=1",
        "gpgcheck=1",
        f"gpgkey=file://{file.key}",
        *options,
        "",
    )
    return [
        Run(
            title="let rpm trust the key that was checked",
            argv=("rpmkeys", "--import", file.key),
            needs_root=True,
        ),
        WriteFile(
            title=f"add NVIDIA's repository: {file.path}",
            path=file.path,
            content="\n".join(lines),
            needs_root=True,
        ),
    ]


def hold_steps(
    targets: list[Target], lock: tuple[str, ...], unlock: tuple[str, ...]
) -> list[AnyStep]:
    """Lock packages by their manager's commands, which take the names at their end."""
    names = tuple(target.name for target in targets)
    if not names:
        return []
    return [
        Run(
            title=f"hold {', '.join(names)}",
            argv=(*lock, *names),
            undo=((*unlock, *names),),
            needs_root=True,
        )
    ]


class OverRpm:
    """What package managers over rpm have in common (part of `manager.Manager`)."""

    key_path = KEY_PATH

    def prepare(self, url: str, *, fresh: bool) -> list[AnyStep]:
        return []

    def before(self, targets: list[Target], version: str) -> list[AnyStep]:
        return []

    def files_of(self, name: str) -> tuple[str, ...]:
        """List the files of a package."""
        return ("rpm", "-ql", name)

    def installed(self) -> tuple[str, ...]:
        """List all packages, the imported keys among them."""
        return ("rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\t%{EPOCHNUM}\\t%{ARCH}\\n")

    def parse_installed(self, output: str) -> dict[str, str]:
        """``name.arch`` -> ``epoch:version-release``, several in one text where it is there several
        times; a key is its own name and version."""
        found = {}
        for line in output.splitlines():
            name, version, epoch, arch = (*line.split("\t"), "", "", "")[:4]
            if name == _KEYS:
                found[f"{name}-{version}"] = version
            else:
                full = version if epoch == "0" else f"{epoch}:{version}"
                also = found.get(f"{name}.{arch}")
                found[f"{name}.{arch}"] = f"{also} {full}" if also else full
        return found

    def mend(self) -> tuple[tuple[str, ...], ...]:
        """Rebuild a database that cannot be read any more."""
        command = ("rpm", "-q", "--all")
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        return (("rpm", "--rebuilddb"),) if done.returncode or done.stderr else ()

    def again(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The same command: rpm and what is over it replace what they had begun."""
        return argv

    def outdated(
        self, before: Mapping[str, str], now: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Commands that erase the old one of a package that a kill left there twice."""
        doubled = [
            name
            for name, version in now.items()
            if " " in version and name in before and before[name] in version.split()
        ]
        named = []
        for name in doubled:
            if " " not in before[name]:  # as kernels are
                stem, _, arch = name.rpartition(".")
                named.append(f"{stem}-{before[name].rpartition(':')[2]}.{arch}")
        return (("rpm", "--erase", "--nodeps", *named),) if named else ()

    def cannot_keep(self) -> str:
        """Old releases of rpm do not give their headers away."""
        try:
            return "" if "--exportdb" in output_of(("rpmdb", "--help")) else "this rpm is too old"
        except DoctorError as error:
            return str(error)

    def describe(self, name: str, version: str, folder: Path) -> None:
        """Write down the header that rpm's database has of a package, or an imported key."""
        if name.startswith(f"{_KEYS}-"):
            key = output_of(("rpm", "-q", "--qf", "%{DESCRIPTION}", name))
            (folder / _KEY_FILE).write_text(key, "utf-8")
        else:
            repack_rpm.describe(name, folder)

    def repack(self, folder: Path, target: str) -> str:
        """Build an .rpm from that and the package's files; of a key, its file."""
        key = folder / _KEY_FILE
        return str(key) if key.is_file() else repack_rpm.build(folder, folder / TREE, target)


def split_keys(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Keys, which only rpm itself removes, and packages."""
    keys = [name for name in names if name.startswith(f"{_KEYS}-")]
    return keys, [name for name in names if name not in keys]


def restore_files(added: list[str], files: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Commands that import kept keys and put packages of this tool's making into the place of
    ``added``. Their payload is compressed anew, so that it has no digest."""
    keys = [path for path in files if path.endswith(_KEY_FILE)]
    packages = [path for path in files if path.endswith(".rpm")]
    commands = [("rpmkeys", "--import", *keys)] if keys else []
    if packages:
        commands += [("rpm", "--erase", "--nodeps", *added)] if added else []
        commands.append(("rpm", "--upgrade", "--oldpackage", *_UNCHECKED, *packages))
    return tuple(commands)


def remove_keys(keys: list[str]) -> tuple[tuple[str, ...], ...]:
    """Commands that take imported keys out of rpm's database."""
    return (("rpm", "--erase", "--allmatches", *keys),) if keys else ()
