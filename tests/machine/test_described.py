"""Descriptions by hand: phrases as people write them become facts."""

from __future__ import annotations

import pytest

from cudnn_doctor.machine.described import describe, is_loose


@pytest.mark.parametrize(
    ("phrase", "name", "version", "cuda"),
    [
        ("torch 2.4.1+cu121 (conda)", "torch", "2.4.1+cu121", "12.1"),
        ("pytorch==2.6.0", "torch", "2.6.0", None),
        ("tensorflow-gpu 2.10", "tensorflow", "2.10", None),
        ("torch 2.8.0+cpu from PyPI", "torch", "2.8.0+cpu", "cpu"),
        ("jaxlib 0.7.2 cuda12", "jax", "0.7.2", "12"),
        ("onnxruntime-gpu 1.21+", "onnxruntime", "1.21", None),
        ("torch 1.8.1 (cu102 from PyPI)", "torch", "1.8.1", "10.2"),
        ("faster-whisper from pip", "faster-whisper", "", None),
    ],
)
def test_frameworks(phrase: str, name: str, version: str, cuda: str | None) -> None:
    (framework,) = describe({"frameworks": [phrase]}).frameworks
    assert (framework.name, framework.version, framework.cuda) == (name, version, cuda)


def test_wheels_among_the_frameworks_are_distributions() -> None:
    machine = describe({"frameworks": ["torch 2.5", "nvidia-cudnn-cu12 9.1.0.70"]})
    (distribution,) = machine.environments[0].distributions
    assert (distribution.name, distribution.version) == ("nvidia-cudnn-cu12", "9.1.0.70")


@pytest.mark.parametrize(
    ("phrase", "folder", "version", "kind"),
    [
        ("/opt/venv/lib/python3.12/site-packages/nvidia/cudnn/lib 9.7.1", None, "9.7.1", "wheel"),
        ("site-packages/nvidia/cudnn/lib 9.10.2", "site-packages/nvidia/cudnn/lib", None, "wheel"),
        ("/usr/local/cuda-12.4/lib64 8.9.7", "/usr/local/cuda-12.4/lib64", "8.9.7", "toolkit"),
        ("$CONDA_PREFIX/lib cudnn 8.9.2", "$CONDA_PREFIX/lib", "8.9.2", "conda"),
        ("bundled 8.7.0", "", "8.7.0", "bundled"),
        ("/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.6 (apt)", None, "8.9.6", "system"),
    ],
)
def test_copies(phrase: str, folder: str | None, version: str | None, kind: str) -> None:
    copies = describe({"cudnn_copies": [phrase]}).copies
    assert copies is not None
    assert copies[0].kind == kind
    assert folder is None or copies[0].folder == folder
    assert version is None or copies[0].version == version


def test_a_link_to_something_else_is_a_library_and_no_copy() -> None:
    machine = describe({"cudnn_copies": ["/usr/lib/libcudnn.so.9 -> libcuda.so.550.54.14"]})
    assert machine.copies is None
    assert machine.libraries[0].soname == "libcuda.so.1"


def test_lacking_library() -> None:
    copies = describe({"cudnn_copies": ["/a/lib 9.20.0 without libcudnn_ext.so.9"]}).copies
    assert copies is not None and copies[0].lacks == ("libcudnn_ext.so.9",)
    assert copies[0].version == "9.20.0"


def test_system_and_driver() -> None:
    machine = describe(
        {
            "os": "Rocky Linux 8.9 (glibc 2.28) in a podman container",
            "gpu": ["2x RTX A6000 48 GB (CC 8.6)"],
            "driver": "kernel module 535.54.03, user libraries 535.183.01",
            "cuda": "nvcc 12.2",
            "env": {"LD_LIBRARY_PATH": "/opt/a/lib:/opt/b/lib (from a module)"},
        }
    )
    assert (machine.system.distro_id, machine.system.distro_version) == ("rocky", "8.9")
    assert (machine.system.libc_version, machine.system.container) == ("2.28", "podman")
    assert machine.gpus is not None and len(machine.gpus) == 2
    assert machine.gpus[1].memory_total == 48 << 30
    assert machine.driver.kernel_version == "535.54.03"
    assert machine.driver.library_version == "535.183.01"
    assert machine.driver.nvml_error == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
    assert machine.toolkits is not None and machine.toolkits[0].version == "12.2"
    assert machine.environ["LD_LIBRARY_PATH"] == "/opt/a/lib:/opt/b/lib"


def test_unset_is_known_to_be_empty_and_untold_is_unknown() -> None:
    told = describe({"env": {"LD_LIBRARY_PATH": "unset"}, "ldconfig_has_cudnn": False})
    assert told.environ == {"LD_LIBRARY_PATH": ""} and told.loader.cache == ()
    untold = describe({"os": "Debian 12"})
    assert untold.environ == {} and untold.loader.cache is None and untold.copies is None
    assert untold.partial


def test_what_no_rule_reads_is_a_note() -> None:
    machine = describe({"os": "Fedora 40", "notes": "after a resume", "fan": "loud"})
    assert "after a resume" in machine.notes and "fan loud" in machine.notes


def test_our_own_schema_is_not_loose() -> None:
    assert not is_loose({"driver": {"version": "550.1"}, "frameworks": [{"name": "torch"}]})
    assert is_loose({"driver": "550.54.14"})
