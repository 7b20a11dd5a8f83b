"""Defects that the campaigns found when they first ran. Each is fixed, with a test of its own."""

FOUND = (
    "`run` left half a run folder after 17 of 401 faults: a plan that was cut off, or no plan. A"
    " run folder is now made under another name, and renamed.",
    "108 of 401 faults ended `run` as an internal error: a full disk, a disk error, a refused"
    " process. Now it is one sentence with a fix, and exit status 3.",
    "23 faults ended Python with status 120, because a message could not be printed.",
    "Ctrl-C did not end a run whose agent hung. Now a silence of a minute does.",
    "Temporary files of killed commands stayed for ever (`agent.PID`, `.latest-PID`,"
    " `.pagecage-bundle-PID`, `.pagecage-render-*`, `.pagecage-site-*`). The next start removes"
    " them.",
    "An agent that was killed while it noted a second setting of a disk forgot the first. The"
    " journal is now replaced as a whole.",
    "A setting that could not be put back, because the disk was full, was forgotten. The next"
    " start now tries again.",
    "A collector ran on for ever if its agent was killed before it had noted it. It now carries a"
    " mark by which the next start finds it.",
    "A `systemctl stop` that failed was taken for a success. It is repeated, then an error.",
    "A line of a fleet's `rounds.jsonl` that was cut off made every later `--resume` fail.",
    "A fleet's folder without `fleet.json` stayed when its maker was killed.",
    "An analysis that was ended by a signal became exit status 247.",
    "Ctrl-C did not end a fleet's run while its ansible-playbook hung. Now it is given up after"
    " five minutes, and the next run fetches what the hosts have.",
    "Ctrl-C at the end of a fleet's round left a directory on each host that had ended. Only those"
    " that still work are stopped now.",
    "After a rename only the file was synced, not its folder: a power failure could undo it.",
)
