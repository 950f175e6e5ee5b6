"""Being asked to stop takes effect between writes, and is never forgotten."""

import os
import signal
import subprocess
import sys

import pytest

from esper.runs.interrupts import Interrupts


def test_a_write_is_finished_before_the_interruption():
    written = []
    interrupts = Interrupts()

    def write():
        with interrupts.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            written.append("whole")
        written.append("never")

    with interrupts, pytest.raises(KeyboardInterrupt):
        write()
    assert written == ["whole"]


def test_an_interruption_is_not_lost_when_the_write_fails():
    interrupts = Interrupts()

    def write():
        with interrupts.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            raise OSError(28, "No space left on device")

    with interrupts, pytest.raises(KeyboardInterrupt) as caught:
        write()
    assert isinstance(caught.value.__context__, OSError)


def test_handlers_are_as_before_when_it_is_over():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


PROGRAM = """
import os, signal
from esper.runs.interrupts import Interrupts
with Interrupts():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("heard")
"""


def test_ctrl_c_is_heard_where_it_was_inherited_as_ignored():
    """As below `make ... &`, nohup and some CI."""
    ignoring = f"import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); {START}"
    ended = subprocess.run([sys.executable, "-c", ignoring, PROGRAM], capture_output=True, text=True, check=False)
    assert ended.stdout == "heard\n"


START = "sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
