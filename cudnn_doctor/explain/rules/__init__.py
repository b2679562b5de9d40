"""Rules: each reads the observations of a `Case`, asks its facts and votes on diagnoses."""

from __future__ import annotations

from collections.abc import Callable

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.rules.access import ACCESS_RULES
from cudnn_doctor.explain.rules.behaviour import BEHAVIOUR_RULES
from cudnn_doctor.explain.rules.build import BUILD_RULES
from cudnn_doctor.explain.rules.compiling import COMPILING_RULES
from cudnn_doctor.explain.rules.devices import DEVICE_RULES
from cudnn_doctor.explain.rules.files import FILE_RULES
from cudnn_doctor.explain.rules.gpu import GPU_RULES
from cudnn_doctor.explain.rules.missing import MISSING_RULES
from cudnn_doctor.explain.rules.packages import PACKAGE_RULES
from cudnn_doctor.explain.rules.state import STATE_RULES
from cudnn_doctor.explain.rules.status import STATUS_RULES
from cudnn_doctor.explain.rules.symbols import SYMBOL_RULES
from cudnn_doctor.explain.rules.versions import VERSION_RULES

RULES: tuple[Callable[[Case], None], ...] = (
    *MISSING_RULES,
    *FILE_RULES,
    *SYMBOL_RULES,
    *VERSION_RULES,
    *GPU_RULES,
    *ACCESS_RULES,
    *PACKAGE_RULES,
    *STATUS_RULES,
    *STATE_RULES,
    *COMPILING_RULES,
    *DEVICE_RULES,
    *BUILD_RULES,
    *BEHAVIOUR_RULES,
)
