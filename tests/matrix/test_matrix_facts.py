"""The shipped matrix against the boundaries that the facts show."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.capability import cc_support
from cudnn_doctor.matrix.compile import compile_matrix
from cudnn_doctor.matrix.load import COMPILED, default_path, from_compiled, from_yaml, load
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.specs import version_key

TENSOR_IR = "libcudnn_engines_tensor_ir.so.9"
EXT = "libcudnn_ext.so.9"
RUNTIME = "libcudnn_engines_runtime_compiled.so.9"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load(default_path())


def _verdict(matrix: Matrix, version: str, cuda: str, cc: str) -> str:
    variant = query.variant(matrix, version, cuda)
    assert variant is not None
    return cc_support(matrix, variant, cc).verdict


def test_compiled_form_is_the_yaml() -> None:
    text = default_path().read_bytes()
    compiled = from_compiled(text)
    assert compiled is not None, "run: python -m cudnn_doctor.matrix.compile"
    assert compiled == from_yaml(text, "compat_matrix.yaml")


def test_compiled_form_of_another_text_is_not_used(tmp_path) -> None:
    own = tmp_path / "own.yaml"
    own.write_bytes(default_path().read_bytes())
    compile_matrix(own)
    assert from_compiled(own.read_bytes(), own.with_suffix(".msgpack")) is not None
    assert from_compiled(own.read_bytes() + b"\n", own.with_suffix(".msgpack")) is None
    own.write_bytes(own.read_bytes().replace(b'updated: "', b'updated: "1999-01-01" # "', 1))
    assert load(own).updated == "1999-01-01"


def test_damaged_compiled_form_falls_back_to_the_yaml(tmp_path) -> None:
    broken = tmp_path / "broken.msgpack"
    broken.write_bytes(COMPILED.read_bytes()[:1000])
    assert from_compiled(default_path().read_bytes(), broken) is None


def test_every_release_from_765_to_9281(matrix: Matrix) -> None:
    versions = [release.version for release in matrix.releases]
    assert versions == sorted(versions, key=version_key)
    assert (versions[0], versions[-1]) == ("7.6.5", "9.28.1")
    assert len(versions) == 80
    assert query.newest(matrix).version == "9.28.1"
    assert query.newest(matrix, "12").version == "9.28.0"
    assert query.newest(matrix, "11").version == "9.10.2"


def test_every_value_knows_its_provenance(matrix: Matrix) -> None:
    for release in matrix.releases:
        for variant in release.variants:
            for field in ("toolkits", "driver", "cc_min", "cc", "shim_search", "glibc"):
                if getattr(variant, field) is not None:
                    assert query.how(matrix, variant, field), (release.version, variant.cuda, field)


@pytest.mark.parametrize("cc", ["5.0", "5.2", "6.1", "7.0"])
def test_9102_is_the_last_below_turing(matrix: Matrix, cc: str) -> None:
    assert _verdict(matrix, "9.10.2", "12", cc) == "native"
    for release in matrix.releases:
        if version_key(release.version) > (9, 10, 2):
            for variant in release.variants:
                assert cc_support(matrix, variant, cc).verdict == "no", release.version


def test_9102_is_the_last_for_cuda_11(matrix: Matrix) -> None:
    assert query.variant(matrix, "9.10.2", "11") is not None
    assert query.variant(matrix, "9.11.0", "11") is None


@pytest.mark.parametrize(
    ("version", "cuda", "cc", "verdict"),
    [
        ("9.28.1", "13", "7.5", "native"),
        ("9.28.1", "13", "8.9", "native"),
        ("9.28.1", "13", "10.3", "native"),
        ("9.28.1", "13", "12.1", "native"),
        ("9.28.1", "13", "11.0", "no"),
        ("9.6.0", "12", "9.0", "native"),
        ("9.6.0", "12", "12.0", "ptx"),
        ("9.7.0", "12", "12.0", "native"),
        ("9.7.0", "11", "12.0", "ptx"),
        ("9.10.2", "11", "12.0", "no"),
        ("8.9.7", "12", "9.0", "native"),
        ("8.9.7", "12", "3.7", "no"),
        ("8.5.0", "11", "3.7", "native"),
        ("8.5.0", "11", "8.9", "native"),
        ("8.5.0", "11", "9.0", "ptx"),
        ("8.7.0", "11", "3.7", "native"),
        ("8.8.0", "11", "3.7", "no"),
        ("7.6.5", "10.2", "7.0", "unknown"),
        ("8.2.2", "10.2", "3.0", "native"),
        ("8.2.2", "11", "3.0", "no"),
    ],
)
def test_capabilities(matrix: Matrix, version: str, cuda: str, cc: str, verdict: str) -> None:
    assert _verdict(matrix, version, cuda, cc) == verdict


def test_a_few_kernels_are_no_support_of_their_own(matrix: Matrix) -> None:
    variant = query.variant(matrix, "9.28.1", "13")
    assert "10.3" not in variant.cc
    assert "10.3" in variant.cc_partial
    old = query.variant(matrix, "9.28.0", "12")
    assert "7.0" in old.cc_partial
    assert "7.0" not in old.cc


def test_ptx_needs_a_driver_that_knows_it(matrix: Matrix) -> None:
    variant = query.variant(matrix, "9.1.0", "12")
    assert variant.cudart == "12.4"
    assert cc_support(matrix, variant, "12.0", driver="570.26").verdict == "ptx"
    assert cc_support(matrix, variant, "12.0", driver="535.54.03").verdict == "no"


def test_gaps_measured_on_x86_64_prove_nothing_for_arm(matrix: Matrix) -> None:
    variant = query.variant(matrix, "9.28.1", "13")
    assert cc_support(matrix, variant, "11.0", platform="linux-sbsa").verdict == "unknown"
    assert cc_support(matrix, variant, "7.0", platform="linux-sbsa").verdict == "no"


def test_sublibraries_appear_where_they_were_measured(matrix: Matrix) -> None:
    assert TENSOR_IR not in query.sublibraries(matrix, "9.20.0", "13")
    assert TENSOR_IR in query.sublibraries(matrix, "9.21.0", "13")
    assert EXT not in query.sublibraries(matrix, "9.21.1", "13")
    assert EXT in query.sublibraries(matrix, "9.22.0", "13")
    assert EXT in query.sublibraries(matrix, "9.22.0.52", "12")
    assert len(query.sublibraries(matrix, "8.9.7", "12")) == 7
    assert query.sublibraries(matrix, "9.10.2", "12", "jit") == (
        "libcudnn.so.9",
        RUNTIME,
        "libcudnn_graph.so.9",
    )
    assert query.sublibraries(matrix, "9.99.0", "12") is None


def test_shims_changed_their_search_tag_at_9211(matrix: Matrix) -> None:
    for release in matrix.releases:
        for variant in release.variants:
            if variant.shim_search:
                expected = "rpath" if version_key(release.version) >= (9, 21, 1) else "runpath"
                assert variant.shim_search == expected, release.version


def test_runtime_engines_need_a_driver_from_927(matrix: Matrix) -> None:
    assert query.variant(matrix, "9.26.1", "13").needs_driver == ()
    assert query.variant(matrix, "9.27.0", "13").needs_driver == (RUNTIME,)


def test_wheels_that_do_not_exist_or_are_yanked(matrix: Matrix) -> None:
    assert query.wheel_for(matrix, "9.25.0", "12", "x86_64") is None
    assert [w.yanked != "" for w in query.wheels_for(matrix, "9.25.0.15", "13")] == [True, True]
    assert query.wheel_for(matrix, "9.25.0", "13", "x86_64", "jit") is not None
    assert query.wheels_for(matrix, "9.19.1", "12") == ()
    assert query.wheels_for(matrix, "9.28.1", "12") == ()
    assert query.wheel_for(matrix, "9.28.1", "13", "aarch64").version == "9.28.1.4"
    assert query.wheels_for(matrix, "8.9.7", "11") == ()


def test_archives_of_both_layouts(matrix: Matrix) -> None:
    old = query.archive_for(matrix, "8.3.0", "11.5", "linux-x86_64")
    assert old.path.endswith(".tgz")
    assert "/compute/redist/cudnn/v8.3.0/" in query.archive_url(matrix, old)
    new = query.archive_for(matrix, "8.3.1", "11", "linux-sbsa")
    assert new.path.endswith("_cuda11.5-archive.tar.xz")
    assert query.archive_for(matrix, "9.15.0", "13", "linux-x86_64").version == "9.15.0.58"
    assert query.archive_for(matrix, "9.15.0", "12", "linux-x86_64").version == ""
    assert query.archive_for(matrix, "9.27.0", "12", "linux-aarch64") is None
    assert query.archive_for(matrix, "9.27.0", "12", "linux-x86_64", "jit").size < 60_000_000
    assert query.archive_for(matrix, "8.0.5", "11.1", "linux-x86_64").cuda == "11.1"


def test_driver_floors(matrix: Matrix) -> None:
    assert query.variant(matrix, "9.10.2", "12").driver == "525.60.13"
    assert query.variant(matrix, "9.10.2", "12").blackwell_driver == "570.26"
    assert query.variant(matrix, "9.17.0", "13").driver == "580.65.06"
    later = query.variant(matrix, "9.28.1", "13")
    assert (later.driver, query.how(matrix, later, "driver")) == ("580.65.06", "inferred")


def test_cuda_127_never_existed(matrix: Matrix) -> None:
    assert query.toolkit_driver(matrix, "12.7") is None
    assert not [t for t in matrix.toolkit_drivers if t.cuda == "12.7"]
    toolkits = {t for r in matrix.releases for v in r.variants for t in v.toolkits or ()}
    assert "12.7" not in toolkits
    assert {"12.6", "12.8"} <= toolkits


def test_tables_are_whole(matrix: Matrix) -> None:
    assert len(matrix.frameworks) >= 209
    assert {need.loader for need in matrix.frameworks} <= matrix.loaders.keys()
    assert sum(len(r.archives) for r in matrix.releases) > 440
    assert len({g.cc for g in matrix.gpus}) == len(matrix.gpus)


def test_no_host_of_a_package_index_is_named() -> None:
    text = default_path().read_text()
    hosts = set(re.findall(r"https?://([\w.-]+)", text))
    assert hosts <= {
        "developer.download.nvidia.com",
        "developer.nvidia.com",
        "docs.nvidia.com",
    }


def test_types_survive_the_round_trip(matrix: Matrix) -> None:
    packed = msgspec.msgpack.encode(matrix)
    assert msgspec.msgpack.decode(packed, type=Matrix) == matrix
