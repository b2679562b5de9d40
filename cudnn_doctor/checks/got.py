"""Which cuDNN each framework gets: from the loader simulation, or guessed from a description."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from cudnn_doctor.checks.context import BY_PATH, Context, folder_of, matches, parse, same_release
from cudnn_doctor.machine.catalogue import SCHEMES, scheme_for
from cudnn_doctor.machine.consumers import PLAIN
from cudnn_doctor.machine.loads import Load, LoadPlan
from cudnn_doctor.machine.model import CudnnCopy, Framework
from cudnn_doctor.matrix.model import FrameworkNeed


class Got(NamedTuple):
    """What one framework wants and gets."""

    framework: Framework
    plan: LoadPlan | None
    need: FrameworkNeed | None
    major: int | None
    """cuDNN major that it wants."""
    copy: CudnnCopy | None
    version: str | None
    """Version of the copy that it gets."""
    via: str
    known: bool
    """Whether the facts suffice to say that no copy means none is found."""

    @property
    def label(self) -> str:
        """``torch 2.9.1``."""
        return f"{self.framework.name} {self.framework.version}".rstrip()

    @property
    def subject(self) -> str:
        """Where it lives."""
        return self.framework.environment

    @property
    def found(self) -> bool:
        """Whether it gets a cuDNN: a shim, and any of the parts that hold the work."""
        if self.plan is None:
            return self.copy is not None
        parts = self.plan.sublibraries
        shim = self.plan.shim
        return bool(shim and shim.path) and (not parts or any(part.path for part in parts))

    @property
    def speaker(self) -> Load | None:
        """The part that answers cudnnGetVersion, the shim where that one is not found."""
        if self.plan is None:
            return None
        parts = self.plan.sublibraries
        speaking = [x for x in parts if x.name.partition(".so")[0] in _SPEAKING and x.path]
        return speaking[0] if speaking else self.plan.shim

    @property
    def folder(self) -> str | None:
        """Where that part, or the copy, lies."""
        if self.speaker is not None and self.speaker.path:
            return folder_of(self.speaker.path)
        return self.copy.folder if self.copy else None

    @property
    def other_versions(self) -> tuple[str, ...]:
        """Versions of other parts that differ in release from what is told."""
        if self.plan is None or self.plan.shim is None:
            return ()
        loads = (self.plan.shim, *self.plan.sublibraries)
        others = [x.version for x in loads if same_release(x.version, self.version) is False]
        return tuple(dict.fromkeys(version for version in others if version))

    @property
    def built(self) -> str | None:
        """cuDNN that it was compiled against; TensorFlow's build tells the major alone."""
        told = self.framework.cudnn_built
        listed = self.need.cudnn_built if self.need else None
        if told and listed and listed.startswith(f"{told}."):
            return listed
        return told or listed


_NAME = re.compile(r"^[A-Za-z0-9._-]+|[\s()]")
"""What is left of a requirement without this is its specifier."""
_ANY_BUILD = 9999
"""Of a release whose build is not known: pins are of builds, and its own is not to fail them."""


def accepts(got: Got, version: str | None) -> bool | None:
    """Whether a release is no older than the one a framework was built with, and as it asks pip
    for; None where the version is not known."""
    given, built = parse(version), parse(got.built)
    if given is None:
        return None
    if built is not None and given.release[:2] < built.release[:2]:
        return False
    number = str(given) if given.build >= 0 else f"{given}.{_ANY_BUILD}"
    lines = (_NAME.sub("", pin.partition(";")[0]) for pin in got.framework.pins)
    return all(matches(number, line) for line in lines if line and "==" not in line)


@functools.lru_cache(maxsize=2)
def all_got(context: Context) -> tuple[Got, ...]:
    """One answer for each framework that uses cuDNN."""
    found = (_got(context, framework) for framework in context.machine.frameworks)
    return tuple(got for got in found if got is not None)


def others_got(context: Context) -> tuple[Got, ...]:
    """One answer for each other way to cuDNN: a wheel opened by path, the plain loader."""
    if context.machine.partial:
        return ()
    return tuple(
        _from_plan(
            context,
            Framework(
                name="a plain program" if plan.consumer.name == PLAIN else plan.consumer.name,
                environment=plan.consumer.environment,
                cuda=plan.consumer.cuda,
            ),
            plan,
            None,
        )
        for plan in context.plans
        if plan.consumer.name in (PLAIN, BY_PATH) and plan.shim and plan.shim.path
    )


def _got(context: Context, framework: Framework) -> Got | None:
    plan = _plan_of(context, framework)
    need = context.need(framework)
    scheme = plan.consumer.scheme if plan and framework.version else _scheme(framework, need)
    if framework.cuda == "cpu" or (plan is not None and plan.uses_cudnn is False):
        return None
    if SCHEMES.get(scheme) is not None and SCHEMES[scheme].uses_cudnn is False:
        return None
    if context.machine.partial:
        major = _told_major(context, framework, need, plan)
        copy, via = _guess(context, scheme, major)
        known = context.machine.copies is not None
        return Got(framework, None, need, major, copy, copy.version if copy else None, via, known)
    if plan is None or plan.uses_cudnn is None or scheme.startswith("inherits"):
        return None
    return _from_plan(context, framework, plan, need)


def _told_major(
    context: Context, framework: Framework, need: FrameworkNeed | None, plan: LoadPlan | None
) -> int | None:
    """The major that a described framework wants: its build, the matrix, else its version's era."""
    built = parse(framework.cudnn_built)
    if built is not None:
        return built.major
    if framework.version and "." not in framework.version:
        return None
    if need is not None and need.cudnn_major is not None:
        return need.cudnn_major
    if plan is None or plan.consumer.scheme.startswith("jax"):
        return None
    major = plan.consumer.major
    have = {copy.major for copy in context.machine.copies or () if copy.major}
    older = bool(have) and major == 8 and max(have) < 8
    return None if older else major


def _from_plan(
    context: Context, framework: Framework, plan: LoadPlan, need: FrameworkNeed | None
) -> Got:
    """The simulation's answer: the version is that of the part that answers cudnnGetVersion."""
    shim = plan.shim
    copy = context.copy_at(plan.folder)
    major = plan.consumer.major or (need.cudnn_major if need else None)
    via = shim.via if shim else "unknown"
    got = Got(framework, plan, need, major, copy, None, via, plan.certain)
    speaker = got.speaker
    if copy is None or copy.private:
        copy = context.copy_at(got.folder) or copy
    version = (speaker.version if speaker else None) or (copy.version if copy else None)
    return got._replace(copy=copy, version=version)


_SPEAKING = ("libcudnn_graph", "libcudnn_ops_infer")
"""The parts whose version cudnnGetVersion tells, in cuDNN 9 and 8."""


def _plan_of(context: Context, framework: Framework) -> LoadPlan | None:
    for plan in context.plans:
        consumer = plan.consumer
        if (consumer.name, consumer.environment) == (framework.name, framework.environment):
            return plan
    return None


def _scheme(framework: Framework, need: FrameworkNeed | None) -> str:
    usual = "1"  # any version, for a framework of which only the name is told
    scheme = scheme_for(framework.name, framework.version or usual, framework.cuda)
    return need.loader if need and scheme == "unknown" else scheme


def _guess(context: Context, scheme: str, major: int | None) -> tuple[CudnnCopy | None, str]:
    """The copy that the usual way of such a framework finds among the copies of a description."""
    copies = [
        copy
        for copy in context.machine.copies or ()
        if (major is None or copy.major in (None, major)) and copy.lacks != ("*",)
    ]
    own = ("wheel", "bundled", "conda")
    order: tuple[str, ...]
    if scheme.startswith(("torch", "jax-preload", "inherits-torch")):
        order = (*own, "ld_library_path", "system")
    elif scheme == "tf-dlopen-runpath":
        order = ("ld_library_path", *own, "system")
    elif scheme == "unknown":
        order = ("ld_library_path", "system", *own)
    else:
        order = ("ld_library_path", "system", "conda")
    for way in (*order, ""):
        for copy in copies:
            if place(context, copy) == way:
                return copy, way
    return None, "missing"


def place(context: Context, copy: CudnnCopy) -> str:
    """By which way a described copy can be found: its kind, or the loader's path it lies on."""
    if copy.kind == "ld_library_path" or copy.folder in context.search_path:
        return "ld_library_path"
    cached = {folder_of(entry.path) for entry in context.machine.loader.cache or ()}
    if copy.folder in cached or copy.folder in context.machine.loader.conf_folders:
        return "system"
    if copy.kind in ("toolkit", "module"):
        return "unseen"
    return copy.kind
