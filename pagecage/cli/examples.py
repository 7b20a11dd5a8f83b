"""Examples at the end of `pagecage VERB --help`. Each can be pasted into a shell."""

from __future__ import annotations

import re
import textwrap

_EXAMPLES = """
[init]
pagecage init -- grep -rc needle src
pagecage init --name start -- ./server --load-index index.db
pagecage init --ready-port 8080 --cage aws-gp3 --size 500GiB -- ./server
pagecage init --template rust --name mine
pagecage init --ci gitlab -- sort data.txt
[demo]
pagecage demo
pagecage demo --keep
[list]
pagecage list
pagecage list --json
[run]
pagecage run constrained-random
pagecage run smoke --dataset smoke --dry-run
pagecage run constrained-random --cage customer-tenth --repeats 5
pagecage run lazy-start --cage aws-gp3 --size 500GiB --until-ci 5%
pagecage run constrained-random --resume
pagecage run ./experiments/mine.toml --host vm
pagecage run start --fail-if 'ready_seconds > 30s'
pagecage run smoke --baseline smoke.json --fail-if 'device_reads > +5%'
pagecage run constrained-random --host rack --fleet spread
[show]
pagecage show constrained-random
pagecage show run.pagecage.zip --json
pagecage show smoke --include host_quiet
pagecage show runs/latest-smoke --html
pagecage show smoke --format openmetrics
[runs]
pagecage runs
pagecage runs list --largest
pagecage runs remove smoke
[runs list]
pagecage runs list
pagecage runs list docs/runs --json
[runs remove]
pagecage runs remove smoke
pagecage runs remove 20261124T061256Z-smoke-local --yes
[history]
pagecage history constrained-random
pagecage history smoke --response device_reads --html history.html
pagecage history smoke --fail-if 'device_reads > +5%'
[publish]
pagecage publish
pagecage publish constrained-random append-log --out site
pagecage publish --bundles docs/runs
[articles]
pagecage articles claims
pagecage articles answers --bundles docs/runs
[articles claims]
pagecage articles claims
pagecage articles claims --experiment constrained-random --json
pagecage articles claims --bundles docs/runs --markdown
[articles answers]
pagecage articles answers
pagecage articles answers --bundles docs/runs --markdown > answers.md
[articles fidelity]
pagecage articles fidelity
pagecage articles fidelity --markdown > docs/FIDELITY.md
[doctor]
pagecage doctor
pagecage doctor --data-dir /data --json
[articles schema]
pagecage articles schema
pagecage articles schema build/schema
[volume]
pagecage volume check aws-gp3 --size 500GiB
pagecage volume account
pagecage volume event degrade --share 0.5 --for 2min
[volume account]
pagecage volume account
pagecage volume account --json
[volume check]
pagecage volume check aws-gp3 --size 500GiB
pagecage volume check customer --time 30s --json
[volume event]
pagecage volume event pause --for 5s
pagecage volume event delay --latency 10ms --share 0.05 --for 60s
[compare]
pagecage compare RUN OTHER
pagecage compare RUN OTHER --fail-if 'time > +10%' --html differ.html
pagecage compare RUN --fail-if 'ready_seconds > 30s'
pagecage compare smoke --save-baseline smoke.json --response block_p99_us
[predict]
pagecage predict customer-replay
pagecage predict customer-replay --provider aws --under 2min
pagecage predict RUN --type gp3 --instance m7i.large --latency 500us
pagecage predict RUN --treatment load=lazy-random --start drained --json
pagecage predict postgres-gp3 --at-least 500
[export]
pagecage export constrained-random
pagecage export constrained-random --out run.pagecage.zip --no-redact
[import]
pagecage import run.pagecage.zip
pagecage import run.pagecage.zip --out rendered
[probe]
pagecage probe --print-path
pagecage probe /data --out probe.json
pagecage probe /data --file-size 256MiB --time 20s --yes
[cold]
pagecage cold data index.db
pagecage cold data --certificate cold.json -- grep -r needle data
pagecage cold data --each-query 'psql -f a.sql' --each-query 'psql -f b.sql'
pagecage cold index.db --json
[inspect]
pagecage inspect --unit postgresql.service
pagecage inspect --container orders-db --expect 'IOReadIOPSMax=/dev/vdb 500'
pagecage inspect --pid 4711 --json
pagecage inspect --print-path
[replay]
pagecage replay customer --cold data -- grep -r needle data
pagecage replay aws-gp3 --size 500GiB --cold data -- grep -r needle data
pagecage replay customer --cage tenth --cold big.db -- sqlite3 big.db .dump
pagecage replay gp3 --cold db --ready-port 80 --repeats 3 \\
    --fail-if 'ready_seconds > 30s' -- ./server --load
pagecage replay customer --image postgres:16 -e PGUSER=x --ready-port 5432
pagecage replay customer --serve './server -p 80' --ready-port 80 \\
    --load 'pgbench -T 30' --warm-up 10s --metric 'tps = ([0-9.]+)'
[shell]
pagecage shell customer
pagecage shell aws-gp3 --size 500GiB
pagecage shell tenth --data-size 1GiB --host vm
[sweep]
pagecage sweep customer --vary IOReadIOPSMax=250,1000 --cold data -- cat data
pagecage sweep tenth --vary MemoryMax=64MiB,256MiB --cold data -- cat data
pagecage sweep customer-tenth customer-replay --vary IOReadIOPSMax=250,1000 \\
    --treatment load=lazy-random
pagecage run sweep-customer-replay --resume
[memory]
pagecage memory customer --cold data -- grep -r needle data
pagecage memory uncaged --cold index --ready-port 8080 -- ./server --load
pagecage memory customer --repeats 3 --slowdown 10% --cold data -- cat data
pagecage memory customer --cold data --dry-run -- cat data
[cage]
pagecage cage list
pagecage cage show customer
pagecage cage import docker-inspect.json --save acme
[cage list]
pagecage cage list
pagecage cage list --provider aws --min-iops 16000
pagecage cage list --type gp3 --json
[cage show]
pagecage cage show customer
pagecage cage show azure-p10
pagecage cage show ./slow.toml
pagecage cage show aws-gp3 --size 500GiB --instance m7i.large --save acme
pagecage cage show aws-gp2 --size 100GiB --save acme --as-disk wal
pagecage cage show customer --as docker --device /dev/nvme1n1
pagecage cage show aws-gp3 --size 500GiB --as kubernetes
[cage import]
pagecage cage import probe.json --save acme
pagecage cage import pod.yaml --pick db
docker inspect orders-db | pagecage cage import -
pagecage cage import before.json after.json --time 60s
[cage floor]
pagecage cage floor customer --bytes 28GB --reads 220000
pagecage cage floor aws-gp3 --size 500GiB --bytes 28GB --reads 220000
pagecage cage floor customer --reads 7000000 --json
pagecage cage floor gp3-wal-apart --on-disk wal --writes 9000
[host]
pagecage host status
pagecage host up
pagecage host provision rack --ask-password
[host setup]
pagecage host setup
pagecage host setup vm volume
[host provision]
pagecage host provision local --device /dev/disk/by-id/nvme-EXAMPLE
pagecage host provision rack --for postgres-gp3
pagecage host provision rack --ask-password
[host verify]
pagecage host verify local
pagecage host verify rack --password-file sudo-password --json
[host unprovision]
pagecage host unprovision rack --ask-password
pagecage host unprovision rack --erase --json
[host which]
pagecage host which
pagecage host which rack
[host prepare]
pagecage host prepare
pagecage host prepare vm --for constrained-random --dataset smoke
[host up]
pagecage host up
pagecage host up vm --name old --suite bookworm --cpus 1
pagecage host up vm --name ubuntu --suite noble
[host down]
pagecage host down
pagecage host down vm --name old
[host shell]
pagecage host shell
pagecage host shell vm --name old
[host status]
pagecage host status
pagecage host status --json
[host rebuild]
pagecage host rebuild
pagecage host rebuild vm --name old
[host image]
pagecage host image
pagecage host image vm --for sqlite-cold --json
[host pack]
pagecage host pack --out build/guest
pagecage host pack --out build/guest --for sqlite-cold
[host inventory]
pagecage host inventory
ansible-inventory -i ansible/inventory --list
"""
_LINES = dict(re.findall(r"^\[(.+)\]\n((?:[^\[].*\n)+)", _EXAMPLES, re.MULTILINE))


def examples(verb: str, more: str = "") -> str:
    """Return the text below a verb's options: its examples, then `more`."""
    shown = textwrap.indent(_LINES[verb].rstrip(), "  ")
    return f"Examples:\n\n{shown}" + (f"\n\n{more}" if more else "")
