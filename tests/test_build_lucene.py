"""tools/build-lucene: libraries are fetched once, and only with the right content."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from pagecage.process import Completed, run
from tests.tree import ROOT

LIBRARY = b"a library"
DIE = 'die() { printf \'pagecage: %s\\n  fix: %s\\n\' "$1" "$2" >&2; exit 3; }\n'
_FILES = ("mkdir", "rm", "mv", "install", "cat")
TOOLS = ("sh", "dirname", "sha256sum", "sed", "flock", "date", *_FILES)
JAVAC = '#!/bin/sh\nwhile [ "$1" != -d ]; do shift; done\nmkdir -p "$2"\n'
JAR = '#!/bin/sh\nwhile [ "$1" != --file ]; do shift; done\necho classes >"$2"\n'
MVN = "#!/bin/sh\necho fetched >>asked\nfor word; do case $word in -DoutputDirectory=*)"
MVN += ' printf "%s" "CONTENT" >"${word#*=}/library.jar" ;; esac; done\n'


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A checkout with this tool, a library of known content, and programs that imitate a JDK."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    # The tools' own PATH has the folders of this machine, where there may be a Maven.
    (tmp_path / "tools/environment").write_text(DIE)
    shutil.copytree(ROOT / "workloads/lucene", tmp_path / "workloads/lucene")
    checksum = hashlib.sha256(LIBRARY).hexdigest()
    (tmp_path / "workloads/lucene/checksums.sha256").write_text(f"{checksum}  library.jar\n")
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    for name, text in (("javac", JAVAC), ("jar", JAR)):
        put(tmp_path, name, text)
    return tmp_path


def put(sources: Path, name: str, text: str) -> None:
    path = sources / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def build(sources: Path) -> Completed:
    tool, path = sources / "tools/build-lucene", str(sources / "bin")
    return run(["sh", tool], check=False, cwd=sources, env={"PATH": path, "HOME": str(sources)})


def test_without_maven_it_says_what_is_missing(sources: Path) -> None:
    done = build(sources)
    assert done.status == 3
    assert "Maven, which fetches Lucene, is not installed" in done.stderr
    assert "make setup NAME=lucene-search" in done.stderr


def test_a_library_of_another_content_is_refused(sources: Path) -> None:
    put(sources, "mvn", MVN.replace("CONTENT", "another library"))
    done = build(sources)
    assert done.status == 3
    assert "not the one in workloads/lucene/checksums.sha256" in done.stderr
    assert not (sources / "build/host/bin/pclucene-java").exists()


def test_a_library_is_fetched_once(sources: Path) -> None:
    put(sources, "mvn", MVN.replace("CONTENT", LIBRARY.decode()))
    assert build(sources).ok
    built = {path.name for path in (sources / "build/host/bin").iterdir()}
    assert built == {"library.jar", "pclucene.jar", "pclucene-java"}
    (sources / "bin/mvn").unlink()
    assert build(sources).ok, "a second build needs no Maven"
    assert (sources / "asked").read_text() == "fetched\n"
