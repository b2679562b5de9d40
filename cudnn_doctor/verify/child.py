"""The child process: does a job's rungs on one copy and one GPU and tells each step by events.

``python -m cudnn_doctor.verify.child FD`` reads a `Job` as JSON from stdin and writes `Event`s as
JSON lines to the file descriptor FD. Each ``begin`` is written before the step is done, so that a
process that dies has said what it was doing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from cudnn_doctor.verify import nvml, nvrtc
from cudnn_doctor.verify.binding import adv, backend, cnn, ext, ops
from cudnn_doctor.verify.binding.library import Cudnn, load_order, mapped_files, open_global
from cudnn_doctor.verify.binding.status import CudnnError, status_name
from cudnn_doctor.verify.causes import initialise_cause, step_cause
from cudnn_doctor.verify.cuda import CudaError, Driver
from cudnn_doctor.verify.model import Event, Job, Status
from cudnn_doctor.versions import CudnnVersion

_VERSION_CHECKS = {
    "graph": "cudnnGraphVersionCheck",
    "ops": "cudnnOpsVersionCheck",
    "cnn": "cudnnCnnVersionCheck",
    "adv": "cudnnAdvVersionCheck",
    "ops_infer": "cudnnOpsInferVersionCheck",
    "ops_train": "cudnnOpsTrainVersionCheck",
    "cnn_infer": "cudnnCnnInferVersionCheck",
    "cnn_train": "cudnnCnnTrainVersionCheck",
    "adv_infer": "cudnnAdvInferVersionCheck",
    "adv_train": "cudnnAdvTrainVersionCheck",
}
_ANSWERS = ("graph", "ops_infer")
"""The libraries that define cudnnGetVersion, of 9.x and 8.x."""
_LASTING = (
    "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "INVALID_PC", "INVALID_ADDRESS_SPACE", "MISALIGNED",
    "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "HARDWARE_STACK_ERROR", "ASSERT", "ECC", "DEINITIALIZED",
)  # fmt: skip
"""CUDA errors after which nothing more can be done in the process."""
_COMPANIONS = ("libcublas", "libnvrtc", "libnvJitLink")


class Skip(Exception):
    """A step or rung cannot be done here, through no fault of the copy."""


class Fault(Exception):
    """A step failed; the text says how and why."""


class Reporter:
    """Writes events."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, event: Event) -> None:
        os.write(self._fd, msgspec.json.encode(event) + b"\n")

    def fact(self, **data: Any) -> None:
        self.send(Event(event="fact", data=data))

    def step(self, rung: str, name: str, work: Callable[[], dict[str, Any] | None]) -> bool:
        """Announce, do and report one step; whether the process can go on."""
        from cudnn_doctor.verify.lab import Refused, Unsupported, Wrong

        self.send(Event(event="begin", rung=rung, step=name))
        before = set(mapped_files())
        start = time.perf_counter()
        status: Status = "pass"
        data: dict[str, Any] = {}
        detail, go_on = "", True
        try:
            data = work() or {}
            detail = data.pop("detail", "")
        except (Skip, Unsupported) as error:
            status, detail = "skip", str(error)
        except Wrong as error:
            status, detail, data = "fail", str(error), {"wrong": True}
        except (Fault, Refused, OSError, CudnnError) as error:
            status, detail = "fail", str(error)
        except CudaError as error:
            cause = step_cause(str(error), {})
            status, detail = "fail", f"{cause} [{error}]" if cause else str(error)
            go_on = not any(word in error.name for word in _LASTING)
        except Exception as error:  # a bug of ours must not hide the other steps
            import traceback

            status, detail = "fail", f"internal error: {type(error).__name__}: {error}"
            data = {"trace": traceback.format_exc()}
        new = sorted(set(mapped_files()) - before)
        if new:
            data["mapped"] = new
        seconds = round(time.perf_counter() - start, 4)
        self.send(
            Event(
                event="end",
                rung=rung,
                step=name,
                status=status,
                detail=detail,
                seconds=seconds,
                data=data,
            )
        )
        return go_on and (status == "pass" or rung != "initialise")


def _open_companions(job: Job, report: Reporter) -> list[str]:
    unopened = []
    for path in job.copy.companions:
        try:
            open_global(path)
        except OSError as error:
            unopened.append(f"{os.path.basename(path)} ({error})")
    if unopened:
        report.fact(unopened=unopened)
    return unopened


# -- rung 2


def load(job: Job, report: Reporter) -> None:
    """Open every library of the copy by its path, ask versions, prove where the files are from."""
    _open_companions(job, report)
    for name in load_order(job.copy.libraries):
        if not report.step("load", name, partial(_open_one, job, name, report)):
            return
    report.step("load", "versions", lambda: _versions(job, report))
    report.step("load", "mapped files", lambda: _mapped(job, report))


def _open_one(job: Job, name: str, report: Reporter) -> dict[str, Any]:
    path = os.path.join(job.copy.folder, name)
    try:
        library = open_global(path)
    except OSError as error:
        if "libcuda.so.1: cannot open" in str(error):
            raise Skip("needs the driver's libcuda.so.1, which is not on this machine") from error
        raise Fault(f"cannot be opened: {error}") from error
    part = name.removeprefix("libcudnn").partition(".so")[0].removeprefix("_")
    if part in _ANSWERS:  # asked at once: the shim may not live to be asked
        report.fact(cudnn=Cudnn(library).version)
    check = _VERSION_CHECKS.get(part, "")
    if check and hasattr(library, check):
        code = getattr(library, check)()
        if code:
            raise Fault(f"{check}: {status_name(code)}: its libraries are of different releases")
        return {"detail": f"{check} agrees"}
    return {"detail": "opened"}


def _versions(job: Job, report: Reporter) -> dict[str, Any]:
    cudnn = Cudnn(open_global(os.path.join(job.copy.folder, job.copy.shim)))
    facts: dict[str, Any] = {"cudnn": cudnn.version}
    for key, name in (("cudart", "cudnnGetCudartVersion"), ("max_cc", "cudnnGetMaxDeviceVersion")):
        if cudnn.has(name):
            facts[key] = cudnn.number(name)
    report.fact(**facts)
    said = CudnnVersion.decode(cudnn.version)
    if job.copy.version and CudnnVersion.parse(job.copy.version).release != said.release:
        raise Fault(f"cudnnGetVersion says {said.short}, the files say {job.copy.version}")
    return {"detail": f"cuDNN {said.short}", **facts}


def _mapped(job: Job, report: Reporter) -> dict[str, Any]:
    files = mapped_files()
    if not files:
        raise Skip("/proc/self/maps tells of no file of it")
    report.fact(mapped=files, companions=[f for name in _COMPANIONS for f in mapped_files(name)])
    folder = os.path.realpath(job.copy.folder) + os.sep
    foreign = [f for f in files if not _belongs(f, folder, job)]
    if foreign:
        raise Fault("mapped from another copy: " + ", ".join(foreign))
    return {"detail": f"{len(files)} files, all of this copy"}


def _belongs(path: str, folder: str, job: Job) -> bool:
    if path.startswith(folder):
        return True
    own = {os.path.realpath(os.path.join(job.copy.folder, n)) for n in job.copy.libraries}
    return path in own


# -- rungs 3 to 6


class Session:
    """Driver, GPU and cuDNN of this process, made step by step."""

    def __init__(self, job: Job, report: Reporter) -> None:
        self.job, self.report = job, report
        self.facts: dict[str, Any] = {"visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
        self.lab: Any = None

    def tell(self, **facts: Any) -> None:
        self.facts |= facts
        self.report.fact(**facts)

    def driver(self) -> dict[str, Any]:
        try:
            self.gpu = Driver()
        except OSError as error:
            raise Skip(f"no NVIDIA driver: {error}") from error
        try:
            self.device = self.gpu.start()
            free, total = self.gpu.memory()
        except CudaError as error:
            if error.name == "CUDA_ERROR_NO_DEVICE" and self.facts["visible"] is None:
                raise Skip("the driver sees no GPU") from error
            self.facts |= nvml.memory(self.job.uuid)  # the driver itself cannot be asked any more
            raise Fault(self._because(error.name, str(error))) from error
        major, minor = self.device.compute_capability
        self.tell(
            gpu=self.device.name,
            uuid=self.device.uuid,
            cc=f"{major}.{minor}",
            driver_cuda=self.gpu.version(),
            memory_free=free,
            memory_total=total,
        )
        return {"detail": f"{self.device.name}, compute capability {major}.{minor}"}

    def _because(self, name: str, text: str) -> str:
        cause = initialise_cause(name, self.facts)
        return f"{cause} [{text}]" if cause else text

    def create(self) -> dict[str, Any]:
        path = os.path.join(self.job.copy.folder, self.job.copy.shim)
        self.cudnn = Cudnn(open_global(path))
        for layer in (ops, cnn, adv, ext, backend):
            layer.declare(self.cudnn)
        if self.cudnn.has("cudnnGetCudartVersion"):
            self.tell(cudart=self.cudnn.number("cudnnGetCudartVersion"))
        self.tell(cudnn=self.cudnn.version)
        try:
            self.cudnn.create()
        except CudnnError as error:
            self.tell(memory_free=self.gpu.memory()[0])
            raise Fault(self._because(error.name, str(error))) from error
        return {"detail": f"cudnnCreate on {self.device.name}"}

    def without_nvrtc(self) -> str:
        """Why this copy cannot compile at run time here; empty where NVRTC is not the cause."""
        copy, release = self.job.copy, CudnnVersion.decode(self.cudnn.version).release
        cudart = self.facts.get("cudart")
        cuda = copy.cuda or (str(cudart // 1000) if cudart else "")
        return nvrtc.missing(copy, release, cuda, self.device.compute_capability)

    def arithmetic(self) -> str:
        """The library for references: ``numpy``, ``cupy`` or ``plain`` (none)."""
        wanted = self.job.references
        order = {
            "auto": ("cupy", "numpy") if self.job.level == "full" else ("numpy", "cupy"),
        }.get(wanted, (wanted,))
        for name in order:
            if name == "plain":
                break
            try:
                xp = __import__(name)
                __import__("numpy")
            except Exception:  # noqa: S112 - CuPy raises many kinds when its parts are missing
                continue
            from cudnn_doctor.verify.lab import Lab

            self.lab = Lab(self.cudnn, self.gpu, self.device, self.job.seed, xp)
            return name
        return "plain"


def work(job: Job, report: Reporter) -> None:
    """Rungs 3 to 6, as far as the job asks and the machine allows."""
    from cudnn_doctor.verify import ladder

    unopened = _open_companions(job, report)
    session = Session(job, report)
    session.facts["unopened"] = unopened
    for name, step in (("driver", session.driver), ("cudnnCreate", session.create)):
        if not report.step("initialise", name, step):
            return
    if session.arithmetic() == "plain":
        from cudnn_doctor.verify import plain

        enable = plain.enabling_command(session.facts["driver_cuda"])
        report.fact(references="plain", enable=enable)

        report.step(
            "convolve",
            "small 3x3 fp32",
            lambda: plain.convolution(session.cudnn, session.gpu, job.seed),
        )
        for rung in job.rungs[1:]:
            report.step(rung, "the rest", partial(_cannot, f"needs NumPy or CuPy: {enable}"))
        return
    report.fact(references=session.lab.xp.__name__)
    rungs: dict[str, Callable[[], Iterable[Any]]] = {
        "convolve": lambda: ladder.convolve_steps(job.level, job.copy.flavour),
        "library": lambda: ladder.library_steps(job.level),
        "speed": lambda: ladder.speed_steps(job.level, job.copy.cublas, session.device.uuid),
    }
    for rung, steps in rungs.items():
        if rung in job.rungs and not _do(session, rung, steps()):
            report.fact(lost=True)
            return
    report.step("convolve", "mapped files", lambda: _mapped(job, report))


def _cannot(why: str) -> dict[str, Any]:
    raise Skip(why)


def _do(session: Session, rung: str, steps: Iterable[Any]) -> bool:
    from cudnn_doctor.verify import speed
    from cudnn_doctor.verify.cublas import CublasError
    from cudnn_doctor.verify.lab import Uncompiled

    def run(step: Any) -> dict[str, Any]:
        try:
            data: dict[str, Any] = step.run(session.lab)
        except CublasError as error:
            raise Skip(f"cuBLAS is needed for the reference rate: {error}") from error
        except Uncompiled as error:
            if why := session.without_nvrtc():
                raise Fault(f"{why} [{error}]") from error
            raise
        except CudnnError as error:
            if session.job.copy.flavour == "jit" and "SUBLIBRARY" in error.name:
                raise Skip("the JIT flavour does not ship the library that does this") from error
            if error.unsupported:
                if rung != "convolve":
                    raise Skip(str(error)) from error
                raise
            cause = step_cause(str(error), session.facts)
            raise Fault(f"{cause} [{error}]" if cause else str(error)) from error
        if rung == "speed" and (why := speed.slow(data)):
            raise Fault(why)
        return data

    left = (step for step in steps if f"{rung}: {step.name}" not in session.job.done)
    return all(session.report.step(rung, step.name, partial(run, step)) for step in left)


def main() -> None:
    """Entry point; ends without the libraries' exit handlers, which may crash on their own."""
    report = Reporter(int(sys.argv[1]))
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: not to outlive the parent
    if "load" in job.rungs:
        load(job, report)
    else:
        work(job, report)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
