"""Libraries that the loader did not find: which one, and why not."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.explain.rules.files import CUDA_LIBRARY, other_architecture, own_wheel
from cudnn_doctor.machine.model import CudnnCopy

_CT2 = ("whisper", "ctranslate2")


def _major(lib: str) -> int | None:
    found = re.search(r"\.so\.(\d+)", lib)
    return int(found[1]) if found else None


def missing_libraries(case: Case) -> None:
    """Sort the missing libraries by name: cuDNN's own, the driver's, CUDA's."""
    by_cudnn = {o.line: o for o in case.seen("cudnn8-load")}
    for seen in _distinct(case.seen("missing-library")):
        lib = seen.get("lib")
        if lib.startswith("libcudnn"):
            if "DEBUG" not in lib:
                missing_cudnn(case, seen, lib, _major(lib))
        elif lib.startswith("libcuda.so"):
            _missing_libcuda(case, seen, lib)
        elif lib.startswith("libnvidia-ml.so"):
            if not case.seen("toolkit-no-library"):
                _missing_driver(case, seen, lib)
        elif CUDA_LIBRARY.match(lib):
            _missing_cuda(case, seen, lib, by_cudnn.get(seen.line))


def _distinct(items: list[Observation]) -> list[Observation]:
    first: dict[str, Observation] = {}
    for item in items:
        first.setdefault(item.get("lib"), item)
    return list(first.values())


def sublibraries(case: Case) -> None:
    """``Unable to load any of {...}``: cuDNN 9's shim did not get a sublibrary."""
    for seen in _distinct_base(case.seen("sublibrary-not-loaded"))[:1]:
        version = seen.get("version")
        lib = f"{seen.get('base')}.so.{version.split('.')[0]}"
        private_shim = case.facts.uses(*_CT2)
        if not private_shim and _foreign_shim(case, seen, lib, version):
            continue
        if _lacking(case, seen, lib):
            continue
        missing_cudnn(case, seen, lib, int(version.split(".")[0]), shim=version)
        if case.seen("version-refused"):
            case.doubt("cudnn-not-on-loader-path", 0.6)
        if not private_shim and not case.facts.copies_known:
            # CTranslate2, which finds no cuDNN of its own, never asks for the version.
            asked = any(o.get("symbol") == "cudnnGetVersion" for o in case.seen("follow-up"))
            weight = 0.5 if asked else 0.4
            case.vote("cudnn-install-incomplete", weight, culprit=lib, line=seen)
            case.vote("mixed-cudnn-copies", 0.3, culprit=f"the shim {version}", line=seen)


def _distinct_base(items: list[Observation]) -> list[Observation]:
    first: dict[str, Observation] = {}
    for item in items:
        first.setdefault(item.get("base"), item)
    return list(first.values())


def _foreign_shim(case: Case, seen: Observation, lib: str, version: str) -> bool:
    """The shim's version (in braces) is not that of the framework's own copy."""
    own = [c for c in case.facts.copies if c.kind in ("wheel", "bundled") and c.version]
    if not own or any(numbers(c.version)[:3] == numbers(version)[:3] for c in own):
        return False
    other = [c for c in case.facts.copies if numbers(c.version)[:3] == numbers(version)[:3]]
    where = other[0].folder or other[0].kind if other else "not among the known copies"
    case.vote(
        "mixed-cudnn-copies",
        0.85 if other else 0.7,
        f"the loaded shim is {version} ({where}), the environment's copy is {own[0].version}",
        culprit=f"the {version} copy ({where}) that wins over {own[0].folder} {own[0].version}",
        line=seen,
    )
    case.vote("ld-library-path-shadow", 0.3, culprit=f"the {version} copy", line=seen)
    return True


def _lacking(case: Case, seen: Observation, lib: str) -> bool:
    """A known copy lacks exactly this sublibrary."""
    for copy in case.facts.copies_of(_major(lib)):
        told = any(lib.startswith(name.rstrip("*")) for name in copy.lacks if name != "*")
        absent = copy.shim is not None and len(copy.files) > 2 and lib not in copy.files
        if told or absent:
            case.vote(
                "cudnn-install-incomplete",
                0.93,
                f"{copy.folder} has no {lib}",
                culprit=f"{lib}, absent from {copy.folder}",
                line=seen,
            )
            return True
    return False


def missing_cudnn(
    case: Case, seen: Observation, lib: str, major: int | None, shim: str = ""
) -> None:
    """A cuDNN library was not found: the first of these that the facts support."""
    steps = (
        _fake_link,
        other_architecture,
        _files_gone,
        own_wheel,
        _no_nvidia_wheels,
        _present_elsewhere,
        _other_major,
    )
    for step in steps:
        if step(case, seen, lib, major):
            return
    _nothing_known(case, seen, lib, major, shim)


def _fake_link(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    links = [(o.get("path"), o.get("target")) for o in case.seen("link")]
    links += [(item.path, item.link or "") for item in case.facts.machine.libraries if item.link]
    for path, target in links:
        if "libcudnn" in path and ".so" in target and "cudnn" not in target:
            case.vote(
                "cudnn-fake-symlink",
                0.96,
                f"{path} -> {target}: no cuDNN behind cuDNN's name",
                culprit=path,
                line=seen,
            )
            return True
    return False


def _files_gone(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    satisfied = case.first("already-satisfied")
    gone = [
        f"{d.name} {d.version}"
        for e in case.facts.machine.environments
        for d in e.distributions
        if d.name.startswith("nvidia-cudnn") and d.record_problems
    ]
    if satisfied is None and not gone:
        return False
    name = gone[0] if gone else f"{satisfied.get('name')} {satisfied.get('version')}"  # type: ignore[union-attr]
    case.vote(
        "wheel-files-missing",
        0.94 if gone else 0.75,
        f"{name} is recorded as installed, its files are not there",
        culprit=f"{name.strip()} (its RECORD lists files that are not on the disk)",
        line=satisfied or seen,
    )
    case.vote("cudnn-not-on-loader-path", 0.3, line=seen)
    return True


def _no_nvidia_wheels(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    """A framework that takes cuDNN from wheels, and no such wheel in its environment."""
    facts = case.facts
    torch = facts.framework("torch")
    if facts.says(r"\bno nvidia-\S* (?:distributions?|packages?|wheels?)") or (
        facts.whole and torch and not facts.cudnn_wheels and not facts.copies_of(major)
    ):
        version = f"torch {torch.version}" if torch else "the framework"
        case.vote(
            "framework-deps-not-installed",
            0.9,
            "no nvidia-* distribution is installed beside the framework",
            culprit=f"{version} is there, its nvidia-cudnn package is not",
            line=seen,
        )
        return True
    return False


def _present_elsewhere(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    """The wanted major is on the disk: the loader does not look there."""
    facts = case.facts
    copies = [c for c in facts.copies_of(major) if "*" not in c.lacks]
    if major is None:
        if copies:
            case.vote(
                "wheel-no-unversioned-so",
                0.88,
                f"only versioned names are in {copies[0].folder}",
                culprit=f"{lib} (no such link in {copies[0].folder})",
                line=seen,
            )
        return bool(copies)
    known = [c for c in copies if c.folder] or copies
    if not known:
        return False
    hidden = [c for c in known if not facts.searched(c.folder)]
    order = {"wheel": 0, "conda": 1, "bundled": 2}
    best = min(hidden or known, key=lambda copy: order.get(copy.kind, 1))
    weight = 0.9 if hidden else 0.5
    case.vote(
        "cudnn-not-on-loader-path",
        weight,
        _where(best, hidden=bool(hidden)),
        culprit=f"{best.folder or best.kind} (present, not searched by the loader)",
        line=seen,
    )
    if not hidden:
        case.vote("cudnn-install-incomplete", 0.4, culprit=lib, line=seen)
    return True


def _where(copy: CudnnCopy, *, hidden: bool) -> str:
    version = f" {copy.version}" if copy.version else ""
    tail = "the loader does not search it" if hidden else "it is on the search path"
    return f"cuDNN{version or f' {copy.major}'} is in {copy.folder or 'another place'}, {tail}"


def _other_major(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    facts = case.facts
    others = sorted({c.major for c in facts.copies if c.major and c.major != major})
    if major is None or not others:
        return False
    have = ", ".join(str(number) for number in others)
    weight, diagnosis = 0.9, "cudnn-major-mismatch"
    if facts.jetson:
        case.vote("jetson-package-mismatch", 0.6, culprit=lib, line=seen)
    who = next((name for name in ("ctranslate2", "onnxruntime") if facts.framework(name)), "")
    framework = facts.framework(who) if who else None
    label = f"{who} {framework.version}" if framework else "the program"
    case.vote(
        diagnosis,
        weight,
        f"only cuDNN {have} is on this machine",
        culprit=f"{label} needs cuDNN {major} ({lib}); only {have} is present",
        line=seen,
    )
    return True


def _nothing_known(case: Case, seen: Observation, lib: str, major: int | None, shim: str) -> None:
    facts = case.facts
    absent = facts.copies_known and not facts.copies
    wanted = f"no libcudnn*.so.{major} on the search path" if major else lib
    if major is None:
        case.vote("wheel-no-unversioned-so", 0.5, culprit=lib, line=seen)
        case.vote("cudnn-not-installed", 0.3, culprit=wanted, line=seen)
        return
    if absent and facts.whole:
        case.vote("cudnn-not-installed", 0.93, "no copy of cuDNN", culprit=wanted, line=seen)
        return
    private = facts.uses(*_CT2) or (shim and not facts.uses("torch", "jax", "xla"))
    installed = 0.35 if private and not facts.given else 0.6 if facts.given else 0.42
    hidden = 0.55 if private else 0.38
    case.vote("cudnn-not-installed", installed, culprit=wanted, line=seen)
    case.vote("cudnn-not-on-loader-path", hidden, culprit=wanted, line=seen)
    case.vote("cudnn-major-mismatch", 0.33, culprit=f"cuDNN {major} is wanted", line=seen)
    if facts.uses("torch") and not private:
        case.vote(
            "framework-deps-not-installed", 0.35, culprit="torch's nvidia packages", line=seen
        )
        case.vote("wheel-files-missing", 0.2, line=seen)
    if shim and not private:
        case.doubt("cudnn-not-installed", 0.6)


def _missing_libcuda(case: Case, seen: Observation, lib: str) -> None:
    facts = case.facts
    if not re.search(r"\.so\.\d", lib):
        where = " (in /usr/lib/wsl/lib)" if facts.wsl else ""
        case.vote(
            "libcuda-unversioned-missing",
            0.92 if facts.wsl or case.seen("cudnn8-load") else 0.7,
            culprit=f"{lib}{where}: only libcuda.so.1 is known to the loader",
            line=seen,
        )
        return
    _missing_driver(case, seen, lib)


def _missing_driver(case: Case, seen: Observation, lib: str) -> None:
    facts = case.facts
    container = facts.in_container
    culprit = f"{lib}: it comes with the driver"
    if container:
        culprit = f"{lib} and /dev/nvidia* are not in the container: it was not given the GPU"
    known_host = facts.given and not container
    case.vote("container-without-gpu", 0.88 if container else 0.4, culprit=culprit, line=seen)
    case.vote(
        "driver-not-installed",
        0.3 if container else 0.55 if known_host else 0.45,
        culprit=culprit,
        line=seen,
    )
    if facts.machine.gpus == () and facts.whole:
        case.vote("no-nvidia-gpu", 0.4, line=seen)


def _missing_cuda(case: Case, seen: Observation, lib: str, loader: Observation | None) -> None:
    """A CUDA library: wanted by cuDNN, or by a framework or extension."""
    facts = case.facts
    major = _major(lib)
    if _lies_in_a_wheel(case, seen, lib):
        return
    if lib.startswith("libnvrtc") and (loader or not _other_cuda(case, lib, major)):
        case.vote("libnvrtc-missing", 0.9 if loader or facts.given else 0.6, culprit=lib, line=seen)
        if not loader and not facts.given:
            case.vote("cuda-major-mismatch", 0.4, culprit=f"{lib} is wanted", line=seen)
        return
    if loader is not None or any(o.get("lib").startswith("libcudnn") for o in _loads(case, seen)):
        case.vote(
            "cudnn-cuda-major-mismatch",
            0.8,
            "cuDNN itself was found and asks for this library",
            culprit=f"{lib}: cuDNN was built for another CUDA than the one that is there",
            line=seen,
        )
        case.vote("other-cuda-lib-missing", 0.35, culprit=lib, line=seen)
        return
    if _other_cuda(case, lib, major):
        have = ", ".join(str(number) for number in sorted(facts.cuda_majors))
        case.vote(
            "cuda-major-mismatch",
            0.88,
            f"CUDA {have} is installed",
            culprit=f"{_extension(case)} built for CUDA {major} ({lib}); CUDA {have} is present",
            line=seen,
        )
        return
    weight = 0.7 if re.match(r"lib(?:curand|cufft|cusolver|cusparse|cupti|nvJitLink)", lib) else 0.5
    case.vote("other-cuda-lib-missing", weight, culprit=lib, line=seen)
    if lib.startswith(("libcudart", "libcublas")):
        case.vote("cuda-major-mismatch", 0.38, culprit=f"{lib} is wanted", line=seen)


def _lies_in_a_wheel(case: Case, seen: Observation, lib: str) -> bool:
    """The library is on the disk beside a cuDNN wheel: the loader looks for neither there."""
    wheels = [c.folder.rpartition("/cudnn/")[0] for c in case.facts.copies if c.kind == "wheel"]
    for library in case.facts.machine.libraries:
        folder, _, name = library.path.rpartition("/")
        beside = any(wheel and folder.startswith(f"{wheel}/") for wheel in wheels)
        if name == lib and beside and case.facts.searched(folder) is False:
            case.vote(
                "cudnn-not-on-loader-path",
                0.8,
                f"{library.path} is there, as cuDNN's wheel is; the loader searches neither",
                culprit=folder,
                line=seen,
            )
            return True
    return False


def _loads(case: Case, seen: Observation) -> list[Observation]:
    return [o for o in case.seen("cudnn8-load") if o.line == seen.line]


def _other_cuda(case: Case, lib: str, major: int | None) -> bool:
    """Whether the CUDA that is there is known, and is of another major than the wanted one."""
    majors = case.facts.cuda_majors
    if not majors or major is None or re.match(r"lib(?:curand|cufft|cusolver|cusparse)", lib):
        return False
    return major not in majors


def _extension(case: Case) -> str:
    known = ("torch", "jax", "tensorflow")
    others = [f for f in case.facts.machine.frameworks if f.name not in known]
    return f"{others[0].name} {others[0].version}".strip() if others else "a library"


def unnamed_libraries(case: Case) -> None:
    """The framework says that libraries are missing, without their names."""
    seen = case.first("gpu-libraries-not-loaded", "cudnn-not-loaded")
    if seen is None or case.seen("missing-library"):
        return
    hidden = [c for c in case.facts.copies if c.folder and case.facts.searched(c.folder) is False]
    if case.facts.copies:
        folder = hidden[0].folder if hidden else case.facts.copies[0].folder
        loaded = case.facts.machine.environ.get("LOADEDMODULES", "")
        module = "a cuDNN module is loaded, but " if "cudnn" in loaded.lower() else ""
        case.vote(
            "cudnn-not-on-loader-path",
            0.82,
            f"{module}{folder} is not in LD_LIBRARY_PATH or the loader's cache",
            culprit=f"{module}{folder} is not searched",
            line=seen,
        )
        return
    if seen.signature.event == "cudnn-not-loaded":
        missing_cudnn(
            case, seen, seen.get("lib") or "libcudnn.so.9", _major(seen.get("lib") or ".so.9")
        )
        return
    case.vote("cudnn-not-on-loader-path", 0.36, line=seen)
    case.vote("cudnn-not-installed", 0.34, line=seen)
    case.vote("other-cuda-lib-missing", 0.3, line=seen)


def linker(case: Case) -> None:
    """The link editor found no ``-lcudnn``."""
    seen = case.first("linker-missing")
    if seen is None:
        return
    name = seen.get("name")
    if name == "cuda":
        case.vote(
            "libcuda-unversioned-missing", 0.7, culprit="libcuda.so for the linker", line=seen
        )
        return
    if not name.startswith("cudnn"):
        case.vote("other-cuda-lib-missing", 0.7, culprit=f"lib{name}.so", line=seen)
        return
    present = bool(case.facts.copies)
    case.vote(
        "wheel-no-unversioned-so", 0.85 if present else 0.5, culprit=f"lib{name}.so", line=seen
    )
    case.vote("cudnn-not-installed", 0.1 if present else 0.35, culprit=f"lib{name}.so", line=seen)
    case.vote("dev-headers-wrong-path", 0.25, line=seen)


MISSING_RULES = (missing_libraries, sublibraries, unnamed_libraries, linker)
