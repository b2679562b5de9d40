"""Containers, device nodes, musl and glibc, and messages that are only noise."""

from __future__ import annotations

from cudnn_doctor.explain.case import Case


def docker_context(case: Case) -> None:
    """The container toolkit finds no driver library: the VM of Docker Desktop, or no driver."""
    seen = case.first("toolkit-no-library")
    if seen is None:
        return
    context = case.facts.machine.system.docker_context or ""
    if (
        "desktop" in context
        or case.facts.says(r"docker.?desktop|desktop-linux")
        or case.seen("docker-desktop")
    ):
        case.vote(
            "docker-desktop-context",
            0.9,
            f"docker context: {context or 'desktop-linux'}",
            culprit="docker context desktop-linux (a VM without the GPU)",
            line=seen,
        )
        case.doubt("driver-not-installed", 0.3)
    elif case.facts.driver or case.facts.says(
        r"nvidia-smi (?:works|fine|ok)|driver (?:fine|works|ok)"
    ):
        case.vote("docker-desktop-context", 0.4, "the host's driver works", line=seen)
        case.doubt("driver-not-installed", 0.3)


def revoked(case: Case) -> None:
    """NVML refuses in a container that had the GPU."""
    seen = case.first("nvml-unknown")
    if seen is not None:
        reload = case.first("daemon-reload") or case.facts.says("daemon-reload")
        case.vote(
            "cgroup-device-revoked",
            0.6 if reload else 0.2,
            culprit="the device cgroup of this container (nodes exist, opening them is refused)",
            line=seen,
        )


def container_refused(case: Case) -> None:
    seen = case.first("container-no-gpu", "toolkit-cgroups")
    if seen is None:
        return
    if seen.signature.event == "toolkit-cgroups":
        case.vote(
            "toolkit-config-no-cgroups",
            0.3,
            culprit="no-cgroups in the toolkit's config.toml",
            line=seen,
        )
    else:
        case.vote(
            "container-without-gpu",
            0.3,
            culprit="the NVIDIA runtime is not set up for it",
            line=seen,
        )


def libc(case: Case) -> None:
    """glibc: the wanted version against the present one; musl: named."""
    for seen in case.seen("glibc-version")[:2]:
        have = case.facts.machine.system.libc_version
        wanted = seen.get("version")
        culprit = (
            f"glibc {have} < {wanted}" if have else f"this system's glibc is older than {wanted}"
        )
        path = seen.get("path")
        if path and not any(
            word in path
            for word in (
                "cudnn",
                "cuda",
                "torch",
                "nvidia",
                "tensor",
                "jax",
                "onnx",
                "cublas",
                "libcu",
            )
        ):
            case.doubt("glibc-too-old", 0.75)
        case.vote("glibc-too-old", 0.3, culprit=culprit, line=seen)
    musl = case.first("musl")
    if musl is not None:
        known = case.facts.machine.system.libc == "musl"
        case.vote(
            "musl-libc",
            0.6 if known else 0.2,
            "the C library is musl" if known else "",
            culprit="musl (this system has no glibc)",
            line=musl,
        )
        for diagnosis in ("cudnn-not-installed", "cudnn-not-on-loader-path"):
            case.doubt(diagnosis, 0.2)
    tls = case.first("static-tls")
    if tls is not None and tls.get("path"):
        case.vote("static-tls", 0.5, culprit=tls.get("path"), line=tls)


def links(case: Case) -> None:
    """ldconfig on files that should be links: harmless on WSL, a copy made flat elsewhere."""
    for seen in case.seen("not-a-symlink")[:3]:
        path = seen.get("path")
        if "/wsl/" in path:
            case.vote("benign-noise", 0.9, culprit="none: the files are delivered so", line=seen)
        elif "libcudnn" in path:
            case.vote("cudnn-symlink-flattened", 0.85, culprit=path, line=seen)
        else:
            case.vote("benign-noise", 0.5, line=seen)
    regular = case.seen("regular-file")
    sizes = {o.get("size") for o in regular}
    if len(regular) >= 2 and len(sizes) < len(regular):
        case.vote(
            "cudnn-symlink-flattened",
            0.35 if len(regular) < 3 or len(sizes) > 1 else 0.6,
            "several names, files of the same size",
            culprit=regular[0].get("path"),
            line=regular[0],
        )


def fake_links(case: Case) -> None:
    """A listing shows cuDNN's name on another library."""
    for seen in case.seen("link"):
        target = seen.get("target").rpartition("/")[2]
        if "libcudnn" in seen.get("path") and ".so" in target and "cudnn" not in target:
            case.vote(
                "cudnn-fake-symlink", 0.93, culprit=f"{seen.get('path')} -> {target}", line=seen
            )


ACCESS_RULES = (docker_context, revoked, container_refused, libc, links, fake_links)
