"""In which form a verb prints its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from pagecage.errors import PagecageError

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print data, and data alone, on standard output.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Form:
    """For the terminal unless one of these is asked for.

    Parameters
    ----------
    csv
        Print the table as CSV.
    markdown
        Print the tables in Markdown.
    as_json
        Print data, and data alone, on standard output.
    """

    csv: bool = False
    markdown: bool = False
    as_json: Annotated[bool, Parameter(name="--json")] = False

    def options(self) -> list[str]:
        """What the analysis is told. Raises PagecageError where two forms are asked for."""
        forms = (("--csv", self.csv), ("--markdown", self.markdown), ("--json", self.as_json))
        asked = [name for name, is_asked in forms if is_asked]
        if len(asked) > 1:
            raise PagecageError(f"{asked[0]} and {asked[1]} are two forms", "ask for one")
        return asked
