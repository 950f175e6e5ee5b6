"""The command says what it knows in a table, and what is wrong in one line."""

import os
import socket
import subprocess
import sys

import pytest

from esper import __version__
from esper.cli import main
from esper.environment import all_tasks, digits
from esper.environment.data import _read


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("_no_network")
def test_tasks_are_listed_in_aligned_columns_without_data_or_libraries(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "datasets", None)
    loaded = (digits.cache_info().misses, _read.cache_info().misses)
    assert main(["tasks"]) == 0
    assert (digits.cache_info().misses, _read.cache_info().misses) == loaded
    header, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert header.split() == ["task", "parameters", "slots", "horizon", "batch", "data", "summary"]
    for line, each in zip(lines, all_tasks(), strict=True):
        numbers = [f"{each.host_parameters():,}", len(each.slots), each.horizon, each.batch_size]
        assert line.split()[:5] == [each.name, *map(str, numbers)]
        for column in ("data", "summary"):
            at = header.index(column)
            assert line[at - 2 : at] == "  "
        assert line[header.index("data") :].startswith(each.source)
        assert line[header.index("summary") :] == each.summary


def test_the_default_task_is_named(capsys):
    main(["tasks"])
    assert capsys.readouterr().out.endswith("digits-pointwise is the default task.\n")


def test_some_tasks_can_be_asked_for_by_name(capsys):
    assert main(["tasks", "spirals", "cifar10"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["task", "spirals", "cifar10"]


BAD_COMMANDS = [
    ([], "the following arguments are required: COMMAND"),
    (["taks"], "invalid choice: 'taks'"),
    (["tasks", "--wrong"], "unrecognized arguments: --wrong"),
    (["--vers"], "arguments"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_COMMANDS)
def test_a_wrong_command_or_flag_exits_2_with_a_message(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_mistake_that_a_user_can_mend_is_one_line_on_stderr_and_exit_2(tmp_path, capsys):
    assert main(["tasks", "digitz"]) == 2
    assert main(["tasks", str(tmp_path / "none.toml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    unknown, missing = err.splitlines()
    assert unknown.startswith("esper: UnknownTask: no task 'digitz'; did you mean 'digits'?")
    assert missing.startswith("esper: InvalidTaskFile: ")


def test_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"esper {__version__}\n"


def test_a_fresh_process_exits_2_without_a_traceback_and_without_optional_libraries():
    program = "import sys; from esper.cli import main; code = main(['tasks', 'nothing']); "
    program += "sys.exit(code if not {'datasets', 'transformers'} & set(sys.modules) else 99)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "UnknownTask" in done.stderr
