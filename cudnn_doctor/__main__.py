"""Entry point: ``cudnn-doctor`` and ``python -m cudnn_doctor``."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exits with a code of `cudnn_doctor.errors.ExitCode`."""
    try:
        from cudnn_doctor.cli import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
