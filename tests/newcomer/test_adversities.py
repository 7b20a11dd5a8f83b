"""Set-up on machines with real-life obstacles. Each case first shows that its obstacle exists."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.newcomer.index import package_index
from tests.newcomer.machine import (
    CAN_PIVOT,
    INSTALL,
    NO_PROGRAM_IN_TMP,
    NOEXEC,
    PATH,
    Machine,
    machine,
    printed,
)

pytestmark = [CAN_PIVOT, pytest.mark.long, pytest.mark.timeout(1800)]
SET_UP = "make setup HOST=local NAME=smoke && .venv/bin/pagecage list | grep constrained-random"
BUNDLE = "tests/fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
SHIMS = """mkdir -p /opt/shims
for name in python3.10 python3.12 python3.13 python3.14; do
    printf '#!/bin/sh\\necho "pyenv: %s: command not found" >&2\\nexit 127\\n' "$name" \\
        >"/opt/shims/$name"
done
chmod 755 /opt/shims/*"""
OTHER_VENV = "/usr/bin/python3 -m venv ~/other"


@pytest.fixture
def new() -> Iterator[Machine]:
    with machine("bookworm-equipped") as made:
        yield made


def passes(new: Machine, command: str, *, prepare: str = "", **variables: str) -> str:
    """Return the output of a command that must succeed."""
    done = new.run(command, prepare=prepare, seconds=900, **variables)
    assert done.ok, printed(done)
    assert "Traceback" not in printed(done)
    return printed(done)


def test_pyenv_shims_of_versions_that_are_not_active(new: Machine) -> None:
    new.root(SHIMS)
    inactive = "! python3.13 -c 1 && ! python3.12 -c 1"
    passes(new, f"{inactive} && {SET_UP}", PATH=f"/opt/shims:{PATH}")


def test_an_active_virtual_environment_that_is_gone_afterwards(new: Machine) -> None:
    passes(new, OTHER_VENV)
    active = {"VIRTUAL_ENV": f"{new.home}/other", "PATH": f"{new.home}/other/bin:{PATH}"}
    first = '[ "$(command -v python3)" = ~/other/bin/python3 ]'
    passes(new, f"{first} && {SET_UP} && ! ls ~/other/bin/uv", **active)
    passes(new, "rm -r ~/other && make list && make setup HOST=local NAME=smoke")


def test_condas_python_first_in_path() -> None:
    with machine("bookworm-foreign") as new:
        new.root(f"{INSTALL} python3 python3-apt")
        conda = {"CONDA_PREFIX": "/opt/conda", "PATH": f"/opt/conda/bin:{PATH}"}
        systems = "/usr/bin/python3 -c 'import apt' && ! python3 -c 'import apt' 2>/dev/null"
        passes(new, f"{systems} && {SET_UP}", **conda)


def test_no_python_of_the_systems_at_all() -> None:
    """apt's module needs the system's Python, and has to install it."""
    with machine("bookworm-foreign") as new:
        another = "[ ! -e /usr/bin/python3 ] && PYTHON=/opt/conda/bin/python3; export PYTHON"
        passes(new, f"{another}; {SET_UP}")


def test_settings_of_another_python(new: Machine) -> None:
    spoil = "mkdir ~/shadow && echo 'raise SystemExit(\"shadowed\")'"
    passes(new, f"{spoil} | tee ~/shadow/json.py ~/shadow/yaml.py")
    path = {"PYTHONPATH": f"{new.home}/shadow"}
    passes(new, f"{shadowed('PYTHONPATH')} && {SET_UP}", **path)
    home = {"PYTHONHOME": "/opt/another"}
    passes(new, f"! python3 -c 1 && {SET_UP}", **home, **path)
    passes(new, f"! python3 -c 1 && .venv/bin/pagecage import {BUNDLE}", **home)


def shadowed(variable: str) -> str:
    return f'[ -n "${variable}" ] && python3 -c "import json" 2>&1 | grep shadowed'


def test_an_index_of_its_own_in_pip_conf(new: Machine) -> None:
    """No other index is used."""
    with package_index() as index:
        new.root("sed -i /pypi.org/d /etc/hosts && echo 127.0.0.1 pypi.org >>/etc/hosts")
        settings = shlex.quote(f"[global]\nindex-url = {index.url}\nuser = true\n")
        passes(new, f"mkdir -p ~/.config/pip && printf %s {settings} >~/.config/pip/pip.conf")
        download = ".venv/bin/python -m pip download uv --index-url https://pypi.org/simple"
        passes(new, f"! {download} 2>&1 | grep -q Saved")
        passes(new, "make list")
        assert {"uv", "pydantic", "rich", "cyclopts"} <= index.asked


def test_a_user_without_sudo() -> None:
    with machine("bookworm") as new:
        checkout = "/home/guest/pagecage"
        guest = replace(new, user="guest", home="/home/guest", checkout=checkout)
        new.root(f"cp -r {new.checkout} {checkout} && chown -R guest:guest /home/guest")
        done = guest.run("! sudo -n true && make setup HOST=local NAME=smoke")
        assert done.status == 2, printed(done)
        reported = "pagecage: Python 3.11 or newer is missing, and this user may not install it"
        assert reported in done.stderr, printed(done)
        assert "  fix: sudo sh -c 'if ls /var/lib/dpkg/updates" in done.stderr, printed(done)
        new.root(f"{INSTALL} python3 python3-venv")
        done = guest.run("make setup HOST=local NAME=smoke")
        assert done.status == 2, printed(done)
        reported = (
            "pagecage: gcc, static-libc, rust: missing, and this user may not install packages"
            " without a password\n  fix: sudo sh -c 'apt-get update"
        )
        assert reported in done.stderr, printed(done)
        pasted = done.stderr.split("fix: sudo ")[1].splitlines()[0]
        new.root(f"cd /tmp && DEBIAN_FRONTEND=noninteractive {pasted}")
        passes(guest, SET_UP)


def test_umask_077(new: Machine) -> None:
    passes(new, f"umask 077 && {SET_UP} && .venv/bin/pagecage import {BUNDLE}")


def test_no_language_no_terminal(new: Machine) -> None:
    reported = passes(new, f'[ -z "${{LANG:-}}" ] && [ ! -t 2 ] && {SET_UP}', LANG="", TERM="")
    assert "\r" not in reported
    assert "\033" not in reported


def test_a_path_with_spaces_and_letters_beyond_ascii() -> None:
    in_c = "make setup HOST=local NAME=append-log && ls build/host/bin/pcappend"
    with machine("bookworm-equipped", "/home/new/Prüfstand im Keller/pagecage 東京") as new:
        passes(new, f"{SET_UP} && {in_c} && .venv/bin/pagecage import {BUNDLE}", LANG="")


def test_tmp_is_mounted_noexec(new: Machine) -> None:
    passes(new, f"{NO_PROGRAM_IN_TMP} && {SET_UP}", prepare=NOEXEC)


def test_home_is_read_only() -> None:
    frozen = (
        'mount --bind "$root/home/new" "$root/home/new"; mount -o remount,ro,bind "$root/home/new"'
    )
    with machine("bookworm-equipped", "/srv/pagecage") as new:
        there = "! touch ~/file 2>/dev/null"
        passes(new, f"{there} && {SET_UP} && .venv/bin/pagecage import {BUNDLE}", prepare=frozen)
