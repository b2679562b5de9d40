"""GPUs through the real nvidia-ml-py over a libnvidia-ml that plays the machine."""

from __future__ import annotations

import os

import pytest
from support.nvml import NvmlStub

from cudnn_doctor.machine.gpus import probe_gpus
from cudnn_doctor.machine.host import Host

GIB = 1 << 30
GENERATIONS = [
    ("Tesla K40m", "3.5"),
    ("Tesla K80", "3.7"),
    ("GeForce GTX 980", "5.2"),
    ("Tesla P100-PCIE-16GB", "6.0"),
    ("GeForce GTX 1080 Ti", "6.1"),
    ("Tesla V100-SXM2-32GB", "7.0"),
    ("Tesla T4", "7.5"),
    ("NVIDIA A100-SXM4-80GB", "8.0"),
    ("NVIDIA GeForce RTX 3090", "8.6"),
    ("Orin (nvgpu)", "8.7"),
    ("NVIDIA GeForce RTX 4090", "8.9"),
    ("NVIDIA H200", "9.0"),
    ("NVIDIA B200", "10.0"),
    ("NVIDIA B300", "10.3"),
    ("NVIDIA Thor", "11.0"),
    ("NVIDIA GeForce RTX 5090", "12.0"),
    ("NVIDIA GB10", "12.1"),
]


def live_host(variables: dict[str, str]) -> Host:
    return Host(environ={**os.environ, **variables})


def gpu(name: str = "NVIDIA H200", cc: str = "9.0", **more: object) -> dict[str, object]:
    return {"name": name, "cc": cc, "memory": 16 * GIB, "mode": 0, **more}


def test_every_generation_is_read(nvml_stub: NvmlStub) -> None:
    gpus, driver = probe_gpus(live_host(nvml_stub([gpu(n, c) for n, c in GENERATIONS])))
    assert gpus is not None
    assert [(g.name, g.compute_capability) for g in gpus] == GENERATIONS
    assert [g.index for g in gpus] == list(range(len(GENERATIONS)))
    assert driver.nvml_error is None


def test_all_facts_of_a_data_centre_gpu(nvml_stub: NvmlStub) -> None:
    full = gpu(free=3 * GIB, ecc=1, uncorrected=2, remapping=1, virtualization=1, fabric=3)
    variables = nvml_stub([full | {"mode": 3, "mig_mode": 0}], driver="580.95.05", cuda="13.0")
    gpus, driver = probe_gpus(live_host(variables))
    assert gpus is not None
    (seen,) = gpus
    assert (seen.uuid, seen.pci_bus_id) == ("GPU-0", "00000000:00:00.0")
    assert (seen.memory_total, seen.memory_free) == (16 * GIB, 3 * GIB)
    assert (seen.ecc_enabled, seen.ecc_uncorrected, seen.retired_pages_pending) == (True, 2, True)
    assert (seen.compute_mode, seen.virtualization) == ("exclusive-process", "passthrough")
    assert (seen.fabric_state, seen.mig_enabled, seen.unreadable) == ("completed", False, ())
    assert (driver.version, driver.cuda) == ("580.95.05", "13.0")
    assert driver.nvml_library == f"{variables['LD_LIBRARY_PATH']}/libnvidia-ml.so.580.95.05"


def test_two_unlike_gpus(nvml_stub: NvmlStub) -> None:
    pair = [gpu("NVIDIA RTX A6000", "8.6"), gpu("Quadro K620", "5.0", memory=2 * GIB)]
    gpus, _ = probe_gpus(live_host(nvml_stub(pair)))
    assert gpus is not None
    assert [(g.compute_capability, g.memory_total, g.uuid) for g in gpus] == [
        ("8.6", 16 * GIB, "GPU-0"),
        ("5.0", 2 * GIB, "GPU-1"),
    ]


def test_mig_instances(nvml_stub: NvmlStub) -> None:
    name = "NVIDIA A100-SXM4-40GB"
    mig = [
        {"name": f"{name} MIG 3g.20gb", "memory": 20 * GIB},
        {"name": f"{name} MIG 1g.5gb", "memory": 5 * GIB},
    ]
    gpus, _ = probe_gpus(live_host(nvml_stub([gpu(name, "8.0", mig_mode=1, mig=mig), gpu()])))
    assert gpus is not None
    assert gpus[0].mig_enabled is True
    assert [(m.profile, m.uuid, m.memory_total) for m in gpus[0].mig_instances] == [
        ("3g.20gb", "MIG-0-0", 20 * GIB),
        ("1g.5gb", "MIG-0-1", 5 * GIB),
    ]
    assert gpus[1].mig_instances == ()


def test_mig_enabled_without_instances(nvml_stub: NvmlStub) -> None:
    gpus, _ = probe_gpus(live_host(nvml_stub([gpu(mig_mode=1)])))
    assert gpus is not None
    assert (gpus[0].mig_enabled, gpus[0].mig_instances) == (True, ())


def test_no_gpu(nvml_stub: NvmlStub) -> None:
    gpus, driver = probe_gpus(live_host(nvml_stub([])))
    assert gpus == ()
    assert (driver.nvml_error, driver.version) == (None, "570.133.20")


@pytest.mark.parametrize(
    "error",
    [
        "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        "NVML_ERROR_NO_PERMISSION",
        "NVML_ERROR_DRIVER_NOT_LOADED",
        "NVML_ERROR_UNKNOWN",
    ],
)
def test_an_nvml_that_refuses_to_start_is_named(nvml_stub: NvmlStub, error: str) -> None:
    host = live_host(nvml_stub([gpu()], error=error))
    gpus, driver = probe_gpus(host)
    assert (gpus, driver.nvml_error, driver.version) == (None, error, None)
    assert driver.nvml_library is not None
    assert host.failures == []


def test_a_gpu_fallen_off_the_bus_does_not_hide_the_others(nvml_stub: NvmlStub) -> None:
    lost = gpu(refuse={"nvmlDeviceGetHandleByIndex_v2": "NVML_ERROR_GPU_IS_LOST"})
    gpus, driver = probe_gpus(live_host(nvml_stub([lost, gpu()])))
    assert gpus is not None
    assert gpus[0].unreadable == ("handle: NVML_ERROR_GPU_IS_LOST",)
    assert gpus[1].compute_capability == "9.0"
    assert driver.nvml_error is None


def test_r610_without_its_removed_functions(nvml_stub: NvmlStub) -> None:
    newest = gpu(ecc=1, remapping=0, refuse={"nvmlDeviceGetComputeMode": "NVML_ERROR_UNKNOWN"})
    gpus, driver = probe_gpus(live_host(nvml_stub([newest], driver="610.43", r610=True)))
    assert gpus is not None
    (seen,) = gpus
    assert (seen.compute_capability, seen.ecc_enabled) == ("9.0", True)
    assert (seen.ecc_uncorrected, seen.retired_pages_pending) == (None, False)
    assert "ecc_uncorrected: NVML_ERROR_FUNCTION_NOT_FOUND" in seen.unreadable
    assert "compute_mode: NVML_ERROR_UNKNOWN" in seen.unreadable
    assert (driver.version, driver.nvml_error) == ("610.43", None)


def test_fabric_states(nvml_stub: NvmlStub) -> None:
    described = [gpu(), gpu(fabric=2), gpu(fabric=3, fabric_status=999)]
    gpus, _ = probe_gpus(live_host(nvml_stub(described)))
    assert gpus is not None
    assert [g.fabric_state for g in gpus] == ["not-supported", "in-progress", "failed"]


def test_a_hanging_driver_is_left_behind(nvml_stub: NvmlStub) -> None:
    host = live_host(nvml_stub([gpu()], hang="nvmlInitWithFlags"))
    gpus, driver = probe_gpus(host, timeout=1.5)
    assert (gpus, driver.nvml_error) == (None, "NVML_ERROR_TIMEOUT")
    assert "while nvmlInit" in host.failures[0].why


def test_a_hang_keeps_what_was_told_before(nvml_stub: NvmlStub) -> None:
    host = live_host(nvml_stub([gpu()], hang="nvmlDeviceGetHandleByIndex_v2"))
    gpus, driver = probe_gpus(host, timeout=1.5)
    assert (gpus, driver.version, driver.nvml_error) == (None, "570.133.20", "NVML_ERROR_TIMEOUT")
    assert "while asking GPU 0" in host.failures[0].why


def test_a_crash_inside_nvml_stays_in_the_child(nvml_stub: NvmlStub) -> None:
    host = live_host(nvml_stub([gpu(), gpu(crash="nvmlDeviceGetName")]))
    gpus, driver = probe_gpus(host)
    assert gpus is not None
    assert [g.index for g in gpus] == [0]
    assert driver.nvml_error == "NVML_ERROR_UNKNOWN"
    assert "SIGSEGV" in host.failures[0].why


def test_a_damaged_library_is_told_with_the_loaders_words(nvml_stub: NvmlStub) -> None:
    variables = nvml_stub([gpu()])
    library = os.path.join(variables["LD_LIBRARY_PATH"], "libnvidia-ml.so.1")
    os.unlink(library)
    with open(library, "wb") as file:
        file.write(b"\x7fELF")
    host = live_host(variables)
    gpus, driver = probe_gpus(host)
    assert (gpus, driver.nvml_error) == (None, "NVML_ERROR_LIBRARY_NOT_FOUND")
    assert "file too short" in host.failures[0].why


def test_a_root_folder_has_no_running_gpu(tmp_path: object) -> None:
    gpus, driver = probe_gpus(Host(root=str(tmp_path)))
    assert gpus is None
    assert driver.nvml_error is None
