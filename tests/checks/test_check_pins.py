"""What a framework accepts: lower bounds of pins, and builds of which only the major is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from check_builders import (
    PREFIX,
    SITE,
    copy_of,
    cudnn_libraries,
    finding,
    healthy,
    judge,
    plain_library,
    problems,
)

from cudnn_doctor.machine.consumers import framework_consumer
from cudnn_doctor.machine.model import Distribution, Framework, Machine

replace = msgspec.structs.replace
PIN = 'nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"'
BINARY = f"{SITE}/jax_plugins/xla_cuda12/xla_cuda_plugin.so"


def framework(machine: Machine, **fields: Any) -> Machine:
    """The machine with facts of its framework replaced."""
    return replace(machine, frameworks=(replace(machine.frameworks[0], **fields),))


@pytest.mark.parametrize(
    ("pin", "major"),
    [
        (PIN, 9),
        ("nvidia-cudnn-cu12==8.9.2.26", 8),
        ("nvidia-cudnn-cu12 (>=9.1,<10)", 9),
        ("nvidia_cudnn_cu13~=9.12", 9),
    ],
)
def test_the_major_wanted_is_that_of_the_lower_bound(pin: str, major: int) -> None:
    wanted = framework_consumer(Machine(), Framework(name="jax", version="0.7.2", pins=(pin,)))
    assert wanted.major == major


def jax_without_wheel(elsewhere: str) -> Machine:
    """JAX's plugin whose extra was not asked for, and a copy that no loader looks at."""
    machine = framework(
        healthy(),
        name="jax",
        distribution="jax-cuda12-plugin",
        version="0.7.2",
        cuda="12",
        pins=(PIN,),
        binaries=(BINARY,),
        cudnn_built=None,
    )
    plugin = Distribution(name="jax-cuda12-plugin", version="0.7.2", requires=(PIN,))
    place = replace(machine.environments[0], distributions=(plugin,))
    kept = tuple(x for x in machine.libraries if "libcudnn" not in x.path)
    other = cudnn_libraries("/opt/cudnn/lib", elsewhere)
    return replace(
        machine,
        environments=(place,),
        libraries=(*kept, *other, plain_library(BINARY)),
        copies=(copy_of(other, elsewhere, kind="prefix"),),
    )


@pytest.mark.parametrize("elsewhere", ["9.1.0", "9.10.2"])
def test_a_plugin_for_gpus_lacks_what_its_extra_brings(elsewhere: str) -> None:
    machine = jax_without_wheel(elsewhere)
    assert problems(machine) == ["framework-deps-not-installed"]
    found = finding(machine, "framework-deps-not-installed")
    assert found.culprit == "nvidia-cudnn-cu12<10.0,>=9.8"
    assert found.subject == PREFIX


def test_no_copy_that_is_too_old_is_recommended() -> None:
    machine = jax_without_wheel("9.1.0")
    bare = replace(machine.environments[0], distributions=())
    machine = replace(machine, environments=(bare,))
    found = finding(machine, "cudnn-not-installed")
    assert "accepts" in found.title
    assert not any("/opt/cudnn" in line for r in found.remedies for line in r.commands)


def test_a_build_that_tells_only_the_major_takes_the_minor_from_the_matrix() -> None:
    described = framework(
        healthy("9.1.0"), name="tensorflow", distribution="tensorflow", version="2.18.0", cuda="12"
    )
    machine = framework(described, cudnn_built="9", pins=(), binaries=())
    ids = [f for f in problems(machine) if "older" in f or "shadow" in f]
    assert ids == ["cudnn-older-than-framework-build"]


@pytest.mark.parametrize("on_path", [False, True])
def test_ctranslate2_opens_cublas_by_name(on_path: bool) -> None:
    machine = framework(
        healthy(), name="ctranslate2", distribution="ctranslate2", version="4.8.0", binaries=()
    )
    path = f"{SITE}/nvidia/cublas/lib" if on_path else ""
    machine = replace(machine, environ={"LD_LIBRARY_PATH": path})
    found = [f for f in judge(machine).findings if "opens libcublas.so.12" in f.title]
    assert [f.severity for f in found] == ([] if on_path else ["error"])
    for one in found:
        assert f"{SITE}/nvidia/cublas/lib" in one.remedies[0].commands[0]
    quiet = [f for f in judge(replace(machine, gpus=())).findings if "opens" in f.title]
    assert all(f.severity == "info" for f in quiet)
