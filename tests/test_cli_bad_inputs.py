"""Bad input over every verb: one sentence, exit status 2 or 3, nothing of Python's, and nothing written anywhere.

A line is a command and what its refusal says. {long}, {nul}, {bytes} and {lines} stand for what no line here can hold.
"""

from __future__ import annotations

import shlex

import pytest

from tests.bad_inputs import ARCHIVES, CAGES, EXPERIMENTS, FILES, GOOD, PLANS, RECORDS, BadCheckout, bad, complaint
from tests.verbs import VERBS

__all__ = ["bad"]
ODD = {"{long}": "x" * 5000, "{nul}": "a\0b", "{bytes}": "\udcff\udcfe", "{lines}": "a\nb", "{good}": GOOD}
TABLE = r"""
'' -> has no verb
nope -> has no verb 'nope'
--nope -> has no verb '--nope'
{lines} -> has no verb 'a\\nb'
{bytes} -> has no verb
list x -> has no use for 'x'
list --jsn -> did you mean --json?
list --json=maybe -> unable to convert "maybe"
list -> bad-
plan -> lacks NAME
plan nope -> there is no experiment 'nope'
plan '' -> there is no experiment ''
plan ../smoke -> there is no experiment '../smoke'
plan /etc/passwd -> there is no experiment
plan smoke.toml -> did you mean "smoke"?
plan {long} -> there is no experiment
plan {nul} -> there is no experiment 'a\\x00b'
plan {bytes} -> there is no experiment
plan smoke --host mars -> there is no host 'mars'
plan smoke --host '' -> there is no host ''
plan smoke --host 'a b' -> there is no host 'a b'
plan smoke --host rack -> this host refuses
plan smoke --host r1 --until-ci 5% -> --until-ci decides while one host runs
plan smoke --host r1 --data-dir data -> --data-dir is for host local
plan smoke --size huge -> there is no size 'huge'
plan smoke --size '' -> there is no size ''
plan smoke --cage nope -> there is no cage 'nope'
plan smoke --cage ../cgroups/smoke -> there is no cage
plan smoke --cage '' -> there is no cage ''
plan smoke --repeats -1 -> must be >= 1
plan smoke --repeats 1.5 -> '1.5' is not a whole number
plan smoke --repeats 1e9 -> '1e9' is not a whole number
plan smoke --repeats 999999999 -> must be <= 10000
plan smoke --repeats ٣ -> is not a whole number
plan smoke --max-repeats 5 -> must be >= 6
plan smoke --max-repeats 9 -> --max-repeats bounds --until-ci
plan smoke --until-ci 5% --repeats 9 -> --repeats fixes what --until-ci finds out
plan smoke --until-ci 0% -> is no share of a median
plan smoke --until-ci 100% -> is no share of a median
plan smoke --until-ci '' -> is no share of a median
plan smoke --seed x -> 'x' is not a whole number
plan smoke --seed -1 -> must be >= 0
plan smoke --seed 99999999999999999999 -> must be <=
plan smoke --seed 1 --seed 2 -> specified multiple times
plan smoke --fresh often -> choose from: "never"
plan smoke --host local --size smoke --fresh block -> needs a saved machine state
plan smoke --driver lxc -> choose from: "systemd-scope"
plan smoke --data-dir /dev/null -> '/dev/null' is not a folder
plan smoke --data-dir /etc/passwd/x -> Not a directory
plan smoke --data-dir {long} -> File name too long
plan smoke --data-dir {nul} -> is not a name of a file
plan smoke --data-dir '' -> is not a name of a file
plan smoke --data-dir /proc --host local --size smoke -> do not fit
plan smoke --data-dir bad --host vm -> --data-dir is for host local
plan smoke --fleet some -> choose from: "replicate"
plan smoke --fleet spread --host local -> --fleet is for a group of hosts
plan smoke --mixed -> --mixed is for a group of hosts
plan smoke --skip-unreachable --host vm -> --skip-unreachable is for a group
run smoke --hots vm -> did you mean --host?
run smoke --resume --dry-run -> --dry-run shows a new plan
run smoke --resume --seed 1 -> --seed does not go with --resume
run smoke --resume --host local -> is a run on vm, and --host says local
run smoke --resume --host rack -> there is no run of smoke on rack
run nope --resume -> there is no run 'nope'
run smoke --host local -> this host refuses
run smoke --host vm --size smoke -> this host refuses
run smoke --host rack -> this host refuses
run r-none --resume -> this host refuses
show -> lacks NAME
show nope -> there is no run 'nope'
show '' -> there is no run ''
show / -> there is no run '/'
show {long} -> there is no run
show {nul} -> there is no run
show {bytes} -> there is no run
show loop -> there is no run 'loop'
show gone -> there is no run 'gone'
show of-hosts -> is a run of many hosts
show fleet -> cannot be read
show fleet-cut -> cannot be read
show fleet-newer -> cannot be read
show r-none -> has no record yet
show {good} --csv --json -> are two forms
show {good} --html --csv -> --html prints the path of a page
show {good} --include nope -> lets no excluded trial in
show {good} --include '' -> lets no excluded trial in
publish nope -> there is no run 'nope'
publish {good} {good} --out never -> both runs of smoke
publish r-none --out never -> has no record yet
publish --out /etc/passwd -> '/etc/passwd' is not a folder
publish --out bad -> is no site of ours
publish --out '' -> is not a name of a file
publish --out {nul} -> is not a name of a file
publish --out {long} -> File name too long
publish {good} --out /proc/x -> cannot be written
claims --experiment nope -> no published figure belongs to 'nope'
claims --experiment '' -> no published figure belongs to ''
claims x -> has no use for 'x'
answers --markdown --json -> are two forms
answers --markdown=5 -> unable to convert "5"
doctor --data-dir /etc/passwd -> is not a folder
doctor --data-dir {long} -> File name too long
doctor x -> has no use for 'x'
schema /etc/passwd -> is not a folder
schema /proc/x -> cannot be written
schema '' -> is not a name of a file
schema {nul} -> is not a name of a file
schema a b -> has no use for 'b'
compare -> lacks FIRST
compare {good} -> lacks SECOND
compare {good} nope -> there is no run 'nope'
compare {good} {good} --fail-if x -> 'x' is no gate
compare {good} {good} --fail-if '' -> '' is no gate
compare {good} {good} --fail-if 'read_seconds > +nan%' -> is no gate
compare {good} {good} --fail-if 'read_seconds < -200%' -> nothing becomes less than nothing
compare {good} {good} --include nope -> says nothing
compare {good} {good} --csv --markdown -> are two forms
compare {good} {good} --html bad -> 'bad' is a folder
compare {good} {good} --html nowhere/page -> nowhere is not there
bundle -> lacks NAME
bundle nope -> there is no run 'nope'
bundle {long} -> there is no run
bundle {good} --out bad -> 'bad' is a folder
bundle {good} --out bad/empty -> is there already
bundle {good} --out nowhere/x -> nowhere is not there
bundle {good} --out '' -> is not a name of a file
bundle r-none --out never -> has no record yet
render -> lacks ARCHIVE
render nope.zip -> is not there
render bad -> 'bad' is a folder
render '' -> is not a name of a file
render {nul} -> is not a name of a file
render bad/other.zip --out bad -> is there already
render bad/empty -> is no whole bundle
render bad/cut.zip -> is no whole bundle
cage nope -> has no verb 'nope'
cage list --provider asw -> did you mean "aws"?
cage list --provider '' -> there is no provider ''
cage list --min-iops 0 -> must be >= 1
cage list --min-iops nan -> 'nan' is not a whole number
cage list x -> has no use for 'x'
cage show -> lacks NAME
cage show . -> there is no type of volume and no cage '.'
cage show {nul} -> there is no type of volume
cage show {bytes} -> there is no type of volume
cage show {long} -> there is no type of volume
cage show aws-gp3 -> depend on its size
cage show aws-gp3 --size '' -> is no size
cage show aws-gp3 --size 0GiB -> 0 B were asked for
cage show aws-gp3 --size 999999999999999999999TiB -> is no size that fits a disk
cage show aws-gp3 --size 9999999999999999999999999TiB -> is no size that fits a disk
cage show aws-gp3 --size 1GiB --throughput 1e9 -> '1e9' is no size
cage show aws-gp3 --size 1GiB --iops 99999999999999999999 -> must be <=
cage show aws-gp3 --size 1GiB --instance '' -> has no instance ''
cage show aws-gp3 --size 1GiB --scale nan -> must be <= 1000
cage show aws-gp3 --size 1GiB --scale 1e-300 --save never -> less than the kernel can count
cage show aws-gp3 --size 1GiB --memory 0MiB -> is less than a page
cage show aws-gp3 --size 1GiB --memory '' -> is no size
cage show aws-gp3 --size 1GiB --save '' -> cannot name a cage
cage show aws-gp3 --size 1GiB --save a/b -> cannot name a cage
cage show aws-gp3 --size 1GiB --save {lines} -> cannot name a cage
cage show aws-gp3 --size 1GiB --save é -> cannot name a cage
cage show aws-gp3 --size 1GiB --save smoke -> there is a cage smoke already
cage show smoke --save never -> is a cage, with its limits settled
cage import -> lacks FILE
cage import nope -> cannot be read
cage import '' -> cannot be read
cage import bad -> Is a directory
cage import {nul} -> is not a name of a file
cage import {long} -> File name too long
cage import - -> standard input is empty
cage import /proc/self/mem -> Input/output error
cage import bad/unit --digits 0 -> must be >= 1
cage import bad/unit --digits 10 -> must be <= 9
cage import bad/unit --save -> requires an argument
host nope -> has no verb 'nope'
host up mv -> choose from: "vm"
host up --cpus 0 -> must be >= 1
host up --cpus 65 -> must be <= 64
host up --cpus 1.5 -> is not a whole number
host up --suite sid -> choose from: "bookworm"
host up --name ../x -> is no name for a guest
host up --name '' -> is no name for a guest
host up --name {lines} -> is no name for a guest
host up -> this host refuses
host down --name .. -> is no name for a guest
host down x -> choose from: "vm"
host status --name A -> is no name for a guest
host status --json=5 -> unable to convert "5"
host shell --name {nul} -> is no name for a guest
host shell -> this host refuses
host rebuild --name é -> is no name for a guest
host rebuild -> this host refuses
host pack -> lacks --out
host pack --out /etc/passwd -> is not a folder
host pack --out /proc/x -> cannot be written
host pack --out {nul} -> is not a name of a file
host inventory x -> has no use for 'x'
host provision -> lacks GROUP
host provision nope -> no inventory has a group 'nope'
host provision empty -> has no hosts
host provision rack --device /dev/sdx -> would be taken on each of 2 hosts
host provision r1 --password-file nope -> 'nope' is not there
host provision r1 --device '' -> '' is not a name of a device
host provision r1 -> this host refuses
host verify {bytes} -> no inventory has a group
host verify rack --device /dev/sda -> Unknown option: --device
host verify r1 --password-file bad -> 'bad' is a folder
host unprovision '' -> no inventory has a group ''
host unprovision r1 --erase=maybe -> unable to convert "maybe"
probe -> no folder was given
probe nope -> 'nope' is not there
probe bad/empty -> is not a folder
probe bad --size 1G -> has no clear unit
probe bad --size 1MiB -> is not a size of a probe's file
probe bad --size '' -> is no size
probe bad --seconds 4 -> must be >= 5
probe bad --seconds 1e9 -> is not a whole number
probe bad --engine x -> choose from: "auto"
probe bad --out nowhere/x -> nowhere is not there
probe bad --yes -> this host refuses
replay -> lacks CAGE
replay customer -> there is no command to replay
replay nope -- true -> there is no cage 'nope'
replay '' -- true -> there is no cage ''
replay customer --cage nope -- true -> there is no cage 'nope'
replay customer --host rack -- true -> there is no host 'rack' for this
replay customer --host local -- nope-program -> there is no program 'nope-program'
replay customer --host local -- '' -> there is no program ''
replay customer --host local -- {nul} -> there is no program
replay customer --host local -- true -> this host refuses
replay customer --host vm --data-dir bad -- true -> --data-dir is for host local
replay customer --host local --cold nope -- true -> --cold: there is no nope
replay customer --host local --cold nope --dry-run -- true -> --cold: there is no nope
replay customer --host local --cold /dev/null --dry-run -- true -> --cold: there is no file in /dev/null
replay customer --host local --cold '' --dry-run -- true -> is not a name of a file
replay customer --host local --cold {long} --dry-run -- true -> --cold: there is no
replay customer --host vm --cold nope --dry-run -- true -> --cold: nope is not among what is copied
replay customer --host vm --copy bad --cold bad/nope --dry-run -- true -> --cold: there is no bad/nope
replay customer --host local --copy nope -- true -> --copy: there is no nope
replay customer --host local --copy '' -- true -> --copy: there is no
replay customer --host local --copy bad --copy runs/../bad -- true -> two things are named 'bad'
replay customer --host local --ready-port 0 -- true -> must be >= 1
replay customer --host local --ready-port 65536 -- true -> must be <= 65535
replay customer --host local --ready-when [ -- true -> is no regular expression
replay customer --host local --ready-when 'a{99999999999}' -- true -> is no regular expression
replay customer --host local --ready-when a --ready-port 1 -- true -> are two ends of one time
replay customer --host local --timeout nan -- true -> must be
replay customer --host local --timeout inf -- true -> must be
replay customer --host local --timeout -1 -- true -> must be > 0
replay customer --host local --repeats 0 -- true -> must be >= 1
replay customer --host local --collectors iostat,x -- true -> there is no collector 'x'
replay customer --host local --collectors '' -- true -> there is no collector ''
replay customer --host local --cache warm -- true -> choose from: "cold"
replay customer --host local --copy-program -- bad/unit -> there is no program
replay tenth --host local -- true -> is a share of a dataset
replay tenth --host local --cold bad/empty -- true -> less than a page
shell -> lacks CAGE
shell nope -> there is no cage 'nope'
shell customer -> a shell needs a terminal
shell tenth --data-size 1G -> has no clear unit
shell tenth --data-size '' -> is no size
shell tenth --data-size 1B -> less than a page
shell customer --data-dir nope -> 'nope' is not there
sweep -> lacks BASE
sweep customer smoke -> lacks --vary
sweep nope smoke --vary MemoryMax=1MiB -> there is no cage 'nope'
sweep customer nope --vary MemoryMax=1MiB -> there is no experiment 'nope'
sweep customer --vary MemoryMax=1MiB -> nothing is no experiment
sweep customer a b --vary MemoryMax=1MiB -> a b is no experiment
sweep customer smoke --vary MemoryMax=1MiB --cold bad -> --cold is for a command
sweep customer smoke --vary MemoryMax=1MiB --no-control -> a sweep has one cage
sweep customer smoke --vary MemoryMax=1MiB,2MiB --treatment x --host local -> names no level
sweep customer smoke --vary MemoryMax=1MiB,2MiB --host local -> has several patterns
sweep customer --vary '' --host local -- true -> varies no limit
sweep customer --vary X=1 --host local -- true -> varies no limit
sweep customer --vary MemoryMax= --host local -- true -> gives too few values
sweep customer --vary MemoryMax=1G,2G --host local -- true -> has no clear unit
sweep customer --vary MemoryMax=0MiB,1MiB --host local -- true -> 0MiB is too little
sweep customer --vary IOReadBandwidthMax=0MB,1MB --host local -- true -> 0MB is too little
sweep customer --vary IOReadIOPSMax=0,5 --host local -- true -> '0' is no count
sweep customer --vary IOReadIOPSMax=²,5 --host local -- true -> '²' is no count
sweep customer --vary IOReadIOPSMax=1,18446744073709551616 --host local -- true -> is no count
sweep customer --vary IOReadIOPSMax=1,2 --host local --size smoke -- true -> --size is for an experiment
sweep customer --vary IOReadIOPSMax=1,2 --host local -- true -> this host refuses
"""


def rows() -> list[tuple[tuple[str, ...], str]]:
    """The table, and a command for everything bad that lies in the checkout."""
    typed = [line.rpartition(" -> ") for line in TABLE.strip().splitlines()]
    found = [(tuple(shlex.split(command)), says.encode().decode("unicode_escape") if "\\" in says else says)
             for command, _, says in typed]  # fmt: skip
    for run in [*PLANS, *RECORDS]:
        found += [(("show", run), run), (("compare", GOOD, run), run), (("publish", run, "--out", "never"), run)]
    found += [(("run", run, "--resume"), run) for run in PLANS]
    found += [(("bundle", run, "--out", "never"), run) for run in ("p-deep", "p-list", "p-definition")]
    found += [(("plan", f"bad-{name}", "--host", "local", "--size", "full"), "bad-" + name) for name in EXPERIMENTS]
    found += [(("cage", "show", f"bad-{name}"), f"bad-{name}") for name in CAGES if name != "little"]
    found += [(("plan", "smoke", "--host", "local", "--size", "smoke", "--cage", f"bad-{name}"), "") for name in CAGES]
    found += [(("cage", "import", f"bad/{name}"), "") for name in FILES]
    return found + [(("render", f"bad/{name}"), name) for name in ARCHIVES]


ROWS = rows()


def odd(word: str) -> str:
    for name, text in ODD.items():
        word = word.replace(name, text)
    return word


def test_the_table_is_long_and_covers_every_verb() -> None:
    commands = {words for words, _ in ROWS}
    assert len(commands) == len(ROWS) >= 150
    for verb in VERBS:
        assert any(words[: len(verb.split())] == tuple(verb.split()) for words in commands), verb


@pytest.mark.parametrize(("words", "says"), ROWS, ids=[" ".join(words)[:70] for words, _ in ROWS])
def test_it_is_one_sentence_and_nothing_is_done(bad: BadCheckout, words: tuple[str, ...], says: str) -> None:
    before = bad.written()
    done = bad.run(*map(odd, words))
    assert complaint(done) is None, done.stderr
    assert says in done.stderr
    assert bad.written() == before
