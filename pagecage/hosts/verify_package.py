"""`pagecage-verify.pyz`: verify as one file, which is copied to a customer's machine.

It needs Python alone, of version 3.9 or newer: older than pagecage's own, because customers have
it.
"""

from __future__ import annotations

from pathlib import Path

from pagecage.errors import EXIT_HOST
from pagecage.hosts.agent_package import PACKAGE_DIR, zipapp_bytes
from pagecage.hosts.single_file import module_files
from pagecage.whole_files import write_whole

FILE_NAME = "pagecage-verify.pyz"
OLDEST_PYTHON = (3, 9)
_FIRST_LINE = b"#!/usr/bin/env python3\n"
ENTRY = "pagecage.verify.main"
_OLDEST = ".".join(map(str, OLDEST_PYTHON))
_MAIN = f"""import sys
if sys.version_info < {OLDEST_PYTHON}:
    sys.stderr.write("pagecage-verify: Python {_OLDEST} or newer is needed\\n")
    sys.exit({EXIT_HOST})
from {ENTRY} import main
sys.exit(main(sys.argv[1:]))
""".encode()


def verify_sources(package_dir: Path = PACKAGE_DIR) -> dict[str, Path]:
    """Return the modules in the file, by name."""
    return module_files(ENTRY, package_dir)


def verify_bytes(package_dir: Path = PACKAGE_DIR) -> bytes:
    """Return the file."""
    sources = verify_sources(package_dir).values()
    return zipapp_bytes(_MAIN, sources, package_dir, _FIRST_LINE)


def write_verify_package(folder: Path, package_dir: Path = PACKAGE_DIR) -> Path:
    """Write the file to a folder, executable, and return its path."""
    path, content = folder / FILE_NAME, verify_bytes(package_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content, 0o777)
    path.chmod(0o755)
    return path
