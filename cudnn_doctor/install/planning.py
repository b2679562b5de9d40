"""From a request to a plan, by the method that the request names."""

from __future__ import annotations

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix


def plan_install(request: InstallRequest, machine: Machine, matrix: Matrix) -> Plan:
    """Write the plan for a request.

    Raises DoctorError (NOTHING_CHANGED) when this machine or the request does not allow it.
    """
    if request.method == "tarball":
        from cudnn_doctor.install.prefixes.planning import plan_tarball

        return plan_tarball(request, matrix)
    if request.method == "wheel":
        from cudnn_doctor.install.wheels.planning import plan_wheel

        return plan_wheel(request, machine, matrix)
    if request.method == "package":
        from cudnn_doctor.install.packages.planning import plan_package

        return plan_package(request, machine, matrix)
    raise DoctorError(
        f"there is no method {request.method!r}",
        next_step="use --method wheel, tarball or package",
        exit_code=ExitCode.USAGE,
    )
