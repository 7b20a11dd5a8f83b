"""`pagecage articles`: published figures, open questions, and other pages of this project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import OWN, RUNS, TOP
from pagecage.cli.output import Json, OutputFormat, examples, writing
from pagecage.cli.show import analysing
from pagecage.errors import EXIT_OK, exclusive
from pagecage.model.json_codec import JsonView
from pagecage.planning.options import ExistingFolder, Folder

app = App(
    name="articles",
    help="Compare published figures with stored runs.",
    help_epilogue=examples("articles"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoredRuns:
    """The runs to read: the newest ones in a folder of runs, or those in a folder of bundles.

    Parameters
    ----------
    runs
        Directory of runs to read; by default the project's
    bundles
        Directory of bundles to read instead, such as docs/runs; nothing is unpacked into it
    """

    runs: ExistingFolder | None = None
    bundles: ExistingFolder | None = None

    def folders(self) -> tuple[Path, Path | None]:
        """Return the folders of runs and of bundles. Raises PagecageError if both are given."""
        if self.runs and self.bundles:
            raise exclusive("--runs", "--bundles")
        return (self.runs or RUNS).resolve(), self.bundles and self.bundles.resolve()


@app.command(help_epilogue=examples("articles claims"))
def claims(
    *,
    experiment: Annotated[str | None, Parameter(metavar="NAME")] = None,
    stored: StoredRuns = StoredRuns(),
    others: Annotated[
        tuple[Path, ...], Parameter("--from", metavar="BUNDLE", consume_multiple=True, negative=())
    ] = (),
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Compare published figures with the newest runs.

    Parameters
    ----------
    experiment
        Only the figures that this experiment tests
    others
        Bundles of other machines, or directories of them, whose results are shown next to those
    markdown
        Print Markdown, as in docs/SCORECARD.md
    """
    folders, form = stored.folders(), OutputFormat(markdown=markdown, as_json=as_json).form()
    foreign = [path.absolute() for path in others]  # analysing() changes the directory
    with analysing("claims"):
        from analysis import results

        text = results.scorecard(*folders, experiment, form, foreign)
    print(text, end="")
    return EXIT_OK


@app.command(help_epilogue=examples("articles answers"))
def answers(
    *, stored: StoredRuns = StoredRuns(), markdown: bool = False, as_json: Json = False
) -> int:
    """Show open questions of the articles and the newest runs' findings.

    Parameters
    ----------
    markdown
        Print Markdown, as in docs/answers.md
    """
    folders, form = stored.folders(), OutputFormat(markdown=markdown, as_json=as_json).form()
    with analysing("answers"):
        from analysis import results

        text = results.answers(*folders, form)
    print(text, end="")
    return EXIT_OK


@app.command(help_epilogue=examples("articles fidelity"))
def fidelity(
    folder: ExistingFolder = TOP / "docs/fidelity",
    /,
    *,
    markdown: bool = False,
    as_json: Json = False,
) -> int:
    """Show how closely simulated volumes follow their model, io.max and published figures.

    Parameters
    ----------
    folder
        Directory of checks (`pagecage volume check NAME --json > NAME.check.json`) and bundles
    markdown
        Print Markdown, as in docs/FIDELITY.md
    """
    form, place = OutputFormat(markdown=markdown, as_json=as_json).form(), folder.resolve()
    with analysing():
        from analysis import results

        text = results.fidelity(place, form)
    print(text, end="")
    return EXIT_OK


@app.command(help_epilogue=examples("articles schema"))
def schema(directory: Folder = OWN / "docs/schema", /) -> int:
    """Write the JSON Schemas of experiments, cages and the catalogue.

    An editor that supports JSON Schema completes and checks the keys of these files.

    Parameters
    ----------
    directory
        Directory to write to; created if missing
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in schemas().items():
            (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return EXIT_OK


def schemas() -> dict[str, JsonView]:
    from pagecage.cloud.catalogue import Provider
    from pagecage.definitions.cage_file import CageFile
    from pagecage.definitions.experiment import ExperimentFile

    models = (("experiment", ExperimentFile), ("cage", CageFile), ("catalogue", Provider))
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {f"{name}.schema.json": {**draft, **model.model_json_schema()} for name, model in models}
