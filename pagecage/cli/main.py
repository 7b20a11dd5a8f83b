"""The command line: a table of verbs. Data goes to standard output, everything else to standard error.

A verb's module is imported when the verb is called, so that a verb that only prints something starts quickly.
"""

from __future__ import annotations

import io
import signal
import sys

from cyclopts import App, CycloptsError, Parameter

from pagecage.cli import failures
from pagecage.cli.examples import examples
from pagecage.cli.output import say
from pagecage.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, PagecageError
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
_VERBS = {
    "answers": "show:answers",
    "bundle": "bundle:bundle",
    "cage": "cage:app",
    "claims": "show:claims",
    "compare": "show:compare",
    "doctor": "doctor:doctor",
    "host": "host:app",
    "list": "run:list_experiments",
    "plan": "run:plan",
    "probe": "probe:probe",
    "publish": "show:publish",
    "render": "bundle:render",
    "replay": "replay:app",
    "run": "run:run",
    "schema": "schema:schema",
    "shell": "shell:app",
    "show": "show:show",
    "sweep": "sweep:app",
}
for _verb, _function in _VERBS.items():
    _own = {} if _function.endswith(":app") else {"help_epilogue": examples(_verb)}  # an App has its own
    app.command(f"pagecage.cli.{_function}", name=_verb, **_own)
app.register_install_completion_command()


def main() -> int:
    """Run the command line; print a user's mistake as one sentence and its fix, without a traceback."""
    if not set(sys.argv[1:]) & set(_VERBS):  # the overview and the completion script describe every verb
        for verb in _VERBS:
            app[verb]
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
