"""Names and secrets that no output format may let through."""

from __future__ import annotations

import msgspec

from cudnn_doctor.checks.model import CheckResult, Evidence, Finding, FrameworkLoad, Remedy, Report
from cudnn_doctor.machine.model import Machine, Project, Requirement, Setting

EVIL = "</script><script>alert(1)</script>\"'&<b>\n::set-env name=X::y\n\x00\x1b[31m```\n| a |"
SECRETS = (
    "hunter2-proxy-pass",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "glpat-abcdefghijklmnopqrst",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "tok3n-in-query",
    "s3cret-on-command-line",
)
PROXY, GITHUB, GITLAB, HUGGING, QUERY, COMMAND = SECRETS


def evil_report() -> Report:
    """A report in which every text is hostile."""
    finding = Finding(
        id="ld-library-path-shadow",
        severity="error",
        title=f"title {EVIL}",
        culprit=f"LD_LIBRARY_PATH: {EVIL}",
        seen=(Evidence(what=EVIL, where=f"/x/{EVIL}", how=EVIL),),
        why=EVIL,
        remedies=(Remedy(title=EVIL, commands=(EVIL,)),),
        subject=EVIL,
    )
    warning = msgspec.structs.replace(finding, id="pip-pin-conflict", severity="warning")
    load = FrameworkLoad(framework=EVIL, version=EVIL, cudnn=EVIL, folder=EVIL, because=EVIL)
    return Report(
        results=(
            CheckResult(rule="a", category="cudnn", status="fail", findings=(finding, warning)),
            CheckResult(rule="b", category="cudnn", status="crash", reason=EVIL),
            CheckResult(rule="c", category="gpu", status="skip", reason=EVIL),
            CheckResult(rule="d", category="gpu", status="pass"),
        ),
        loads=(load,),
    )


def leaky_machine(machine: Machine) -> Machine:
    """The machine with a secret in every text that could hold one."""
    return msgspec.structs.replace(
        machine,
        environ={
            **machine.environ,
            "PIP_INDEX_URL": f"https://me:{PROXY}@packages.example/simple?token={QUERY}",
            "HTTPS_PROXY": f"http://me:{PROXY}@proxy.example:3128",
            "CUDA_NOTE": f"{GITHUB} {GITLAB} --token {COMMAND}",
        },
        notes=(f"Authorization: Bearer {HUGGING}", f"curl --password {COMMAND} x"),
        project=Project(
            folder="/work",
            files=("requirements.txt",),
            requirements=(
                Requirement(
                    name="torch",
                    wanted=f"@ https://{GITHUB}@git.example/torch?api_key={QUERY}",
                    file="requirements.txt",
                    line=1,
                ),
            ),
            settings=(
                Setting(
                    variable="LD_LIBRARY_PATH",
                    value=f"/opt/x?token={QUERY}",
                    file="Dockerfile",
                    line=2,
                ),
            ),
        ),
    )
