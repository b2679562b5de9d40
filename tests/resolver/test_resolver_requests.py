"""What users and machines ask for: requirements, version texts, targets from machines."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.machine.model import (
    Driver,
    Environment,
    Framework,
    Gpu,
    Library,
    Machine,
    System,
    Toolkit,
)
from cudnn_doctor.matrix.frameworks import find_builds
from cudnn_doctor.matrix.model import FrameworkNeed, Issue, Matrix, Release, Variant, Wheel
from cudnn_doctor.matrix.resolver import Conflict, Resolution, resolve
from cudnn_doctor.matrix.specs import matches, names_build, normalise
from cudnn_doctor.matrix.target import FrameworkRequest, Target, TargetGpu, platform_of


def need(versions: str, **fields: object) -> FrameworkNeed:
    fields = {"framework": "torch", "distribution": "torch"} | fields
    return FrameworkNeed(versions=versions, **fields)  # type: ignore[arg-type]


def release(build: str, *cudas: str, **fields: object) -> Release:
    version = ".".join(build.split(".")[:3])
    wheels = tuple(
        Wheel(
            package=f"nvidia-cudnn-cu{c}", version=build, file="x.whl", arch="x86_64", glibc="2.17"
        )
        for c in cudas
    )
    variants = tuple(Variant(cuda=c, cc=("6.1", "8.0", "9.0"), driver="1.0") for c in cudas)
    return Release(version=version, build=build, variants=variants, wheels=wheels, **fields)  # type: ignore[arg-type]


def matrix(*releases: Release, **fields: object) -> Matrix:
    return Matrix(schema=1, updated="", sources={}, releases=releases, **fields)  # type: ignore[arg-type]


# -- texts


@pytest.mark.parametrize(
    ("text", "specifier"),
    [
        ("9.10", "==9.10.*"),
        ("9.10.*", "==9.10.*"),
        ("v9", "==9.*"),
        ("9.10.2", "==9.10.2"),
        ("9.10.2.21", "==9.10.2.21"),
        (">=9.5", ">=9.5"),
    ],
)
def test_version_texts(text: str, specifier: str) -> None:
    assert normalise(text) == specifier


@pytest.mark.parametrize(
    ("specifier", "fits"),
    [
        ("==9.10.2", True),
        ("<=9.10.2", True),
        (">9.10.2", False),
        ("==9.10.2.21", True),
        ("==9.10.2.20", False),
        (">=9.10.2.22,<10", False),
        ("~=9.0", True),
        ("<10.0,>=9.3.0.75", True),
        ("==8.*", False),
    ],
)
def test_short_clauses_are_about_the_release_long_ones_about_the_build(
    specifier: str, fits: bool
) -> None:
    assert matches(specifier, "9.10.2", "9.10.2.21") is fits


def test_only_three_numbers_name_a_build() -> None:
    assert names_build("==9.25.0", "9.25.0", "9.25.0.15")
    assert names_build("==9.25.0.15", "9.25.0", "9.25.0.15")
    assert not names_build("==9.25.*", "9.25.0", "9.25.0.15")
    assert not names_build(">=9.25.0", "9.25.0", "9.25.0.15")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (normalise, FrameworkRequest.parse, platform_of):
        with contextlib.suppress(ValueError):
            read(text)


def test_requirements_keep_a_cuda_tag_even_after_a_wildcard() -> None:
    request = FrameworkRequest.parse("torch==2.6.*+cu124")
    assert (request.name, request.specifier, request.local) == ("torch", "==2.6.*", "cu124")
    assert FrameworkRequest.parse("Jax[CUDA12]").name == "jax"
    assert FrameworkRequest.parse("jax[cuda12]>=0.6").extras == ("cuda12",)


# -- framework builds


TORCH = matrix(
    frameworks=(
        need("==2.6.0", cuda_built="12.4", cuda_major=12, cudnn_install="==9.1.0.70"),
        need(
            "==2.6.*",
            channel="download.pytorch.org/whl/cu126",
            cuda_built="12.6",
            cuda_major=12,
            cudnn_install="==9.5.1.17",
        ),
        need("==2.6.*", channel="download.pytorch.org/whl/cu118", cuda_built="11.8", cuda_major=11),
        need("==2.7.0", cuda_built="12.6", cuda_major=12, cudnn_install="==9.5.1.17"),
    )
)


def builds(text: str, facts: Matrix = TORCH, **fields: object) -> list[str | None]:
    request = FrameworkRequest.parse(text)
    return [b.cudnn for b in find_builds(request, Target(**fields), facts)]  # type: ignore[arg-type]


def test_the_indexs_own_build_goes_first_then_other_cuda_builds() -> None:
    assert builds("torch==2.6.*") == ["==9.1.0.70", "==9.5.1.17"]


def test_newer_framework_versions_go_first() -> None:
    assert builds("torch>=2.6")[0] == "==9.5.1.17"
    assert builds("torch<2.7")[0] == "==9.1.0.70"


def test_a_tag_selects_its_build_even_when_its_cudnn_is_not_known() -> None:
    assert builds("torch==2.6.*+cu126") == ["==9.5.1.17"]
    assert builds("torch==2.6.*+cu118") == [None]


def test_a_build_for_another_python_is_left_out() -> None:
    facts = matrix(frameworks=(need("==2.6.0", python=">=3.10", cudnn_install="==9.1.0.70"),))
    assert builds("torch==2.6.0", facts, python="3.11.2") == ["==9.1.0.70"]
    assert builds("torch==2.6.0", facts, python="3.9.1") == []


def test_an_extra_selects_the_cuda_major_by_the_distributions_name() -> None:
    plugin = {"framework": "jax", "cudnn_install": ">=9.8"}
    facts = matrix(
        frameworks=(
            need(">=0.7,<=0.12", distribution="jax-cuda12-plugin", **plugin),
            need(">=0.7,<=0.12", distribution="jax-cuda13-plugin", **plugin),
        )
    )
    found = find_builds(FrameworkRequest.parse("jax[cuda12]"), Target(), facts)
    assert [build.cuda_major for build in found] == ["12"]


def test_installed_metadata_outranks_the_matrix() -> None:
    framework = Framework(
        name="torch",
        distribution="torch",
        version="2.6.0",
        pins=("nvidia-cudnn-cu12 (==9.2.1.18) ; platform_system == 'Linux'",),
    )
    request = FrameworkRequest.installed_one(framework)
    assert request is not None
    assert [b.cudnn for b in find_builds(request, Target(), TORCH)] == ["==9.2.1.18"]


def test_an_unknown_framework_is_told_as_such() -> None:
    with pytest.raises(DoctorError) as caught:
        resolve(Target(frameworks=(FrameworkRequest.parse("torch==1.0"),)), TORCH)
    assert caught.value.exit_code == ExitCode.CANNOT_TELL
    assert "==2.6.0" in caught.value.next_step


# -- machines


def test_a_machine_becomes_a_target() -> None:
    machine = Machine(
        system=System(
            arch="aarch64", libc="glibc", libc_version="2.39", distro_id="ubuntu",
            distro_version="24.04",
        ),
        gpus=(Gpu(name="NVIDIA GH200", compute_capability="9.0"),),
        driver=Driver(version="570.86.15"),
        environments=(Environment(prefix="/venv", python="3.12.3", active=True),),
        frameworks=(
            Framework(name="torch", distribution="torch", version="2.6.0", environment="/venv"),
            Framework(name="jax", distribution="jax", version="0.6.2", environment="/other"),
        ),
    )  # fmt: skip
    target = Target.from_machine(machine)
    assert target.gpus == (TargetGpu(cc="9.0", name="NVIDIA GH200"),)
    assert (target.driver, target.platform, target.glibc) == ("570.86.15", "linux-sbsa", "2.39")
    assert target.distro == "ubuntu 24.04"
    assert [request.text for request in target.frameworks] == ["torch==2.6.0"]
    assert target.python == "3.12.3"


@pytest.mark.parametrize(
    ("jetpack", "platform"), [("R36.4.0", "linux-aarch64"), ("R38.2.0", "linux-sbsa")]
)
def test_jetson_gets_its_own_builds_until_jetpack_7(jetpack: str, platform: str) -> None:
    machine = Machine(system=System(arch="aarch64"), driver=Driver(jetpack=jetpack))
    assert Target.from_machine(machine).platform == platform


def test_a_gpu_that_could_not_be_read_rules_nothing_out_but_is_told() -> None:
    result = resolve(Target(gpus=(TargetGpu(name="Mystery"),)), matrix(release("9.1.0.70", "12")))
    assert isinstance(result, Resolution)
    assert any("Mystery" in note for note in result.notes)


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_garbage_in_a_snapshot_is_not_known_and_no_crash(
    cc: str, driver: str, glibc: str, cuda: str
) -> None:
    machine = Machine(
        system=System(libc="glibc", libc_version=glibc, distro_id=cc, distro_version=driver),
        gpus=(Gpu(name=cuda, compute_capability=cc),),
        driver=Driver(version=driver, cuda=cuda, jetpack=glibc),
    )
    assert resolve(Target.from_machine(machine), matrix(release("9.1.0.70", "12")))


def test_a_misspelt_framework_is_met_with_a_guess() -> None:
    with pytest.raises(DoctorError) as caught:
        resolve(Target(frameworks=(FrameworkRequest.parse("troch"),)), TORCH)
    assert "did you mean torch" in caught.value.next_step


def test_the_cuda_of_the_driver_stands_in_for_its_version() -> None:
    facts = matrix(release("9.20.0.48", "12", "13"))
    result = resolve(Target(driver_cuda="12.4"), facts)
    assert isinstance(result, Resolution) and result.cuda == "12"


def test_the_toolkit_decides_nothing_but_is_told_of() -> None:
    machine = Machine(
        driver=Driver(version="580.65.06"),
        toolkits=(Toolkit(path="/usr/local/cuda", version="12.4", active=True),),
    )
    result = resolve(Target.from_machine(machine), matrix(release("9.20.0.48", "12", "13")))
    assert isinstance(result, Resolution) and result.cuda == "13"
    assert any("--cuda 12.4" in note for note in result.notes)


# -- known faults


def issue(**fields: object) -> Issue:
    base = {"id": "bad", "affects": "==9.20.0", "title": "wrong", "kind": "wrong-results"}
    return Issue(**(base | {"avoid": True} | fields))  # type: ignore[arg-type]


FAULTY = (release("9.10.2.21", "12"), release("9.20.0.48", "12"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "9.10.2"),
        ({"avoid": False}, "9.20.0"),
        ({"cc": ("9.0",)}, "9.20.0"),
        ({"cc": ("8.0",)}, "9.10.2"),
        ({"cuda": "13"}, "9.20.0"),
        ({"packages": ("torch",)}, "9.20.0"),
    ],
)
def test_known_bad_releases_are_avoided_where_they_concern(
    fields: dict[str, object], expected: str
) -> None:
    facts = matrix(*FAULTY, issues=(issue(**fields),))
    result = resolve(Target(gpus=(TargetGpu(cc="8.0"),)), facts)
    assert isinstance(result, Resolution) and result.version == expected


def test_a_known_bad_release_is_given_to_whom_it_was_asked_for_by_number() -> None:
    facts = matrix(*FAULTY, issues=(issue(),))
    asked = resolve(Target(version="==9.20.0"), facts)
    assert isinstance(asked, Resolution)
    assert any("asked for by number" in reason for reason in asked.reasons)
    assert isinstance(resolve(Target(version=">=9.20"), facts), Conflict)


# -- forward compatibility


def compat_machine(name: str) -> Machine:
    folder = "/usr/local/cuda-13.0/compat"
    library = Library(path=f"{folder}/libcuda.so.1", real=f"{folder}/libcuda.so.580.65.06")
    return Machine(
        system=System(arch="x86_64"),
        gpus=(Gpu(name=name, compute_capability="8.0"),),
        driver=Driver(version="535.54.03"),
        environ={"LD_LIBRARY_PATH": f"/opt/lib:{folder}"},
        libraries=(library,),
    )


TWO_CUDAS = matrix(
    Release(
        version="9.20.0",
        build="9.20.0.48",
        variants=(
            Variant(cuda="12", cc=("8.0", "9.0"), driver="525.60.13"),
            Variant(cuda="13", cc=("8.0", "9.0"), driver="580.65.06"),
        ),
        wheels=release("9.20.0.48", "12", "13").wheels,
    )
)


@pytest.mark.parametrize(
    ("name", "cuda"),
    [("NVIDIA A100-SXM4-80GB", "13"), ("Tesla A30", "13"), ("NVIDIA GeForce RTX 3090", "12")],
)
def test_cuda_compat_stands_in_for_the_driver_on_data_centre_gpus(name: str, cuda: str) -> None:
    target = Target.from_machine(compat_machine(name))
    assert target.compat_driver == "580.65.06"
    result = resolve(target, TWO_CUDAS)
    assert isinstance(result, Resolution) and result.cuda == cuda


@pytest.mark.parametrize(
    ("name", "told"), [("NVIDIA H200", True), ("NVIDIA GeForce RTX 4090", False), ("T1000", False)]
)
def test_forward_compatibility_is_offered_where_it_exists(name: str, told: bool) -> None:
    target = Target(gpus=(TargetGpu(cc="9.0", name=name),), driver="535.54.03")
    result = resolve(target, TWO_CUDAS)
    assert isinstance(result, Resolution) and result.cuda == "12"
    assert any("cuda-compat" in note for note in result.notes) is told


def test_forward_compatibility_is_not_offered_where_the_driver_holds_nothing_back() -> None:
    target = Target(gpus=(TargetGpu(cc="9.0", name="H200"),), driver="580.65.06")
    result = resolve(target, TWO_CUDAS)
    assert isinstance(result, Resolution)
    assert not any("cuda-compat" in note for note in result.notes)
