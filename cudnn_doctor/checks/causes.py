"""Root causes and their consequences: which finding explains which."""

from __future__ import annotations

import msgspec

from cudnn_doctor.checks.model import CheckResult, Finding

_NO_GPU_ACCESS = (
    "container-without-gpu",
    "docker-desktop-context",
    "driver-not-installed",
    "driver-user-kernel-mismatch",
    "no-nvidia-gpu",
)
_BAD_FILES = (
    "cudnn-wheel-clobbered",
    "cudnn-mixed-in-one-dir",
    "cudnn-file-damaged",
    "cudnn-wrong-architecture",
    "wheel-files-missing",
    "cudnn-install-incomplete",
    "disk-full",
)

CAUSES: dict[str, tuple[str, ...]] = {
    "cudnn-mixed-in-one-dir": ("cudnn-wheel-clobbered",),
    "cudnn-file-damaged": ("cudnn-wheel-clobbered",),
    "wheel-files-missing": (
        "cudnn-wheel-clobbered",
        "cudnn-install-incomplete",
        "cudnn-file-damaged",
        "cudnn-wrong-architecture",
        "cudnn-mixed-in-one-dir",
        "cudnn-fake-symlink",
    ),
    "cudnn-install-incomplete": ("cudnn-wheel-clobbered",),
    "pip-pin-conflict": ("cudnn-wheel-clobbered",),
    "cudnn-cuda-major-mismatch": ("cudnn-wheel-clobbered", "ld-library-path-shadow"),
    "header-library-mismatch": ("cudnn-wheel-clobbered", "cudnn-mixed-in-one-dir"),
    "mixed-cudnn-copies": ("ld-library-path-shadow", "cudnn-wheel-incomplete", *_BAD_FILES),
    "ld-library-path-shadow": ("cudnn-mixed-in-one-dir", "cudnn-wheel-clobbered"),
    "cudnn-older-than-framework-build": (
        "ld-library-path-shadow",
        "pip-pin-conflict",
        "cudnn-wheel-clobbered",
    ),
    "cudnn-framework-version-mismatch": ("ld-library-path-shadow",),
    "cudnn-not-on-loader-path": ("cudnn-fake-symlink", "cudnn-dangling-link", *_BAD_FILES),
    "cudnn-not-installed": ("cudnn-fake-symlink", "framework-deps-not-installed", *_BAD_FILES),
    "framework-deps-not-installed": ("pypi-placeholder-package",),
    "other-cuda-lib-missing": (
        "wheel-files-missing",
        "framework-deps-not-installed",
        "cudnn-cuda-major-mismatch",
        "ld-library-path-shadow",
    ),
    "libnvrtc-missing": (
        "cudnn-wheel-clobbered",
        "ld-library-path-shadow",
        "wheel-files-missing",
        "framework-deps-not-installed",
    ),
    "device-nodes-missing": (*_NO_GPU_ACCESS, "driver-user-kernel-mismatch"),
    "permission-denied": ("selinux-denies-gpu", "cgroup-device-revoked"),
    "driver-not-installed": ("no-nvidia-gpu", "container-without-gpu", "docker-desktop-context"),
    "gpu-too-old": ("gpu-too-old-for-cudnn",),
    "no-nvidia-gpu": ("container-without-gpu", "docker-desktop-context"),
    "gpu-hidden": _NO_GPU_ACCESS,
    "tmp-full": ("disk-full",),
}
"""Id of a consequence -> ids of its possible root causes, the likeliest first."""


def link_causes(results: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    """Name in each consequence the root cause that was found beside it."""
    found = [finding for result in results for finding in result.findings]
    return tuple(
        msgspec.structs.replace(
            result, findings=tuple(_linked(finding, found) for finding in result.findings)
        )
        if result.findings
        else result
        for result in results
    )


def _linked(finding: Finding, found: list[Finding]) -> Finding:
    if finding.caused_by:
        return finding
    for cause in CAUSES.get(finding.id, ()):
        for other in found:
            if other.id == cause and other.severity == "error" and _same_subject(other, finding):
                return msgspec.structs.replace(finding, caused_by=cause)
    return finding


def _same_subject(one: Finding, other: Finding) -> bool:
    """Whether two findings are about one place: equal, nested, or the whole machine."""
    first, second = one.subject, other.subject
    if not first or not second or first == second:
        return True
    return first.startswith(f"{second}/") or second.startswith(f"{first}/")
