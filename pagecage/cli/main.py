"""The command line: one function a verb. Data goes to standard output, everything else to standard error.

What only one verb needs is imported by it, so that those that merely show something answer at once.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import sys

from cyclopts import App, CycloptsError, Parameter

from pagecage.checkout import RUNS, TOP
from pagecage.cli import failures
from pagecage.cli.analyse import publish_site, render, report, show_answers, show_claims, show_run
from pagecage.cli.bundle import bundle
from pagecage.cli.bundle import render as render_bundle
from pagecage.cli.examples import examples
from pagecage.cli.output import Form, Json, say
from pagecage.cli.paths import Folder, writing
from pagecage.cli.run_options import FleetWishes, Wishes, definitions, is_group
from pagecage.cli.show import compare
from pagecage.errors import EXIT_FAILED, EXIT_HOST, EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.version import VERSION

_EPILOGUE = """Examples; `pagecage VERB --help` has each verb's own:

  pagecage list
  pagecage run constrained-random
  pagecage run constrained-random --resume
  pagecage show constrained-random --json
  pagecage replay customer --cold index.db -- ./server --load-index
  pagecage compare RUN OTHER --fail-if 'read_seconds > +10%'
  pagecage publish

Exit codes: 0 done, 1 a defect, 2 bad input, 3 the host cannot serve, 4 trials
without an answer, 5 and 6 a gate that failed or could not be decided, 130
interrupted."""
app = App(
    name="pagecage", version=VERSION, help_epilogue=_EPILOGUE, default_parameter=Parameter(negative=()),
    help="Put a workload in a customer's cage and see what its disk reads become.", help_format="plaintext",
    suppress_keyboard_interrupt=False,
)  # fmt: skip
_LATER = {
    "cage": ("cage:app", "List, show and import cages: cloud volumes, and what a customer's tools print."),
    "host": ("host_verbs:app", "Make hosts fit, and look after the guest."),
    "probe": ("probe:probe", "Measure what a disk gives under the limits it stands under, in one file."),
    "replay": ("replay:app", "Run any program in one or several cages and without limits."),
    "shell": ("shell:app", "Open a shell in a cage."),
    "sweep": ("sweep:app", "Vary one limit of a cage and find where raising it stops to pay."),
}
for _name, (_where, _about) in _LATER.items():
    _kept = {"help_epilogue": examples(_name)} if _name == "probe" else {}  # an App brings its own
    app.command(f"pagecage.cli.{_where}", name=_name, help=_about, **_kept)
for _verb in (compare, bundle, render_bundle):
    app.command(_verb, help_epilogue=examples(_verb.__name__))
app.register_install_completion_command()


@app.command(name="list", help_epilogue=examples("list"))
def list_experiments(*, as_json: Json = False) -> int:
    """Show every experiment: its name, its question, its factors and treatments."""
    from pagecage.cli import execution

    known = definitions()
    rows = [execution.summary_row(known.experiment(name)) for name in known.experiment_names()]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14} {row['question']}")
    return EXIT_OK


@app.command(help_epilogue=examples("plan"))
def plan(
    name: str,
    wishes: Wishes = Wishes(),  # noqa: B008 - frozen
    fleet_wishes: FleetWishes = FleetWishes(),  # noqa: B008 - frozen
    *,
    as_json: Json = False,
) -> int:
    """Print the trials of a run in order, and the exact commands of each; no trial is started.

    With --size auto and host vm the guest's image is made now, if it is missing: its kernel tells what runs here.
    """
    from pagecage.agent.preview import plan_lines, trial_commands
    from pagecage.cli import execution
    from pagecage.cli.run_plan import check_wishes
    from pagecage.planning.plan import plan_to_json

    check_wishes(wishes, fleet_wishes)
    if is_group(wishes.host):
        from pagecage.cli import fleet

        return fleet.show_plan(name, wishes, fleet_wishes, _command(), as_json, say)
    made, host = execution.plan_for(name, wishes, _command(), say)
    host.stop()
    if as_json:
        print(json.dumps(plan_to_json(made)))
        return EXIT_OK
    print("\n".join(plan_lines(made)))
    for trial in made.trials:
        print(f"\n# {trial.trial_id}\n" + "\n".join(trial_commands(trial, host.user)))
    return EXIT_OK


@app.command(help_epilogue=examples("run"))
def run(
    name: str,
    wishes: Wishes = Wishes(),  # noqa: B008 - frozen
    fleet_wishes: FleetWishes = FleetWishes(),  # noqa: B008 - frozen
    *,
    resume: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Run an experiment, make its report, and print its table.

    Parameters
    ----------
    name
        One of `pagecage list`.
    resume
        Finish the experiment's newest run instead of starting one.
    dry_run
        Print the plan and its commands, and start nothing.
    yes
        Do not ask before changing a setting of the disk that holds /.
    """
    from pagecage.cli import execution
    from pagecage.cli.run_plan import check_wishes

    if dry_run and resume:
        raise PagecageError("--dry-run shows a new plan, and --resume has one", "pagecage show NAME shows what is done")
    if dry_run:
        return plan(name, wishes, fleet_wishes, as_json=as_json)
    check_wishes(wishes, fleet_wishes)
    if is_group(wishes.host):
        from pagecage.cli import fleet

        return fleet.run(name, wishes, fleet_wishes, _command(), fleet.Again(resume, yes), Form(as_json=as_json), say)
    job = execution.resumed(name, wishes, yes, say) if resume else execution.new(name, wishes, _command(), yes, say)
    status = execution.carry_out(job, say)
    report(job.folder.path, Form(as_json=as_json).options(), say)
    return execution.exit_code(job, status, say)


@app.command(help_epilogue=examples("show"))
def show(
    name: str,
    form: Form = Form(),  # noqa: B008 - frozen
    *,
    include: list[str] | None = None,
    html: bool = False,
) -> int:
    """Print a run's tables, verdicts and claims.

    Parameters
    ----------
    name
        A run's id or path, an experiment's name for its newest run, or EXPERIMENT@GROUP for the newest of a group.
    include
        An excluded trial to average in after all, by its name, or a verdict (limits, cache_state_reached, host_quiet)
        for all trials that it alone excludes.
    html
        Make the report again from the records, and print its path.
    """
    from pagecage.fleet.folder import find_fleet
    from pagecage.runner.run_folder import find_run

    fleet = find_fleet(RUNS, name)
    path = fleet.path if fleet else find_run(RUNS, name).path
    if html and form.options():
        raise PagecageError(f"--html prints the path of a page, and {form.options()[0]} is for tables", "ask for one")
    if html:
        print(render(path, say, include or ()))
    else:
        print(show_run(path, form.options(), include or ()), end="")
    return EXIT_OK


@app.command(help_epilogue=examples("publish"))
def publish(*runs: str, out: Folder = TOP / "site") -> int:
    """Make a static site that opens anywhere, offline: reports, the scorecard, the answers, the documents.

    Parameters
    ----------
    runs
        Runs' ids, paths or experiments' names; the newest of every experiment where none is named.
    out
        The folder that becomes the site; one that was there before is replaced when the new one is whole.
    """
    from pagecage.runner.run_folder import find_run

    chosen = [find_run(RUNS, name).path for name in runs]
    print(os.path.relpath(publish_site(RUNS, chosen, out, say)))
    return EXIT_OK


@app.command(help_epilogue=examples("claims"))
def claims(*, experiment: str | None = None, as_json: Json = False) -> int:
    """Print every published figure, what the newest runs measured for it, and whether it held.

    Parameters
    ----------
    experiment
        Only the figures that this experiment tests.
    """
    print(show_claims(RUNS, experiment, as_json), end="")
    return EXIT_OK


@app.command(help_epilogue=examples("answers"))
def answers(*, markdown: bool = False, as_json: Json = False) -> int:
    """Print the questions that the articles left open, and what the newest runs say to each.

    Parameters
    ----------
    markdown
        As the page docs/answers.md.
    """
    print(show_answers(RUNS, markdown, as_json), end="")
    return EXIT_OK


@app.command(name="doctor", help_epilogue=examples("doctor"))
def doctor_(*, data_dir: Folder | None = None, as_json: Json = False) -> int:
    """Say what this machine has and lacks for measuring, and what mends it; 3 when no host would work."""
    from pagecage.cli import doctor

    findings = doctor.examine(data_dir)
    if as_json:
        print(json.dumps([vars(finding) for finding in findings]))
    else:
        print("\n".join(doctor.lines(findings)))
    hosts = {f.host for f in findings} - {f.host for f in findings if f.level == "missing"}
    return EXIT_OK if hosts else EXIT_HOST


@app.command(help_epilogue=examples("schema"))
def schema(directory: Folder = TOP / "docs/schema") -> int:
    """Write the JSON Schemas of definitions and cages (an editor completes keys with them).

    Parameters
    ----------
    directory
        Where to; it is made if it is not there.
    """
    from pagecage.definitions.reader import schemas

    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in schemas().items():
            (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return EXIT_OK


def _command() -> str:
    return shlex.join(["pagecage", *sys.argv[1:]])


def main() -> int:
    """Entry point: a user's mistake is a sentence and its mend, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name of a file may be no text, and a locale lack a character
        sys.stdout.reconfigure(errors="backslashreplace")
    # Leave as cleanly as on Ctrl-C; and Ctrl-C itself, because a shell's `&` and cron start programs that ignore it.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        return int(app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value") or EXIT_OK)
    except PagecageError as error:
        return failures.tell(error)
    except CycloptsError as error:
        return failures.tell(failures.refusal(error))
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - whatever else comes is a defect of ours, and is told as one
        return failures.tell_defect(error)


if __name__ == "__main__":
    sys.exit(main())
