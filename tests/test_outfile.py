"""Files that the user named for output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudnn_doctor.outfile import try_out, write_whole


def test_a_link_is_followed_and_the_mode_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(str(link), b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_nothing_else_in_the_folder_is_touched(tmp_path: Path) -> None:
    neighbour = tmp_path / "lock.new"
    neighbour.write_text("mine")
    write_whole(str(tmp_path / "lock"), b"ours")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "lock.new"]
    assert neighbour.read_text() == "mine"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try_out(str(pipe))
    write_whole(str(pipe), b"text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


def test_what_cannot_be_written_is_known_beforehand(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent" / "lock"):
        with pytest.raises(OSError, match=r"directory"):
            try_out(str(path))
    try_out(str(tmp_path / "lock"))
    assert list(tmp_path.iterdir()) == []
