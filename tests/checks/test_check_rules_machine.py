"""Rules about system, driver and GPUs: each with the fault and its healthy twin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from check_builders import (
    MATRIX,
    SYSTEM,
    WHEEL,
    change,
    finding,
    framework,
    gpu,
    healthy,
    judge,
    no_gpu_answers,
    onnxruntime,
    problems,
    replace_library,
)

from cudnn_doctor.checks.model import Finding
from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine.model import (
    CudnnCopy,
    DeviceNode,
    DiskSpace,
    Distribution,
    MigInstance,
    PciDevice,
    Requirement,
)
from cudnn_doctor.matrix.model import FrameworkNeed

replace = msgspec.structs.replace


# -- system


def test_musl() -> None:
    assert problems(change(healthy(), "system", libc="musl", distro_id="alpine"))[0] == "musl-libc"


def test_glibc_too_old_by_what_the_file_needs() -> None:
    machine = replace_library(healthy(), f"{WHEEL}/libcudnn_cnn.so.9", glibc_needed="2.27")
    assert problems(machine) == []
    assert "glibc-too-old" in problems(change(machine, "system", libc_version="2.17"))


def test_tmp_full_names_a_disk_with_room() -> None:
    full = DiskSpace(path="/tmp", free=100 << 20, filesystem="tmpfs")
    disks = (full, DiskSpace(path="/home/ada", free=50 << 30))
    machine = change(healthy(), "system", tmpdir="/tmp", disks=disks)
    assert problems(machine) == ["tmp-full"]
    assert "export TMPDIR=/home/ada/tmp" in finding(machine, "tmp-full").remedies[0].commands
    roomy = (replace(full, free=9 << 30), disks[1])
    assert problems(change(machine, "system", disks=roomy)) == []


def test_disk_full() -> None:
    disks = (DiskSpace(path="/tmp", free=9 << 30), DiskSpace(path="/venv", free=0))
    assert problems(change(healthy(), "system", tmpdir="/tmp", disks=disks)) == ["disk-full"]


def test_read_only_environment_is_a_note() -> None:
    machine = change(healthy(), "system", disks=(DiskSpace(path="/venv", read_only=True),))
    assert finding(machine, "read-only-target").severity == "info"


# -- driver and devices


def test_no_gpu_is_an_error_unless_none_is_meant_to_be_there() -> None:
    machine = replace(no_gpu_answers(healthy()), pci=())
    assert "no-nvidia-gpu" in problems(machine)
    assert "no-nvidia-gpu" not in problems(machine, no_gpu=True)


def test_nouveau_holds_the_gpu() -> None:
    pci = (PciDevice(address="0000:01:00.0", class_code="0x030000", driver="nouveau"),)
    machine = replace(no_gpu_answers(healthy()), pci=pci)
    assert "driver-not-installed" in problems(machine)
    found = finding(machine, "driver-not-installed")
    assert found.culprit == "nouveau"
    assert found.remedies[0].commands == ("sudo ubuntu-drivers install",)


def test_a_gpu_passed_through_is_told_apart() -> None:
    pci = (PciDevice(address="0000:01:00.0", class_code="0x030000", driver="vfio-pci"),)
    machine = replace(no_gpu_answers(healthy()), pci=pci)
    assert "vfio-pci" in finding(machine, "driver-not-installed").title


def test_kernel_module_and_libraries_differ() -> None:
    machine = change(healthy(), "driver", library_version="580.105.08")
    assert problems(machine) == ["driver-user-kernel-mismatch"]


@pytest.mark.parametrize(("driver", "ids"), [("470.86", ["driver-too-old"]), ("525.60.13", [])])
def test_driver_floor(driver: str, ids: list[str]) -> None:
    version = {"version": driver, "kernel_version": driver, "library_version": driver}
    machine = change(healthy(), "driver", cuda="12.0" if not ids else "11.4", **version)
    assert [id for id in problems(machine) if id == "driver-too-old"] == ids


def test_uvm_is_not_loaded() -> None:
    assert problems(change(healthy(), "driver", uvm_loaded=False)) == ["uvm-module-wedged"]


def test_fabric_manager() -> None:
    stopped = change(healthy(), "driver", fabric_manager="stopped")
    assert problems(stopped) == ["fabricmanager-missing"]
    running = change(healthy(), "driver", fabric_manager="running")
    assert problems(running) == []
    other = change(running, "driver", fabric_manager_version="570.10.01")
    assert problems(other) == ["fabricmanager-missing"]


def nodes(**fields: Any) -> tuple[DeviceNode, ...]:
    usual = {"exists": True, "readable": True, "mode": "crw-rw-rw-"}
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    return tuple(DeviceNode(path=path, **{**usual, **fields}) for path in paths)


def test_device_nodes_missing() -> None:
    machine = replace(healthy(), device_nodes=nodes(exists=False, readable=None))
    assert problems(machine) == ["device-nodes-missing"]


def test_permission_by_mode_by_selinux_by_cgroup() -> None:
    by_mode = replace(
        healthy(), device_nodes=nodes(readable=False, mode="crw-rw----", owner="root:video")
    )
    assert problems(by_mode) == ["permission-denied"]
    command = finding(by_mode, "permission-denied").remedies[0].commands[0]
    assert command == "sudo usermod -aG video ada"
    denied = replace(healthy(), device_nodes=nodes(readable=False, error="EACCES"))
    assert problems(change(denied, "system", selinux="enforcing")) == ["selinux-denies-gpu"]
    revoked = replace(healthy(), device_nodes=nodes(readable=False, error="EPERM"))
    assert problems(change(revoked, "system", container="docker")) == ["cgroup-device-revoked"]


def test_container_started_without_the_gpu() -> None:
    machine = no_gpu_answers(healthy(), kernel_version="580.95.05")
    machine = replace(machine, device_nodes=nodes(exists=False, readable=None), pci=None)
    machine = change(machine, "system", container="docker", container_gpu=False)
    assert problems(machine) == ["container-without-gpu"]


def test_docker_desktop_context() -> None:
    machine = change(healthy(), "system", docker_context="desktop-linux")
    assert problems(machine) == ["docker-desktop-context"]
    assert problems(change(healthy(), "system", docker_context="default")) == []


# -- GPU


def test_pascal_with_a_cudnn_that_dropped_it() -> None:
    old = {"name": "NVIDIA GeForce GTX 1080", "compute_capability": "6.1"}
    assert "gpu-too-old-for-cudnn" in problems(gpu(healthy("9.14.0"), **old))
    found = finding(gpu(healthy("9.14.0"), **old), "gpu-too-old-for-cudnn")
    assert "9.10.2" in found.remedies[0].title
    assert "gpu-too-old-for-cudnn" not in problems(gpu(healthy("9.10.2"), **old))


def test_gpu_too_old_for_the_frameworks_cuda() -> None:
    kepler = gpu(healthy(), name="Tesla K80", compute_capability="3.7")
    assert {"gpu-too-old", "gpu-too-old-for-cudnn"} <= {f.id for f in judge(kepler).findings}


def test_gpu_too_new_for_the_build() -> None:
    blackwell = gpu(healthy(), name="GeForce RTX 5090", compute_capability="12.0")
    old = framework(blackwell, version="1.13.1", cuda="11.7", cudnn_built=None)
    assert "gpu-too-new-for-build" in problems(old)
    assert "gpu-too-new-for-build" not in problems(blackwell)


def test_ptx_newer_than_driver() -> None:
    need = FrameworkNeed(
        framework="torch",
        distribution="torch",
        versions="==2.8.0",
        cuda_built="12.8",
        cuda_major=12,
        cc=("7.5", "8.0+PTX"),
    )
    matrix = replace(MATRIX, frameworks=(need,))
    ids = {f.id for f in run_checks(change(healthy(), "driver", cuda="12.2"), matrix).findings}
    assert "ptx-newer-than-driver" in ids
    ids = {f.id for f in run_checks(healthy(), matrix).findings}
    assert "ptx-newer-than-driver" not in ids


def test_mig() -> None:
    empty = gpu(healthy(), mig_enabled=True)
    assert problems(empty) == ["mig-one-instance"]
    instance = MigInstance(uuid="MIG-1", profile="1g.18gb")
    cut = gpu(healthy(), mig_enabled=True, mig_instances=(instance,))
    assert finding(cut, "mig-one-instance").severity == "info"


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        ("0", None),
        ("0,1", None),
        ("3", "error"),
        ("-1", "warning"),
        ("GPU-", None),
        ("", "warning"),
    ],
)
def test_cuda_visible_devices(value: str, severity: str | None) -> None:
    machine = replace(healthy(), environ={"CUDA_VISIBLE_DEVICES": value})
    found = [f.severity for f in judge(machine).findings if f.id == "gpu-hidden"]
    assert found == ([severity] if severity else [])


def test_compute_mode_prohibited() -> None:
    assert problems(gpu(healthy(), compute_mode="prohibited")) == ["gpu-hidden"]


def test_gpu_memory_nearly_full() -> None:
    assert problems(gpu(healthy(), memory_free=100 << 20)) == ["out-of-memory-masked"]


def test_cpu_build_beside_a_gpu() -> None:
    machine = framework(healthy(), version="2.8.0+cpu", cuda="cpu", binaries=(), pins=())
    assert "cpu-only-wheel" in problems(machine)
    assert "cpu-only-wheel" not in problems(machine, no_gpu=True)


def ort(*distributions: str, asked: bool = False) -> Finding:
    """The finding about a CPU build of onnxruntime beside a GPU."""
    machine = framework(
        healthy(), name="onnxruntime", distribution="onnxruntime", cuda="cpu", binaries=(), pins=()
    )
    known = tuple(Distribution(name=name, version="1.22.0") for name in distributions)
    place = msgspec.structs.replace(machine.environments[0], distributions=known)
    wishes = (Requirement(name="onnxruntime-gpu", file="requirements.txt", line=1),)
    machine = msgspec.structs.replace(machine, environments=(place,))
    machine = change(machine, "project", requirements=wishes if asked else ())
    return finding(machine, "cpu-only-wheel")


def test_cpu_onnxruntime_is_a_note_until_the_gpu_build_is_wanted() -> None:
    assert ort("onnxruntime").severity == "info"
    assert ort("onnxruntime", asked=True).severity == "warning"
    both = ort("onnxruntime", "onnxruntime-gpu")
    assert both.severity == "error"
    assert "uninstall" in both.remedies[0].commands[0]


def test_jetson() -> None:
    jetson = change(healthy(), "driver", jetpack="R36.4.0")
    system = CudnnCopy(folder=SYSTEM, major=9, version="9.3.0", kind="system")
    machine = replace(
        jetson, partial=True, copies=(system,), frameworks=(onnxruntime("1.18.0", "8.9.2"),)
    )
    assert "jetson-package-mismatch" in problems(machine)
