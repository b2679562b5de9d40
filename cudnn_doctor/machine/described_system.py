"""The ``os`` phrases of a description: distribution, libc, container, WSL, architecture, disks."""

from __future__ import annotations

import re

from cudnn_doctor.machine.model import DiskSpace, System

_DISTROS = (
    ("ubuntu", r"ubuntu(?:\s+server)?"),
    ("debian", r"debian(?:\s+gnu/linux)?"),
    ("fedora", r"fedora(?:\s+linux)?"),
    ("centos", r"centos(?:\s+(?:linux|stream))?"),
    ("rhel", r"rhel|red\s*hat(?:\s+enterprise\s+linux)?"),
    ("rocky", r"rocky(?:\s+linux)?"),
    ("almalinux", r"alma\s*linux"),
    ("ol", r"oracle\s+linux"),
    ("amzn", r"amazon\s+linux"),
    ("opensuse-leap", r"opensuse(?:[\s-]+leap)?"),
    ("sles", r"sles|suse\s+linux\s+enterprise(?:\s+server)?"),
    ("arch", r"arch(?:\s*linux)?(?=$|[\s,;(])"),
    ("manjaro", r"manjaro"),
    ("alpine", r"alpine(?:\s+linux)?"),
    ("linuxmint", r"(?:linux\s*)?mint"),
    ("pop", r"pop!?_?os"),
    ("kali", r"kali"),
    ("nixos", r"nixos"),
    ("gentoo", r"gentoo"),
)
_CODENAMES = {
    "trixie": ("debian", "13"),
    "bookworm": ("debian", "12"),
    "bullseye": ("debian", "11"),
    "buster": ("debian", "10"),
    "noble": ("ubuntu", "24.04"),
    "jammy": ("ubuntu", "22.04"),
    "focal": ("ubuntu", "20.04"),
    "bionic": ("ubuntu", "18.04"),
}
_CONTAINERS = (
    ("lxc", r"\blxc\b|\blxd\b"),
    ("kubernetes", r"\bkubernetes\b|\bk8s\b|\bpod\b"),
    ("podman", r"\bpodman\b"),
    ("apptainer", r"\bapptainer\b|\bsingularity\b"),
    ("docker", r"\bcontainer\b|\bdocker(?!\s+desktop)\b|\bimage\b|^[\w./-]+:[\w.-]+(?:$|\s)"),
)
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def describe_system(items: list[str], notes: list[str]) -> System:
    """Read the phrases; the whole text is kept as a note, since it often tells more."""
    text = "; ".join(items)
    if not text:
        return System()
    notes.append(f"os: {text}")
    distro, version = _distro(text)
    glibc = re.search(r"glibc[\s<=>]*(\d+\.\d+)", text, re.I)
    musl = distro == "alpine" or re.search(r"\bmusl\b", text, re.I)
    jetpack = re.search(r"\bJetPack\s*(\d[\d.]*)|\bL4T\s*R?(\d[\d.]*)", text, re.I)
    arch = re.search(r"\b(aarch64|arm64|x86_64|amd64|sbsa|ppc64le)\b", text, re.I)
    names = {"arm64": "aarch64", "sbsa": "aarch64", "amd64": "x86_64"}
    container = next((n for n, pattern in _CONTAINERS if re.search(pattern, text, re.I)), None)
    return System(
        distro_id=distro,
        distro_version=version,
        distro_name=text if distro is None else "",
        arch=names.get(arch[1].lower(), arch[1].lower())
        if arch
        else "aarch64"
        if jetpack
        else None,
        libc="musl" if musl else "glibc" if glibc else None,
        libc_version=glibc[1] if glibc else None,
        container=container,
        wsl=True if re.search(r"\bWSL ?[12]?\b", text) else None,
        disks=tuple(_disks(text)),
    )


def _distro(text: str) -> tuple[str | None, str | None]:
    for name, (distro, version) in _CODENAMES.items():
        if re.search(rf"\b{name}\b", text, re.I):
            return distro, version
    for distro, pattern in _DISTROS:
        found = re.search(rf"(?<![a-z])(?:{pattern})[\s:_-]*v?(\d+(?:\.\d+)*)?", text, re.I)
        if found:
            version = found[1]
            if distro == "ubuntu" and version and re.fullmatch(r"\d{4}", version):
                version = f"{version[:2]}.{version[2:]}"
            if distro == "ubuntu" and version:
                version = ".".join(version.split(".")[:2])
            return distro, version
    return None, None


def _disks(text: str) -> list[DiskSpace]:
    """``/tmp is a tmpfs of 2 GB nearly full``: folder, file system, size."""
    disks = []
    for part in re.split(r"[;,]", text):
        folder = re.search(r"(?<![\w:.])(/[\w./-]*)", part)
        size = re.search(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B", part, re.I)
        home = re.search(r"\bhome\b", part, re.I)
        if not size or not (folder or home):
            continue
        number = int(float(size[1]) * (1 << _UNITS[size[2].lower()]))
        full = re.search(r"\bfull\b", part, re.I)
        free = re.search(r"\bfree\b", part, re.I)
        disks.append(
            DiskSpace(
                path=folder[1] if folder else "~",
                total=None if free else number,
                free=0 if full else number if free else None,
                filesystem="tmpfs" if "tmpfs" in part else "",
            )
        )
    return disks
