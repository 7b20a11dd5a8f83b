"""`pagecage cage show --as`: a cage in the language of another tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from pagecage.cloud.profile import LimitProfile, cage_of
from pagecage.errors import PagecageError
from pagecage.exporters.export import DEVICE, LostLimit
from pagecage.exporters.formats import EXPORTERS, ToolName
from pagecage.model.cage import Cage


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of a cage in another tool's language.

    Parameters
    ----------
    tool
        Write the limits for another tool; a comment names each limit that is lost there
    device
        Disk of the limits in the other tool's text, for example /dev/nvme1n1
    """

    tool: Annotated[ToolName | None, Parameter(name="--as", metavar="TOOL")] = None
    device: Annotated[str | None, Parameter(metavar="NODE")] = None

    def is_given(self, *, as_json: bool) -> bool:
        """Return whether another tool's language is wanted.

        Raises PagecageError for options that exclude each other, and for a device that is no path.
        """
        if self.device is not None and not self.tool:
            raise PagecageError("--device applies only to --as", "--as docker")
        if as_json and self.tool:
            raise PagecageError("--as and --json are mutually exclusive", "give one of them")
        device = self.device or DEVICE
        if not device.startswith("/") or any(map(str.isspace, device)):
            message = f"--device: {device!r} is not the path of a block device"
            raise PagecageError(message, "lsblk --paths")
        return self.tool is not None


def cage_for_tool(profile: LimitProfile, options: ExportOptions) -> str:
    """Return the text for a tool, below comments that name every limit which is lost there."""
    assert options.tool is not None
    cage = profile.cage or cage_of(profile, profile.name, profile.about)
    export = EXPORTERS[options.tool](cage, options.device or DEVICE)
    if profile.memory_share is not None:
        export = export.with_lost(_share_of_dataset(profile.memory_share))
    return export.text(f"{profile.name}: {_about(cage, profile)}")


def _about(cage: Cage, profile: LimitProfile) -> str:
    return str(cage.provenance.get("about") or profile.about)


def _share_of_dataset(share: float) -> LostLimit:
    what = f"MemoryMax = {share * 100:g} % of the dataset"
    return LostLimit(what, "a share; give the other tool the bytes")
