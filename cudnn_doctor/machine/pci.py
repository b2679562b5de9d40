"""NVIDIA devices on the PCI bus, whatever driver they have or lack (sysfs)."""

from __future__ import annotations

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import PciDevice

_BUS = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_CLASSES = ("0x03", "0x0680")
"""Display controllers (VGA, 3D) and NVSwitch bridges; not a GPU's audio or USB functions."""


def probe_pci(host: Host) -> tuple[PciDevice, ...] | None:
    """NVIDIA's GPUs and NVSwitches, sorted by address; None when sysfs cannot be read."""
    if not speaks_for(host, "/sys") or not host.is_dir("/sys/bus"):
        return None
    found = []
    for address in host.names(_BUS):
        device = f"{_BUS}/{address}"
        if _value(host, f"{device}/vendor") != _NVIDIA:
            continue
        code = _value(host, f"{device}/class")
        if not code.startswith(_CLASSES):
            continue
        driver = host.link(f"{device}/driver")
        found.append(
            PciDevice(
                address=address,
                device_id=_value(host, f"{device}/device"),
                class_code=code,
                driver=driver.rpartition("/")[2] if driver else None,
            )
        )
    return tuple(found)


def is_nvswitch(device: PciDevice) -> bool:
    """Whether it is an NVSwitch and no GPU."""
    return device.class_code.startswith("0x0680")


def _value(host: Host, path: str) -> str:
    return (host.text(path, 64) or "").strip().lower()
