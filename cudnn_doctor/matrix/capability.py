"""Whether a build of cuDNN holds code that a GPU can run, and how that is known."""

from __future__ import annotations

from typing import Literal, NamedTuple

from cudnn_doctor.matrix.model import How, Matrix, Variant
from cudnn_doctor.matrix.query import how, toolkit_driver
from cudnn_doctor.matrix.specs import version_key


class CcSupport(NamedTuple):
    """Whether a build runs on a GPU, why, and how that is known."""

    verdict: Literal["native", "ptx", "no", "unknown"]
    reason: str
    how: How | None = None


def cc_support(
    matrix: Matrix,
    flavour: Variant,
    cc: str,
    *,
    driver: str | None = None,
    platform: str = "linux-x86_64",
) -> CcSupport:
    """Judge one compute capability against one CUDA flavour of a release.

    Native code runs on its own capability and on newer minors of the same major (binary
    compatibility of the CUDA programming guide): 8.6 code on 8.7 and 8.9, 10.0 code on 10.3. PTX
    runs on newer capabilities if the driver can compile it. ``Variant.cc`` was measured on x86_64
    wheels: for other platforms its gaps prove nothing.
    """
    wanted = version_key(cc)
    if flavour.cc_min and wanted < version_key(flavour.cc_min):
        because = f"supported from {flavour.cc_min} on"
        return CcSupport("no", because, how(matrix, flavour, "cc_min"))
    if flavour.cc is None:
        return _by_range(matrix, flavour, wanted)
    measured = how(matrix, flavour, "cc")
    if native := [own for own in flavour.cc if runs(version_key(own), wanted)]:
        return CcSupport("native", f"native code for {native[-1]}", measured)
    if ptx := [target for target in flavour.ptx or () if _compiles(target, wanted)]:
        return _by_ptx(matrix, flavour, ptx[-1], driver)
    unproved = measured == "inferred" and not flavour.cc_min
    if platform != "linux-x86_64" or unproved:
        return CcSupport("unknown", f"no code for {cc} is known of, the build was not measured")
    everywhere = " in all libraries" if cc in flavour.cc_partial else ""
    return CcSupport("no", f"no code for {cc}{everywhere}", measured)


def _by_range(matrix: Matrix, flavour: Variant, wanted: tuple[int, ...]) -> CcSupport:
    """Judge by the documented span where the code itself was not measured."""
    if not (flavour.cc_min and flavour.cc_max):
        return CcSupport("unknown", "the capabilities of this build are not known")
    source = how(matrix, flavour, "cc_max")
    if wanted <= version_key(flavour.cc_max):
        return CcSupport("native", f"within {flavour.cc_min} to {flavour.cc_max}", source)
    if runs(version_key(flavour.cc_max), wanted):
        return CcSupport("native", f"code for {flavour.cc_max} runs on it", "inferred")
    return CcSupport("no", f"the newest supported is {flavour.cc_max}", source)


def _by_ptx(matrix: Matrix, flavour: Variant, target: str, driver: str | None) -> CcSupport:
    source = how(matrix, flavour, "ptx")
    needed = toolkit_driver(matrix, flavour.cudart) if flavour.cudart else None
    if driver and needed and version_key(driver) < version_key(needed):
        return CcSupport("no", f"driver {needed} is needed to compile PTX for {target}", source)
    return CcSupport("ptx", f"PTX for {target}, compiled by the driver at first use", source)


def runs(code: tuple[int, ...], cc: tuple[int, ...]) -> bool:
    """Binary compatibility: same major, same or older minor."""
    return code[:1] == cc[:1] and code <= cc


def _compiles(ptx: str, cc: tuple[int, ...]) -> bool:
    """PTX of a plain target serves all newer GPUs, of a family (``f``) those of its major."""
    target = version_key(ptx)
    if ptx.endswith("a"):
        return target == cc
    return runs(target, cc) if ptx.endswith("f") else target <= cc
