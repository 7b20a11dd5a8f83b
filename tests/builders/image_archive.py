"""Archives of images, as `docker save` writes them, made without a container engine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.model.json_codec import Json

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def layer(files: Mapping[str, bytes | Path]) -> bytes:
    """Return a layer with executable files, given as their content or as files of this machine."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def config_of(layers: Sequence[bytes], **config: Any) -> Json:
    """Return the configuration of an image for this machine."""
    digests = [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": "1980-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": digests},
        "history": [{"created": "1980-01-01T00:00:00Z", "created_by": "tests"} for _ in layers],
    }


def write_archive(
    path: Path, layers: Sequence[bytes], config: Mapping[str, Any], tags: Sequence[str] = ()
) -> str:
    """Write the archive and return the image's id."""
    text = json.dumps(config).encode()
    digest = hashlib.sha256(text).hexdigest()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    named = [*tags] or [f"test/{path.stem}:1"]
    manifest = [{"Config": f"{digest}.json", "RepoTags": named, "Layers": names}]
    members = {f"{digest}.json": text, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as archive:
        for name, data in {**members, **dict(zip(names, layers, strict=True))}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return f"sha256:{digest}"
