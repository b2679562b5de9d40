"""The resolver against a brute-force oracle that reads every constraint literally."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.matrix.model import (
    Archive,
    CudaFloor,
    FrameworkNeed,
    GpuModel,
    Matrix,
    Release,
    Variant,
    Wheel,
)
from cudnn_doctor.matrix.resolver import Conflict, Resolution, resolve
from cudnn_doctor.matrix.target import FrameworkRequest, Target, TargetGpu

RELEASES = ("8.5.0", "8.9.7", "9.1.0", "9.5.1", "9.10.2", "9.11.0", "9.20.0")
CODES = ("3.7", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
GPUS = ("3.7", "6.1", "7.0", "7.5", "8.6", "8.9", "9.0", "10.3", "12.1")
FLOORS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}


@st.composite
def releases(draw: st.DrawFn, version: str) -> Release:
    build = f"{version}.{draw(st.integers(1, 99))}"
    variants, wheels, archives = [], [], []
    for cuda in draw(st.sets(st.sampled_from(("11", "12", "13")), min_size=1)):
        codes = draw(st.none() | st.sets(st.sampled_from(CODES), min_size=1))
        variants.append(
            Variant(
                cuda=cuda,
                driver=draw(st.none() | st.just(FLOORS[cuda])),
                cc=tuple(sorted(codes, key=float)) if codes else None,
                glibc=draw(st.sampled_from(("2.17", "2.27"))),
            )
        )
        for arch in draw(st.sets(st.sampled_from(("x86_64", "aarch64")))):
            yanked = draw(st.sampled_from(("", "", "", "broken")))
            jit = draw(st.sampled_from(("", "", "jit-")))
            wheels.append(
                Wheel(
                    package=f"nvidia-cudnn-{jit}cu{cuda}",
                    version=build,
                    file=f"{version}-{arch}.whl",
                    arch=arch,
                    glibc=draw(st.sampled_from(("2.17", "2.27", "2.28"))),
                    yanked=yanked,
                )
            )
        for platform in draw(st.sets(st.sampled_from(("linux-x86_64", "linux-sbsa")))):
            archives.append(Archive(platform=platform, cuda=cuda, path=f"{version}/{platform}"))
    return Release(
        version=version,
        build=build,
        status=draw(st.sampled_from(("release", "release", "release", "withdrawn"))),
        variants=tuple(variants),
        wheels=tuple(wheels),
        archives=tuple(archives),
    )


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    chosen = draw(st.sets(st.sampled_from(RELEASES), min_size=1))
    rows = tuple(draw(releases(version)) for version in RELEASES if version in chosen)
    pin = draw(st.sampled_from(rows))
    frameworks = (
        _need("pinned", cudnn_install=f"=={pin.build}", cuda_major=12, kind="pinned"),
        _need("floor", cudnn_runtime=">=9.1,<10", cuda_major=None),
        _need("eight", cudnn_runtime=">=8.5,<9", cuda_major=11),
        _need("none", kind="none"),
    )
    return Matrix(
        schema=1,
        updated="2026-11-30",
        sources={},
        releases=rows,
        gpus=(GpuModel(cc="3.7", arch="Kepler", max_cuda="11.8"),),
        cuda_floors=tuple(CudaFloor(cuda=c, driver=d) for c, d in FLOORS.items()),
        frameworks=frameworks,
    )


def _need(name: str, *, kind: str = "documented", **fields: object) -> FrameworkNeed:
    base = FrameworkNeed(
        framework=name, distribution=name, versions="==1.0", cudnn_install_kind=kind
    )
    return msgspec.structs.replace(base, **fields)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    names = draw(st.sets(st.sampled_from(("pinned", "floor", "eight", "none")), max_size=2))
    return Target(
        gpus=tuple(TargetGpu(cc=cc) for cc in sorted(draw(st.sets(st.sampled_from(GPUS))))),
        driver=draw(st.sampled_from((None, "440.1", "470.256.02", "535", "550.5", "580.65.06"))),
        cuda=draw(st.sampled_from((None, None, "11", "12", "13.0"))),
        platform=draw(st.sampled_from(("linux-x86_64", "linux-x86_64", "linux-sbsa"))),
        glibc=draw(st.sampled_from((None, "2.17", "2.27", "2.36"))),
        frameworks=tuple(FrameworkRequest.parse(f"{name}==1.0") for name in sorted(names)),
        method=draw(st.sampled_from((None, None, "wheel", "tarball"))),
        version=draw(st.sampled_from((None, None, ">=9", "==9.10.*", "<9.11", "==9.11.0"))),
        flavour=draw(st.sampled_from(("full", "full", "full", "jit"))),
    )


# -- the oracle: tuples and plain ifs, no code of the resolver


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def oracle(target: Target, matrix: Matrix) -> tuple[set, set]:
    """(release, CUDA) pairs known to work, and pairs that nothing rules out."""
    sure, possible = set(), set()
    for release in matrix.releases:
        for variant in release.variants:
            for method, platform, jit, glibc in artefacts(release, variant):
                if not basics(target, release, variant, method, platform, jit, glibc):
                    continue
                states = [gpu_state(gpu.cc, variant, platform) for gpu in target.gpus]
                if "no" in states:
                    continue
                pair = numbers(release.version), numbers(variant.cuda)
                possible.add(pair)
                if "unknown" not in states:
                    sure.add(pair)
    return sure, possible


def artefacts(release: Release, variant: Variant):
    for wheel in release.wheels:
        if wheel.package.endswith(f"cu{variant.cuda}"):
            platform = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}[wheel.arch]
            yield "wheel", platform, "jit" in wheel.package, wheel.glibc
    for archive in release.archives:
        if archive.cuda == variant.cuda:
            yield "tarball", archive.platform, archive.flavour == "jit", variant.glibc


def basics(target, release, variant, method, platform, jit, glibc) -> bool:
    version = numbers(release.version)
    if platform != target.platform or jit != (target.flavour == "jit"):
        return False
    if target.method and method != target.method:
        return False
    if target.glibc and numbers(target.glibc) < numbers(glibc):
        return False
    if target.cuda and numbers(target.cuda)[0] != int(variant.cuda):
        return False
    if target.driver and not driver_ok(target, variant.cuda):
        return False
    wanted = {
        None: True,
        ">=9": version >= (9,),
        "==9.10.*": version[:2] == (9, 10),
        "<9.11": version < (9, 11),
        "==9.11.0": version == (9, 11, 0),
    }[target.version]
    if not wanted:
        return False
    names = [request.name for request in target.frameworks]
    pin = numbers(next(need.cudnn_install for need in _pins(target))[2:]) if _pins(target) else None
    if "floor" in names and not (9, 1) <= version < (10,):
        return False
    if "eight" in names and not ((8, 5) <= version < (9,) and variant.cuda == "11"):
        return False
    if pin and not (numbers(release.build) == pin and variant.cuda == "12"):
        return False
    asked = target.version == "==9.11.0" or (pin and numbers(release.build) == pin)
    return bool(asked) or not faulty(release, method, jit, variant.cuda, platform)


_MATRIX: list[Matrix] = []


def _pins(target: Target) -> list[FrameworkNeed]:
    names = [request.name for request in target.frameworks]
    return [n for n in _MATRIX[0].frameworks if n.framework == "pinned" and "pinned" in names]


def driver_ok(target: Target, cuda: str) -> bool:
    floor = numbers(FLOORS[cuda])
    if any(float(gpu.cc) >= 10 for gpu in target.gpus):
        floor = max(floor, (570, 26))
    given = numbers(target.driver)
    return given >= floor[: len(given)]


def gpu_state(cc: str, variant: Variant, platform: str) -> str:
    if cc == "3.7" and int(variant.cuda) > 11:
        return "no"
    if variant.cc is None:
        return "unknown"
    major, minor = numbers(cc)
    for code in map(numbers, variant.cc):
        if code[0] == major and code[1] <= minor:
            return "native"
    # Only x86_64 builds are measured: elsewhere a gap proves nothing.
    return "no" if platform == "linux-x86_64" else "unknown"


def faulty(release: Release, method: str, jit: bool, cuda: str, platform: str) -> bool:
    if release.status != "release":
        return True
    same = [
        wheel
        for wheel in release.wheels
        if wheel.package == f"nvidia-cudnn-{'jit-' if jit else ''}cu{cuda}"
    ]
    if method == "wheel":
        arch = {"linux-x86_64": "x86_64", "linux-sbsa": "aarch64"}[platform]
        return any(wheel.yanked for wheel in same if wheel.arch == arch)
    return bool(same) and all(wheel.yanked for wheel in same)


# -- properties


@settings(max_examples=150, deadline=None)
@given(matrices(), targets())
def test_agrees_with_the_oracle(matrix: Matrix, target: Target) -> None:
    _MATRIX[:] = [matrix]
    sure, possible = oracle(target, matrix)
    result = resolve(target, matrix)
    if not possible:
        assert isinstance(result, Conflict)
        return
    assert isinstance(result, Resolution)
    expected = max(sure or possible)
    assert (numbers(result.version), numbers(result.cuda)) == expected
    assert result.certain == bool(sure)
    assert result.packages
    assert resolve(target, matrix) == result


@settings(max_examples=60, deadline=None)
@given(matrices(), targets(), st.sampled_from(GPUS))
def test_more_demands_never_give_a_newer_answer(matrix: Matrix, target: Target, cc: str) -> None:
    before = resolve(target, matrix)
    more = msgspec.structs.replace(target, gpus=(*target.gpus, TargetGpu(cc=cc)))
    pinned = msgspec.structs.replace(target, version="<9.11" if not target.version else None)
    for other in (more, pinned if not target.version else more):
        after = resolve(other, matrix)
        if isinstance(before, Conflict):
            assert isinstance(after, Conflict)
        elif isinstance(after, Resolution) and after.certain:
            assert numbers(after.version) <= numbers(before.version) or not before.certain


@settings(max_examples=80, deadline=None)
@given(matrices(), targets())
def test_conflicts_are_smallest_and_relaxations_work(matrix: Matrix, target: Target) -> None:
    result = resolve(target, matrix)
    if isinstance(result, Resolution):
        return
    parts = demands(target)
    named = set(result.constraints)
    fixed = {"flavour full", "flavour jit", "no yanked or known-bad release"}
    told = " ".join(named)
    if named & fixed or "arch" in told or "Blackwell" in told:
        return  # not expressible as a smaller target
    names = sorted(parts)
    assert named <= set(names)
    assert isinstance(resolve(only(target, named, parts), matrix), Conflict)
    for size in range(len(named)):
        for subset in itertools.combinations(names, size):
            smaller = resolve(only(target, set(subset), parts), matrix)
            assert isinstance(smaller, Resolution) or uses_fixed(smaller, fixed)
    for option in result.relax:
        lifted = set(option.constraints)
        if not lifted <= set(names) or any("Blackwell" in name for name in lifted):
            continue
        left = resolve(only(target, set(names) - lifted, parts), matrix)
        assert isinstance(left, Resolution)
        assert (left.version, left.cuda) == (option.version, option.cuda)


def uses_fixed(conflict: Conflict, fixed: set[str]) -> bool:
    """Whether it needs the demands that every target makes."""
    return any(name in fixed or name.startswith("arch") for name in conflict.constraints)


def demands(target: Target) -> dict[str, str]:
    """Constraint name -> the field of the target that makes it."""
    found = {f"gpu {gpu.cc}": "gpus" for gpu in target.gpus}
    found |= {f"for {request.text}": "frameworks" for request in target.frameworks}
    for field in ("driver", "cuda", "glibc", "method", "version"):
        if getattr(target, field):
            found[f"{field} {getattr(target, field)}"] = field
    return found


def only(target: Target, names: set[str], parts: dict[str, str]) -> Target:
    """The target with nothing but the named demands."""
    changes: dict[str, object] = {
        "gpus": tuple(gpu for gpu in target.gpus if f"gpu {gpu.cc}" in names),
        "frameworks": tuple(r for r in target.frameworks if f"for {r.text}" in names),
    }
    for name, field in parts.items():
        if field not in ("gpus", "frameworks") and name not in names:
            changes[field] = None
    return msgspec.structs.replace(target, **changes)
