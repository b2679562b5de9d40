"""Driver, PCI bus, device nodes and processes from recorded /sys, /proc and /dev trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_doctor.machine.devices import probe_device_nodes
from cudnn_doctor.machine.driver import complete_driver
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import Driver, Gpu
from cudnn_doctor.machine.pci import is_nvswitch, probe_pci
from cudnn_doctor.machine.processes import _mapped, probe_processes
from cudnn_doctor.machine.tegra import tegra_gpus

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    "GCC version:  gcc version 12.3.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@b)\n"
)


def write(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def add_pci(
    root: Path, address: str, vendor: str, code: str, device: str, driver: str = ""
) -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    write(root, f"{folder}/vendor", f"{vendor}\n")
    write(root, f"{folder}/class", f"{code}\n")
    write(root, f"{folder}/device", f"{device}\n")
    if driver:
        (root / folder.lstrip("/") / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def test_pci_shows_gpus_and_switches_with_their_drivers(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:00:02.0", "0x8086", "0x030000", "0x3e9b", "i915")
    add_pci(tmp_path, "0000:01:00.0", "0x10de", "0x030000", "0x2684", "nouveau")
    add_pci(tmp_path, "0000:01:00.1", "0x10de", "0x040300", "0x22ba", "snd_hda_intel")
    add_pci(tmp_path, "0000:02:00.0", "0x10de", "0x030200", "0x2335")
    add_pci(tmp_path, "0000:03:00.0", "0x10de", "0x068000", "0x22a3", "nvidia-nvswitch")
    found = probe_pci(Host(str(tmp_path)))
    assert found is not None
    assert [(d.address, d.driver, d.device_id) for d in found] == [
        ("0000:01:00.0", "nouveau", "0x2684"),
        ("0000:02:00.0", None, "0x2335"),
        ("0000:03:00.0", "nvidia-nvswitch", "0x22a3"),
    ]
    assert [is_nvswitch(d) for d in found] == [False, False, True]


def test_a_bus_without_nvidia_is_not_an_unknown_bus(tmp_path: Path) -> None:
    assert probe_pci(Host(str(tmp_path))) is None
    (tmp_path / "sys").mkdir()
    assert probe_pci(Host(str(tmp_path))) is None
    (tmp_path / "sys/bus").mkdir()
    assert probe_pci(Host(str(tmp_path))) == ()


@pytest.mark.root
def test_the_running_kernels_mounts_in_a_root_are_not_read(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "sys").mkdir()
    assert speaks_for(Host(str(tmp_path)), "/sys")
    subprocess.run(["mount", "--rbind", "/sys", str(tmp_path / "sys")], check=True)
    try:
        assert not speaks_for(Host(str(tmp_path)), "/sys")
        assert probe_pci(Host(str(tmp_path))) is None
    finally:
        subprocess.run(["umount", "-lR", str(tmp_path / "sys")], check=True)


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [(PROPRIETARY, "535.183.01", "proprietary"), (OPEN, "580.95.05", "open")],
)
def test_kernel_module_from_proc(tmp_path: Path, text: str, version: str, flavour: str) -> None:
    write(tmp_path, "/proc/driver/nvidia/version", text)
    driver = complete_driver(Host(str(tmp_path)), Driver())
    assert (driver.kernel_version, driver.kernel_flavour) == (version, flavour)
    assert driver.version == version


def test_module_and_library_of_different_versions(tmp_path: Path) -> None:
    write(tmp_path, "/sys/module/nvidia/version", "550.90.07\n")
    folder = "/usr/lib/x86_64-linux-gnu"
    write(tmp_path, f"{folder}/libnvidia-ml.so.550.120")
    (tmp_path / folder.lstrip("/") / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.120")
    error = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
    driver = complete_driver(Host(str(tmp_path)), Driver(nvml_error=error))
    assert (driver.kernel_version, driver.library_version) == ("550.90.07", "550.120")
    assert (driver.version, driver.nvml_error) == ("550.90.07", error)


def test_the_link_decides_among_two_libraries(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    write(tmp_path, "/usr/lib64/libnvidia-ml.so.535.54.03")
    write(tmp_path, "/usr/lib64/libnvidia-ml.so.570.133.20")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.133.20")
    assert complete_driver(Host(str(tmp_path)), Driver()).library_version == "570.133.20"


def test_nvmls_own_answer_is_kept(tmp_path: Path) -> None:
    write(tmp_path, "/sys/module/nvidia/version", "550.90.07\n")
    told = Driver(version="551.23", nvml_library="/x/libnvidia-ml.so.551.23", cuda="12.4")
    driver = complete_driver(Host(str(tmp_path)), told)
    assert (driver.version, driver.cuda, driver.library_version) == ("551.23", "12.4", "551.23")


def test_uvm(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert complete_driver(host, Driver()).uvm_loaded is None
    write(tmp_path, "/proc/devices", "Character devices:\n195 nvidia\n")
    assert complete_driver(host, Driver()).uvm_loaded is False
    write(tmp_path, "/proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n")
    assert complete_driver(host, Driver()).uvm_loaded is True
    (tmp_path / "proc/devices").unlink()
    (tmp_path / "sys/module/nvidia_uvm").mkdir(parents=True)
    assert complete_driver(host, Driver()).uvm_loaded is True


def test_tegra_release(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    write(tmp_path, "/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    assert complete_driver(host, Driver()).jetpack == "NVIDIA Jetson AGX Orin Developer Kit"
    write(tmp_path, "/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081\n")
    assert complete_driver(host, Driver()).jetpack == "R36.4.3"


def test_the_gpu_of_a_tegra_without_nvml(tmp_path: Path) -> None:
    assert tegra_gpus(Host(str(tmp_path))) == ()
    board = "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0"
    write(tmp_path, "/proc/device-tree/compatible", board)
    assert [(g.name, g.compute_capability) for g in tegra_gpus(Host(str(tmp_path)))] == [
        ("Orin", "8.7")
    ]


def test_fabric_manager_is_no_matter_without_a_switch() -> None:
    assert complete_driver(Host(), Driver(), [Gpu(fabric_state="completed")]).fabric_manager is None


def test_device_nodes_that_ought_to_be_there(tmp_path: Path) -> None:
    write(tmp_path, "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 0\n")
    assert probe_device_nodes(Host(str(tmp_path))) is None
    write(tmp_path, "/dev/nvidiactl")
    os.chmod(tmp_path / "dev/nvidiactl", 0o660)
    nodes = {node.path: node for node in probe_device_nodes(Host(str(tmp_path))) or ()}
    assert list(nodes) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert nodes["/dev/nvidiactl"].exists
    assert nodes["/dev/nvidiactl"].mode.endswith("rw-rw----")
    assert not nodes["/dev/nvidia0"].exists
    assert nodes["/dev/nvidia0"].readable is None


def test_wsl_has_one_node(tmp_path: Path) -> None:
    write(tmp_path, "/dev/dxg")
    nodes = probe_device_nodes(Host(str(tmp_path)))
    assert nodes is not None
    assert [(node.path, node.exists, node.readable) for node in nodes] == [("/dev/dxg", True, True)]


@pytest.mark.root
def test_a_node_without_a_driver_tells_its_errno(tmp_path: Path) -> None:
    import stat

    (tmp_path / "dev").mkdir()
    taken = {line.split()[0] for line in Path("/proc/devices").read_text().splitlines() if line}
    free = next(major for major in range(60, 255) if str(major) not in taken)
    os.mknod(tmp_path / "dev/nvidiactl", stat.S_IFCHR, os.makedev(free, 255))
    os.chmod(tmp_path / "dev/nvidiactl", 0o666)
    nodes = probe_device_nodes(Host(str(tmp_path))) or ()
    assert (nodes[0].exists, nodes[0].mode) == (True, "crw-rw-rw-")
    assert nodes[0].error in {"ENXIO", "ENODEV", "EACCES"}


def test_processes_with_cudnn_mapped(tmp_path: Path) -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 42    {}\n"
    write(tmp_path, "/proc/self/maps", line.format("/x/libcudnn.so.9.1.0"))
    write(tmp_path, "/proc/41/maps", line.format("/lib/libc.so.6"))
    write(
        tmp_path,
        "/proc/42/maps",
        line.format("/a b/libcudnn_ops.so.9.1.0")
        + line.format("/a b/libcudnn.so.9.1.0 (deleted)")
        + line.format("/a b/libcudnn_ops.so.9.1.0")
        + line.format("/opt/libcudnn/other.so")
        + line.format("[heap]"),
    )
    write(tmp_path, "/proc/42/cmdline", "python\0train.py\0")
    (tmp_path / "proc/43").mkdir()
    found = probe_processes(Host(str(tmp_path)))
    assert found is not None
    assert [(p.pid, p.command) for p in found] == [(42, "python train.py")]
    assert found[0].mapped == (
        "/a b/libcudnn.so.9.1.0 (deleted)",
        "/a b/libcudnn_ops.so.9.1.0",
    )


def test_an_image_has_no_processes(tmp_path: Path) -> None:
    assert probe_processes(Host(str(tmp_path))) is None
    (tmp_path / "proc").mkdir()
    assert probe_processes(Host(str(tmp_path))) is None


@given(st.text())
def test_no_maps_file_breaks_the_reader(text: str) -> None:
    assert all("libcudnn" in path for path in _mapped(text + "libcudnn"))
