"""NVIDIA package repositories configured for apt, dnf or zypper."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Iterator

import msgspec

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Repository

_NVIDIA = re.compile(r"nvidia|/compute/cuda/repos/|(?:cuda|cudnn|tensorrt)[\w.-]*-repo", re.I)
_DISTRO = re.compile(r"/repos/([^/\s]+)|-repo-([a-z-]+[0-9]+)")
_ONE_LINE = re.compile(r"^(?P<off>#\s*)?deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<url>\S+)")
_SIGNED_BY = re.compile(r"signed-by=(\S+)", re.I)
DEFAULT_PRIORITY = 99
"""What dnf and zypper give a repository that says none; the lowest number wins."""
_RPM_FOLDERS = (("dnf", "/etc/yum.repos.d"), ("zypper", "/etc/zypp/repos.d"))


def probe_repositories(host: Host) -> tuple[Repository, ...]:
    """All of them, in the order of the files; source-only entries are left out."""
    found = [*_apt(host)]
    for manager, path, section in _rpm_sections(host):
        for url in (section.get("baseurl") or "").split():
            if _NVIDIA.search(url):
                known = _repository(
                    manager, url, path, (section.get("gpgkey") or "").strip(), _is_enabled(section)
                )
                found.append(
                    msgspec.structs.replace(known, name=section.name, priority=_priority(section))
                )
    return tuple(found)


def probe_preferences(
    host: Host, repositories: Iterable[Repository] = ()
) -> tuple[Repository, ...]:
    """Enabled repositories of others that rpm's managers prefer to the worst of NVIDIA's
    ``repositories``, or to one that states no priority."""
    worst = max((DEFAULT_PRIORITY, *(r.priority or 0 for r in repositories if r.enabled)))
    return tuple(
        Repository(manager=manager, name=section.name, file=path, priority=_priority(section))
        for manager, path, section in _rpm_sections(host)
        if section.name != "main" and _is_enabled(section) and _priority(section) < worst
        if not _NVIDIA.search(section.get("baseurl") or "")
    )


def _repository(manager: str, url: str, file: str, signed_by: str, enabled: bool) -> Repository:
    match = _DISTRO.search(url)
    return Repository(
        manager=manager,
        url=url,
        file=file,
        distro=(match[1] or match[2]) if match else "",
        signed_by=signed_by,
        enabled=enabled,
    )


def _apt(host: Host) -> Iterator[Repository]:
    folder = "/etc/apt/sources.list.d"
    for path in ["/etc/apt/sources.list", *host.glob(f"{folder}/*.list")]:
        for line in (host.text(path) or "").splitlines():
            match = _ONE_LINE.match(line.strip())
            if match and _NVIDIA.search(match["url"]):
                signed = _SIGNED_BY.search(match["options"] or "")
                yield _repository(
                    "apt", match["url"], path, signed[1] if signed else "", not match["off"]
                )
    for path in host.glob(f"{folder}/*.sources"):
        for stanza in re.split(r"\n\s*\n", host.text(path) or ""):
            yield from _deb822(stanza, path)


def _deb822(stanza: str, path: str) -> Iterator[Repository]:
    """Entries of one stanza (sources.list(5)); a key inlined in Signed-By is told as such."""
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    fields: dict[str, str] = {}
    key = ""
    for line in lines:
        if line[:1].isspace():
            fields[key] = f"{fields.get(key, '')} {line.strip()}"
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()
    if "deb" not in fields.get("types", "").split():
        return
    signed = fields.get("signed-by", "").strip()
    for url in fields.get("uris", "").split():
        if _NVIDIA.search(url):
            yield _repository(
                "apt",
                url,
                path,
                "inline key" if "BEGIN PGP" in signed else signed,
                fields.get("enabled", "yes").lower() not in ("no", "false", "0"),
            )


def _rpm_sections(host: Host) -> Iterator[tuple[str, str, configparser.SectionProxy]]:
    """Manager, file and section of each repository that dnf or zypper is told of."""
    for manager, folder in _RPM_FOLDERS:
        for path in host.glob(f"{folder}/*.repo"):
            parser = configparser.ConfigParser(
                strict=False, interpolation=None, allow_no_value=True
            )
            try:
                parser.read_string(host.text(path) or "", path)
            except configparser.Error as error:
                host.fail("packages", f"{path}: {error.message.splitlines()[0]}")
                continue
            yield from ((manager, path, parser[name]) for name in parser.sections())


def _is_enabled(section: configparser.SectionProxy) -> bool:
    return (section.get("enabled") or "1").strip().lower() not in ("0", "no", "false")


def _priority(section: configparser.SectionProxy) -> int:
    told = (section.get("priority") or "").strip()
    return int(told) if told.isascii() and told.isdecimal() else DEFAULT_PRIORITY
