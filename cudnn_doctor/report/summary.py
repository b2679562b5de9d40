"""The few facts of a machine that a reader wants first."""

from __future__ import annotations

from collections import Counter

from cudnn_doctor.machine.model import Machine


def header(machine: Machine) -> tuple[str, ...]:
    """GPU, driver, CUDA, distribution, architecture: what is known of them."""
    gpus = Counter(gpu.name or "NVIDIA GPU" for gpu in machine.gpus or ())
    parts = [f"{count} x {name}" if count > 1 else name for name, count in gpus.items()]
    if not parts:
        parts = ["GPU not known" if machine.gpus is None and machine.partial else "no GPU answers"]
    if machine.driver.version:
        parts.append(f"driver {machine.driver.version}")
    if machine.driver.cuda:
        parts.append(f"CUDA {machine.driver.cuda}")
    distro = machine.system.distro_name or " ".join(
        word for word in (machine.system.distro_id, machine.system.distro_version) if word
    )
    place = "WSL2" if machine.system.wsl else machine.system.container or ""
    parts += [part for part in (distro, place, machine.system.arch or "") if part]
    return tuple(parts)


def facts_of(machine: Machine, category: str) -> str:
    """What a healthy category's line says."""
    return {
        "system": _system,
        "gpu": _gpu,
        "toolkit": _toolkit,
        "cudnn": _cudnn,
        "frameworks": _frameworks,
        "packages": _packages,
    }[category](machine)


def _system(machine: Machine) -> str:
    system = machine.system
    libc = f"{system.libc or ''} {system.libc_version or ''}".strip()
    return ", ".join(
        part for part in (libc, f"kernel {system.kernel}" if system.kernel else "") if part
    )


def _gpu(machine: Machine) -> str:
    capabilities = sorted(
        {g.compute_capability for g in machine.gpus or () if g.compute_capability}
    )
    count = len(machine.gpus or ())
    if not count:
        return "nothing wrong in what is known"
    word = "GPU" if count == 1 else "GPUs"
    return f"{count} {word}, compute capability {', '.join(capabilities) or 'not known'}"


def _toolkit(machine: Machine) -> str:
    found = [f"{t.version or '?'} in {t.path}" for t in machine.toolkits or () if t.path]
    if not found:
        return "no CUDA toolkit (none is needed)"
    return f"CUDA {found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")


def _cudnn(machine: Machine) -> str:
    copies = machine.copies or ()
    if not copies:
        return "no copy"
    versions = sorted({copy.version or f"{copy.major or '?'}.x" for copy in copies})
    word = "copy" if len(copies) == 1 else "copies"
    return f"{len(copies)} {word}: {', '.join(versions)}"


def _frameworks(machine: Machine) -> str:
    found = [f"{f.name} {f.version}".rstrip() for f in machine.frameworks]
    return ", ".join(dict.fromkeys(found)) or "none"


def _packages(machine: Machine) -> str:
    environments = len(machine.environments)
    word = "environment" if environments == 1 else "environments"
    return f"{environments} Python {word}, {len(machine.packages)} system packages of interest"
