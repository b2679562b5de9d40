"""Device nodes and who may open them; GPUs that are hidden or not there."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case


def selinux(case: Case) -> None:
    """NVML may not open the nodes, and SELinux is enforcing."""
    denied = case.first("selinux")
    seen = case.first("gpu-permission") or denied
    if seen is None:
        return
    state = case.facts.machine.system.selinux
    told = case.seen("selinux-state")
    switched_off = any(o.get("off") for o in told) or case.facts.says(r"selinux\W+permissive")
    enforcing = state == "enforcing" or any(o.get("what") for o in told)
    enforcing = enforcing or case.facts.says(r"selinux[^\n]{0,30}enforc|enforc\w*\W+selinux")
    helps = case.facts.says(r"label[=:]disable|setenforce 0")
    culprit = "SELinux: the container's domain may not open /dev/nvidia*"
    if denied is not None or ((enforcing or helps) and not switched_off):
        case.vote("selinux-denies-gpu", 0.85, "SELinux is enforcing", culprit=culprit, line=seen)
        case.doubt("permission-denied", 0.4)
    elif switched_off:
        case.doubt("selinux-denies-gpu", 0.3)
    elif case.facts.in_container and case.facts.manager == "dnf":
        case.vote("selinux-denies-gpu", 0.4, culprit=culprit, line=seen)


def no_cgroups(case: Case) -> None:
    """The toolkit's `no-cgroups` against the way the container was started."""
    seen = case.first("nvml-unknown", "gpu-permission", "no-device")
    if seen is None:
        return
    told = case.first("no-cgroups")
    rootless = case.facts.says(r"\brootless\b")
    noted = re.search(r"no-cgroups\s*=?\s*(?:is\s+)?(true|false)", case.facts.prose)
    value = told.get("value") if told else noted[1] if noted else ""
    wrong = value == ("false" if rootless else "true")
    wrong = wrong or (value == "true" and seen.signature.event == "nvml-unknown")
    if value and wrong:
        case.vote(
            "toolkit-config-no-cgroups",
            0.93,
            f"no-cgroups = {value}",
            culprit=f"no-cgroups = {value} in /etc/nvidia-container-runtime/config.toml",
            line=told or seen,
        )
        case.doubt("cgroup-device-revoked", 0.4)
    elif rootless and seen.signature.event != "no-device":
        case.vote("toolkit-config-no-cgroups", 0.4, "rootless", culprit="no-cgroups", line=seen)


def nodes(case: Case) -> None:
    """The description says that a node is absent; then the module is not at fault."""
    if case.seen("device-node"):
        case.doubt("uvm-module-wedged", 0.3)
    failed = case.first("cuda-unknown", "no-device", "uvm-not-loaded")
    absent = re.search(
        r"(?:no|missing|lacks?|without)\W{1,3}(?:/dev/)?(nvidia-uvm|nvidiactl|nvidia0)\b"
        r"|/dev/(nvidia[\w-]*)\W{1,3}(?:is |are |was )?(?:missing|absent|does not exist"
        r"|not (?:there|created|found))",
        case.facts.prose,
    )
    if failed is None or absent is None:
        if failed is not None and failed.signature.event == "uvm-not-loaded":
            case.vote("device-nodes-missing", 0.1, culprit="/dev/nvidia-uvm (nvidia_uvm)")
        return
    node = f"/dev/{absent[1] or absent[2]}"
    case.vote("device-nodes-missing", 0.85, absent[0], culprit=node, line=failed)
    case.doubt("uvm-module-wedged", 0.3)


def owners(case: Case) -> None:
    """Name what may not be opened."""
    seen = case.first("gpu-permission")
    if seen is not None:
        culprit = seen.get("path") or "/dev/nvidia* (owner, group and mode of the nodes)"
        member = case.facts.says(r"group video|not in (?:the )?(?:group )?(?:video|render)|0?660")
        case.vote("permission-denied", 0.5 if member else 0.05, culprit=culprit, line=seen)


def hidden(case: Case) -> None:
    """CUDA_VISIBLE_DEVICES names a GPU that is not there."""
    seen = case.first("no-device", "invalid-ordinal", "no-driver", "cpu-fallback")
    if seen is None or case.facts.machine.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return
    told = case.first("visible-devices")
    value = case.facts.machine.environ.get("CUDA_VISIBLE_DEVICES")
    value = (value if value is not None else told.get("value") if told else "").strip("'\"")
    gpus = case.facts.machine.gpus
    chosen = [int(part) for part in value.split(",") if part.strip().isdecimal()]
    culprit = f"CUDA_VISIBLE_DEVICES={value}"
    if chosen and gpus and max(chosen) >= len(gpus):
        because = f"{len(gpus)} GPU(s) are there, counted from 0"
        case.vote("gpu-hidden", 0.93, because, culprit=culprit, line=told or seen)
    elif value in ("-1", "none") or (told and not value):
        case.vote("gpu-hidden", 0.9, culprit=culprit, line=told or seen)
    elif chosen and seen.signature.event not in ("no-driver", "cpu-fallback"):
        case.vote("gpu-hidden", 0.4, culprit=culprit, line=told or seen)


def busy(case: Case) -> None:
    """Another process holds a GPU in exclusive mode."""
    seen = case.first("device-busy")
    if seen is None:
        return
    mode = case.first("exclusive-mode")
    told = mode is not None or case.facts.says(r"exclusive|prohibited")
    text = f"{mode.text if mode else ''}\n{case.facts.prose}"
    name = "PROHIBITED" if re.search("prohibited", text, re.I) else "EXCLUSIVE_PROCESS"
    culprit = f"compute mode {name}" if told else "another process, or the compute mode"
    case.vote("gpu-hidden", 0.6 if told else 0.05, culprit=culprit, line=mode or seen)


def absent(case: Case) -> None:
    """No NVIDIA GPU: told so, or the list of graphics cards has none."""
    seen = case.first("no-driver", "no-driver-library", "no-device")
    missing = [o for o in case.seen("missing-library") if o.get("lib").startswith("libcuda.so")]
    seen = seen or (missing[0] if missing else None)
    cards = case.seen("graphics-card")
    none_listed = cards and not any("NVIDIA" in card.get("name").upper() for card in cards)
    if seen is not None and (case.facts.machine.gpus == () or none_listed):
        because = "the machine has no NVIDIA GPU" if case.facts.machine.gpus == () else ""
        line = cards[0] if none_listed else seen
        case.vote("no-nvidia-gpu", 0.92, because, culprit="no NVIDIA GPU on the bus", line=line)
        for other in ("driver-not-installed", "container-without-gpu"):
            case.doubt(other, 0.4)


def driver(case: Case) -> None:
    """Say why there is no driver."""
    text = "\n".join(o.text for o in case.seen("no-driver"))
    failed = case.first("no-driver", "no-device")
    told = case.facts.says(r"driver: (?:none|no\b|not installed)|no (?:nvidia )?driver installed")
    if failed is not None and told and not case.facts.in_container:
        culprit = "no NVIDIA driver is installed"
        case.vote("driver-not-installed", 0.6, "told so", culprit=culprit, line=failed)
    if "Key was rejected" in text or (text and case.facts.says(r"secure boot\W+(?:is )?(?:on|en)")):
        culprit = "Secure Boot: the nvidia module is not signed with an enrolled key"
    elif re.search("nouveau", text, re.I):
        culprit = "nouveau holds the GPU"
    elif text and not case.facts.in_container:
        culprit = "the nvidia kernel module is not loaded"
    else:
        return
    case.vote("driver-not-installed", 0.1, culprit=culprit, line=case.first("no-driver"))


DEVICE_RULES = (selinux, no_cgroups, nodes, owners, hidden, busy, absent, driver)
