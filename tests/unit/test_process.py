"""The one way to start a process: what it captures, how it fails, and that it leaves nothing."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from pagecage import process
from pagecage.errors import PagecageError
from pagecage.process import PIPE, find_tool, replay, run, search_path, spawn
from tests.tree import ROOT


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_output_and_status_are_captured() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = run(python(code), check=False)
    assert (done.status, done.stdout, done.stderr, done.ok) == (3, "out\n", "err\n", False)


def test_input_and_environment_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    code = "import os, sys; print(sys.stdin.read(), os.environ['KEPT'], os.environ['MORE'])"
    assert run(python(code), input_text="hello", env={"MORE": "2"}).stdout == "hello 1 2\n"


def test_nothing_is_read_from_our_own_input() -> None:
    """A process does not read our standard input: the agent's is the controller's word that it
    still lives.
    """
    code = "from pagecage.process import run; print(repr(run(['cat']).stdout))"
    argv, env = [sys.executable, "-c", code], {"PYTHONPATH": str(ROOT)}
    inner = run(argv, input_text="not for cat", cwd=ROOT, env=env)
    assert inner.stdout == "''\n"


def test_bytes_that_are_no_text_do_not_hurt() -> None:
    assert "�" in run(python(r"import os; os.write(1, b'\xff\xfe')")).stdout


def test_a_failure_names_the_last_line_and_the_command() -> None:
    with pytest.raises(PagecageError) as caught:
        run(python("import sys; print('first\\nthe reason', file=sys.stderr); sys.exit(4)"))
    assert "failed (exit status 4): the reason" in caught.value.message
    assert caught.value.hint.startswith("run it by hand: ")
    assert caught.value.exit_code == 3


def test_a_silent_failure_says_so() -> None:
    with pytest.raises(PagecageError, match="it printed no reason"):
        run(python("raise SystemExit(1)"))


def test_an_end_by_a_signal_is_told() -> None:
    with pytest.raises(PagecageError, match="ended by signal 9"):
        run(python("import os; os.kill(os.getpid(), 9)"))


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(PagecageError, match="no-such-program is not installed") as caught:
        run(["no-such-program"])
    assert caught.value.hint == "make setup"
    with pytest.raises(PagecageError, match="no-such-program is not installed"):
        spawn(["no-such-program"])


def test_a_folder_that_is_not_there_is_not_called_a_program(tmp_path: Path) -> None:
    with pytest.raises(PagecageError) as caught:
        run(["true"], cwd=tmp_path / "gone")
    assert "not installed" not in caught.value.message
    assert "gone" in caught.value.message


def test_a_file_that_cannot_be_executed(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    with pytest.raises(PagecageError, match="could not be started: Permission denied"):
        run([tmp_path / "plain"])


def test_too_long_is_ended() -> None:
    begin = time.monotonic()
    with pytest.raises(PagecageError, match=r"took longer than 0\.2 s"):
        run(["sleep", "30"], timeout_seconds=0.2, check=False)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("words", [["a", "b c", "$HOME", "it's", "", "*", "-x=1;rm"], ["é", "\n"]])
def test_replay_can_be_pasted_into_a_shell(words: list[str]) -> None:
    code = "import sys; print(sys.argv[1:])"
    line = replay([*python(code), *words], {"MORE": "a b"})
    assert run(["sh", "-c", line]).stdout == f"{words}\n"
    assert shlex.split(line)[0] == "MORE=a b"


def script(path: Path, says: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{says} $0 $PATH"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ordinary user's PATH, which leaves out where the system keeps its own programs."""
    monkeypatch.setattr(process, "SYSTEM_DIRECTORIES", (str(tmp_path / "sbin"),))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    script(tmp_path / "sbin/mkfs-like", "made by")
    return tmp_path


def test_a_system_program_is_found_and_started_where_systems_keep_it(user: Path) -> None:
    assert find_tool("mkfs-like") == str(user / "sbin/mkfs-like")
    printed = run(["mkfs-like"]).stdout
    assert printed == f"made by {user}/sbin/mkfs-like {user}/bin\n", "PATH stays the user's own"
    started = spawn(["mkfs-like"], stdout=PIPE)
    assert started.communicate()[0].startswith(b"made by")
    assert find_tool("no-such-program") is None


def test_what_stands_in_path_comes_first(user: Path) -> None:
    own = script(user / "bin/mkfs-like", "own")
    assert find_tool("mkfs-like") == str(own)
    assert run(["mkfs-like"]).stdout.startswith("own")
    other = script(user / "other/mkfs-like", "other")
    own.unlink()
    assert run(["mkfs-like"], env={"PATH": str(other.parent)}).stdout.startswith("other")


def test_what_starts_system_programs_itself_gets_a_path_that_has_them(user: Path) -> None:
    code = "import os; os.execvp('mkfs-like', ['x'])"
    done = run(python(code), env={"PATH": search_path()})
    assert done.stdout.startswith("made by")


def test_tools_are_looked_for_in_one_place() -> None:
    """shutil.which finds what the user's shell would find: right for what the user typed, and for
    nothing else.
    """
    typed = {
        *("process.py", "cli/cold.py", "planning/replay_plan.py", "runner/uploads.py"),
        "runner/local_programs.py",
        *("agent/programs/command.py", "agent/session.py", "agent/prepared_data.py"),
    }
    package = ROOT / "pagecage"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "shutil.which(" in path.read_text()
    }
    assert found == typed


def test_spawn_owns_nothing_and_returns_at_once() -> None:
    process = spawn(["cat"], stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x\n")
    assert process.stdout.readline() == b"x\n"
    process.stdin.close()
    assert process.wait(5) == 0
    process.stdout.close()


def test_a_new_session_is_beyond_the_terminals_interrupt() -> None:
    process = spawn(["sleep", "30"], new_session=True)
    try:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
