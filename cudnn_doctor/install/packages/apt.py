"""apt and dpkg: Debian, Ubuntu and their kin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudnn_doctor.install.packages import repack_deb
from cudnn_doctor.install.packages.manager import ENVIRON, TREE, RepositoryFile, Target
from cudnn_doctor.install.plan import AnyStep, RemoveTree, Run, WriteFile

_PINS = "/etc/apt/preferences.d/cudnn-doctor"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_WAIT = ("-o", "DPkg::Lock::Timeout=60")
_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.M)
_REPLACED = re.compile(r"^Inst (\S+) \[", re.M)
_SERIES = re.compile(r"(libcudnn\d+)(?:-[a-z]+)*(-cuda-\d+)?")


class Apt:
    """Exact versions are asked for by name, and by a pin for what those packages depend on."""

    name = "apt"
    repository_path = "/etc/apt/sources.list.d/cudnn-doctor-nvidia.sources"
    key_path = "/usr/share/keyrings/cudnn-doctor-nvidia.asc"
    rehearses = True

    def prepare(self, url: str, *, fresh: bool) -> list[AnyStep]:
        names = ["ca-certificates"] if fresh or not Path(_CERTIFICATES).exists() else []
        names = names if url.startswith("https:") else []
        names += ["curl", "gpg"] if fresh else []
        if not names:
            return []
        install = ("apt-get", "install", "-y", "--no-install-recommends", *_WAIT, *names)
        lines = (("apt-get", "update"), install)
        titles = ("fetch the distribution's index", f"install {', '.join(names)}")
        return [
            Run(title=title, argv=argv, environ={**ENVIRON}, needs_root=True)
            for title, argv in zip(titles, lines, strict=True)
        ]

    def repository(self, file: RepositoryFile) -> list[AnyStep]:
        text = f"Types: deb\nURIs: {file.url}\nSuites: /\nSigned-By: {file.key}\n"
        return [
            WriteFile(
                title=f"add NVIDIA's repository: {file.path}",
                path=file.path,
                content=text,
                needs_root=True,
            )
        ]

    def refresh(self, path: str) -> tuple[str, ...]:
        only = ("-o", f"Dir::Etc::sourcelist={path}", "-o", "Dir::Etc::sourceparts=-")
        return ("apt-get", "update", *only, "-o", "APT::Get::List-Cleanup=0", *_STRICT)

    def before(self, targets: list[Target], version: str) -> list[AnyStep]:
        return [
            WriteFile(
                title=f"pin cuDNN to {targets[0].version}",
                path=_PINS,
                content=pins(targets),
                needs_root=True,
            )
        ]

    def after(self, targets: list[Target], *, hold: bool) -> list[AnyStep]:
        names = tuple(target.name for target in targets)
        steps: list[AnyStep] = [RemoveTree(title="remove the pin", path=_PINS, needs_root=True)]
        if hold and names:
            steps.append(
                Run(
                    title=f"hold {', '.join(names)}",
                    argv=("apt-mark", "hold", *names),
                    undo=(("apt-mark", "unhold", *names),),
                    needs_root=True,
                )
            )
        return steps

    def cannot_hold(self) -> str:
        return ""

    def install(self, targets: list[Target], drop: Sequence[str]) -> tuple[str, ...]:
        words = [f"{t.name}={t.version}" if t.version else t.name for t in targets]
        return (*_INSTALL, *words, *(f"{name}-" for name in drop))

    def rehearse(
        self, targets: list[Target], drop: Sequence[str], scratch: str = ""
    ) -> tuple[str, ...]:
        argv = self.install(targets, drop)
        options: tuple[str, ...] = ("--simulate",)
        if scratch:
            admins = Path("/etc/apt/preferences")
            text = admins.read_text("utf-8") if admins.is_file() else ""
            ours = Path(scratch) / "preferences"
            ours.write_text(f"{pins(targets)}\n{text}", "utf-8")
            options += ("-o", f"Dir::Etc::preferences={ours}")
        return (argv[0], *options, *argv[1:])

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        return output if code else ""

    def removed(self, output: str) -> list[str]:
        return _REMOVED.findall(output)

    def replaced(self, output: str) -> list[str]:
        return _REPLACED.findall(output)

    def files_of(self, name: str) -> tuple[str, ...]:
        return ("dpkg-query", "--listfiles", name)

    def installed(self) -> tuple[str, ...]:
        return ("dpkg-query", "-W", "-f", "${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\n")

    def parse_installed(self, output: str) -> dict[str, str]:
        rows = (line.split("\t") for line in output.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 3 and row[2][1:2] in ("i", "U", "F")}

    def mend(self) -> tuple[tuple[str, ...], ...]:
        return (("dpkg", "--configure", "-a"),)

    def again(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return argv

    def outdated(
        self, before: Mapping[str, str], now: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        return ()

    def cannot_keep(self) -> str:
        return ""

    def describe(self, name: str, version: str, folder: Path) -> None:
        repack_deb.describe(name, folder / TREE)

    def repack(self, folder: Path, target: str) -> str:
        return repack_deb.build(folder / TREE, target)

    def restore(
        self, changed: Mapping[str, str], added: Sequence[str], files: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        words = [files.get(name, f"{name}={version}") for name, version in changed.items()]
        words += [f"{name}-" for name in added]
        held = "--allow-change-held-packages"
        return ((*_INSTALL, held, *words),) if words else ()


_STRICT = ("-o", "APT::Update::Error-Mode=any")
_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "--allow-downgrades", *_WAIT)


def pins(targets: list[Target]) -> str:
    """apt_preferences(5) that make the targets' version the candidate of their whole series."""
    patterns = []
    for target in targets:
        if match := _SERIES.fullmatch(target.name):
            patterns.append(f"{match[1]}{match[2] or ''}")
            patterns.append(f"{match[1]}-*{match[2] or ''}")
    names = " ".join(dict.fromkeys(patterns)) or " ".join(t.name for t in targets)
    return f"Package: {names}\nPin: version {targets[0].version}\nPin-Priority: 1001\n"
