"""The integrated GPU of a Tegra, whose older releases have no NVML to ask."""

from __future__ import annotations

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import Gpu

_CHIPS = {
    "nvidia,tegra210": ("Tegra X1", "5.3"),
    "nvidia,tegra186": ("Tegra X2", "6.2"),
    "nvidia,tegra194": ("Xavier", "7.2"),
    "nvidia,tegra234": ("Orin", "8.7"),
    "nvidia,tegra264": ("Thor", "11.0"),
}
"""Device tree's name of the chip: its usual name and compute capability."""


def tegra_gpus(host: Host) -> tuple[Gpu, ...]:
    """The chip's GPU by the device tree; empty when this is no Tegra."""
    if not speaks_for(host, "/proc"):
        return ()
    compatible = (host.text("/proc/device-tree/compatible", 4096) or "").split("\0")
    chips = [_CHIPS[name] for name in compatible if name in _CHIPS]
    return tuple(Gpu(name=name, compute_capability=cc) for name, cc in chips[:1])
