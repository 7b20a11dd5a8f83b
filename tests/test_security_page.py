"""docs/SECURITY.md, sentence by sentence: the tests of what each one promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from pagecage.agent.drivers.container import Container, options
from tests.tree import ROOT, files

PAGE = ROOT / "docs/SECURITY.md"
NOTHING = "nothing promised"
"""The mark of a sentence that describes, discloses or advises."""
TABLE = """
Nothing listens on a network address but the loopback interface.
    tests/test_security_page.py::test_no_part_listens_on_a_network
    tests/unit/hosts/vm/test_qemu.py::test_the_guest_reaches_nothing_and_is_reached_on_loopback_only
    tests/test_containers.py::test_the_notebook_server_is_reached_from_this_machine_alone_and_by_a_token
ssh of the guest | a free port of 127.0.0.1; a key made for this image is required, and the guest's
host key is checked | users of this machine who can read `~/.cache/pagecage/vm`
    tests/unit/hosts/vm/test_qemu.py::test_the_guest_reaches_nothing_and_is_reached_on_loopback_only
    tests/vm/test_guest.py::test_only_the_guests_own_key_opens_and_is_believed
    tests/unit/hosts/test_ssh.py::test_the_host_key_is_pinned_and_nothing_comes_from_the_users_own_settings
QEMU's monitor and the guest's agent | unix sockets in a directory of mode 0700 | this user and root
    tests/unit/hosts/vm/test_qemu.py::test_sockets_are_in_a_directory_of_this_user_alone
the simulated volume | unix sockets in the spool or in that directory | this user and root
    tests/unit/hosts/vm/test_disks.py::test_a_volume_listens_on_unix_sockets_in_the_given_directory
    tests/volume/test_trial.py::test_sockets_of_a_volume_are_in_the_spool
a container engine that a trial starts | the engine's own unix socket, until the session ends | as
the engine is set up
    tests/order/test_drivers.py::test_an_engine_is_started_before_anything_is_measured_and_ended_after_it
The guest has no network: a program in it reaches neither the machine around it nor anything else.
    tests/unit/hosts/vm/test_qemu.py::test_the_guest_reaches_nothing_and_is_reached_on_loopback_only
    tests/vm/test_guest.py::test_the_guest_has_no_way_out
On `HOST=local`, whatever you start.
    nothing promised
An ordinary user's trials run in slices of the user's systemd.
    tests/unit/linux/test_systemd.py::test_a_users_manager_is_asked_as_such
    tests/unit/linux/test_systemd.py::test_a_users_slices_are_under_their_manager
`make provision` and `make experiment` install packages with sudo, and print the commands if they
cannot.
    tests/ansible/test_controller.py::test_an_ordinary_user_is_told_how_he_becomes_root
    tests/test_tools.py::test_what_apt_provides_is_installed_without_ansible
In the guest everything runs as root.
    nothing promised
Its system disk is dropped at its end; its data disks are kept.
    tests/vm/test_guest.py::test_what_a_guest_writes_never_reaches_the_saved_state
    tests/vm/test_guest.py::test_a_restore_is_the_same_machine_with_its_own_time_and_random_numbers
    tests/unit/hosts/vm/test_disks.py::test_disk_is_made_once_and_again_only_when_too_small
On a fleet, tasks become root through Ansible.
    nothing promised
`make unprovision` restores what they changed.
    tests/ansible/test_molecule.py::test_a_root_file_system_is_made_fit_and_put_back
    tests/ansible/test_roles.py::test_every_role_that_changes_a_host_can_be_undone
A container of a trial has all capabilities, the host's network and its process ids, because only
its limits are the subject of the experiment.
    tests/test_security_page.py::test_a_trials_container_is_a_limit_and_no_sandbox
Use the guest for programs that you do not trust.
    nothing promised
Programs in the guest run as root there, and can replace the agent.
    nothing promised
A host of a fleet may be taken over.
    nothing promised
So the controller believes nothing of what an agent sends:
    tests/order/test_hostile_agent.py::test_mutated_streams
    tests/order/test_hostile_agent.py::test_streams_by_a_grammar
    tests/order/test_hostile_agent.py::test_5000_mutated_streams
    tests/order/test_hostile_agent.py::test_5000_streams_by_a_grammar
A frame is of a known kind and has that kind's keys, each of its type.
    tests/order/test_hostile_agent.py::test_a_trace_that_was_not_asked_for_writes_nothing
    tests/order/test_hostile_agent.py::test_deep_nesting_is_a_sentence
It is about a trial that was asked for, the attempt that was asked for, and a trace that the trial's
collectors can leave.
    tests/order/test_hostile_agent.py::test_a_trial_that_was_not_asked_for_is_refused
    tests/order/test_hostile_agent.py::test_a_trace_that_was_not_asked_for_writes_nothing
    tests/unit/model/test_run_files.py::test_names_of_traces_follow_from_the_collectors
A record agrees with the plan in every key that names the trial.
    tests/order/test_hostile_agent.py::test_a_record_of_something_else_is_refused
The controller itself adds the names of traces.
    tests/order/test_hostile_agent.py::test_a_record_of_something_else_is_refused
Lengths and counts are bounded ([FORMAT.md](FORMAT.md#bounds)), so a stream without an end is ended.
    tests/order/test_hostile_agent.py::test_a_stream_without_an_end_is_ended
    tests/order/test_hostile_agent.py::test_the_largest_line_takes_bounded_memory
    tests/unit/model/test_identifiers.py::test_bounds_are_those_of_the_documents
Files are written only within the run folder, under names that the controller makes.
    tests/order/test_hostile_agent.py::test_facts_name_no_other_file
    tests/order/test_hostile_agent.py::test_a_trace_that_was_not_asked_for_writes_nothing
    tests/unit/runner/test_run_folder.py::test_a_trace_stays_within_its_run
A symbolic link there is refused.
    tests/order/test_hostile_agent.py::test_a_link_in_the_run_folder_leads_nowhere
    tests/order/test_hostile_agent.py::test_records_that_are_a_link_are_not_written
Text that is printed has no control characters.
    tests/order/test_hostile_agent.py::test_text_of_the_agent_moves_no_cursor
What a replayed program prints is passed on as it is, if it was to be shown.
    tests/order/test_replay.py::test_a_pipe_goes_through_the_program
    tests/order/test_hostile_agent.py::test_output_that_no_trial_prints_is_refused
The first frame that breaks a rule ends the session with one sentence and exit status 3.
    tests/order/test_hostile_agent.py::test_a_campaign_ends_an_agent_that_is_not_believed
Records that came before it stay.
    tests/order/test_hostile_agent.py::test_a_frame_that_is_cut_off_is_dropped_and_those_before_it_kept
A trace that was lost or altered later contradicts its record.
    tests/unit/model/test_run_files.py::test_a_damaged_trace_is_told
    tests/unit/model/test_run_files.py::test_a_lost_trace_is_a_contradiction
A hostile agent can still report wrong figures: the verdicts compare independent accounts, but all
of them come from its host.
    nothing promised
The spool is the directory for agent, workloads and traces:
    nothing promised
`/dev/shm/pagecage` of root, else `pagecage` in the user's runtime directory.
    tests/unit/hosts/test_local.py::test_the_spool_is_in_memory_for_who_has_a_runtime_directory
Its files are run, so on every host and at every start:
    nothing promised
it is a directory, not a link, belongs to the account that runs the agent, and nobody else can write
to it or list it; anything else is refused with the command that removes it;
    tests/unit/hosts/test_local.py::test_nobody_else_lists_the_spool_or_writes_to_it
    tests/unit/hosts/test_local.py::test_a_spool_that_somebody_else_prepared_is_refused
    tests/unit/hosts/test_ssh.py::test_a_directory_that_another_user_made_gets_no_file
    tests/order/test_fleet_cli.py::test_a_spool_that_another_user_could_have_made_is_refused
the traces of trials are in a folder that only this account can enter;
    tests/order/test_cache_kept.py::test_traces_are_in_a_folder_of_this_account_alone
on a host of a fleet the files in it are compared with hashes that the controller sends.
    tests/order/test_fleet_cli.py::test_only_hashes_that_the_controller_sent_are_believed
Another user who makes the directory first delays a run until it is removed, and gets nothing.
    tests/unit/hosts/test_ssh.py::test_a_directory_that_another_user_made_gets_no_file
    tests/unit/hosts/test_local.py::test_a_spool_that_somebody_else_prepared_is_refused
Runs of all users exclude each other by flock(2) on `/dev/shm`, in which nothing is made for it.
    tests/unit/agent/test_host_session.py::test_agents_of_two_users_exclude_each_other
    tests/unit/hosts/test_local.py::test_a_run_of_another_user_keeps_this_machine
Two writers of one run folder exclude each other in the same way.
    tests/unit/runner/test_run_folder.py::test_two_writers_of_a_run_exclude_each_other
    tests/unit/runner/test_run_folder.py::test_a_campaign_locks_its_run
**Identifiers** in plans, records, bundles, baselines and fleets have patterns
(`pagecage/model/json_codec.py`).
    tests/unit/model/test_identifiers.py::test_patterns_are_those_of_the_documents
    tests/unit/model/test_identifiers.py::test_a_plan_names_nothing_outside
    tests/unit/model/test_identifiers.py::test_a_record_names_nothing_outside
    tests/unit/model/test_identifiers.py::test_a_fleet_names_no_folder_outside
None contains a slash or a control character, and none that names a file begins with a dot.
    tests/unit/model/test_identifiers.py::test_a_trial_of_a_plan_names_nothing_outside
    tests/unit/model/test_identifiers.py::test_traces_of_a_record_lie_in_folders_of_trials
**A damaged line** of records is reported with its number by every verb that reads a run.
    tests/unit/bundle/test_hostile.py::test_every_verb_names_a_damaged_line
    tests/unit/runner/test_run_folder.py::test_a_damaged_line_is_named_by_every_reader
**A bundle** (`*.pagecage.zip`) is data, for every verb that reads one:
    tests/unit/bundle/test_hostile.py::test_no_verb_executes_or_copies_what_a_bundle_says
none of its pages and notebooks is used.
    tests/unit/bundle/test_hostile.py::test_no_verb_executes_or_copies_what_a_bundle_says
    tests/unit/bundle/test_unpack.py::test_no_code_of_a_bundle_runs_when_it_is_rendered
Everything shown is made from its data by this installation, and report sections of its definition
are shown as text;
    tests/unit/bundle/test_unpack.py::test_a_section_of_a_bundle_is_not_executed_even_if_it_was_accepted_here
only names that a run has are accepted: no `..`, no absolute path, no link, no second file of one
name, and no file that its manifest does not list with size and hash;
    tests/unit/bundle/test_unpack.py::test_a_bundle_that_was_tampered_with_is_refused
    tests/unit/bundle/test_unpack.py::test_a_file_given_twice_and_a_link_are_refused
    tests/unit/bundle/test_unpack.py::test_what_a_run_has_not_is_not
run id, experiment and host are plain names of letters, digits and `. _ + @ = -`;
    tests/unit/model/test_identifiers.py::test_a_plan_names_nothing_outside
    tests/unit/bundle/test_hostile.py::test_no_verb_executes_or_copies_what_a_bundle_says
an archive whose manifest lists more than 200 times its size, or more than is free, is refused
before anything is written.
    tests/unit/bundle/test_unpack.py::test_an_archive_that_would_fill_the_disk_is_refused
    tests/unit/bundle/test_unpack.py::test_entries_that_share_their_data_count_each_time
    tests/unit/bundle/test_unpack.py::test_a_size_that_is_none_is_refused
Each file is unpacked up to its listed size and no further;
    tests/unit/bundle/test_unpack.py::test_the_bytes_that_are_unpacked_are_counted_not_those_declared
every text of it is escaped in HTML, SVG and Markdown.
    tests/unit/bundle/test_hostile.py::test_no_verb_executes_or_copies_what_a_bundle_says
    tests/unit/analysis/views/test_html.py::test_code_stands_between_backticks_and_all_is_escaped
A page loads nothing from elsewhere.
    tests/unit/analysis/views/test_report.py::test_the_page_loads_nothing
    tests/site/test_site.py::test_no_page_has_errors_or_external_requests
Every page has a Content-Security-Policy.
    tests/site/test_site.py::test_a_script_that_got_into_a_page_does_not_run
    tests/unit/analysis/views/test_report.py::test_the_page_loads_nothing
A report on one page may run no script at all.
    tests/site/test_site.py::test_a_script_that_got_into_a_page_does_not_run
A page of the site may run the scripts of the site's theme, by hash.
    tests/site/test_site.py::test_a_script_that_got_into_a_page_does_not_run
    tests/site/test_site.py::test_no_page_has_errors_or_external_requests
Styles are not restricted.
    nothing promised
**A definition or a cage** (`*.toml`) is a program: an experiment names commands, and
`pagecage run` starts them.
    nothing promised
Reading, listing and planning a definition starts nothing of it.
    tests/unit/cli/test_known_definitions.py::test_reading_a_definition_starts_nothing_of_it
Before the first run of a definition, its commands are printed with the places where they run.
    tests/unit/cli/test_known_definitions.py::test_a_foreign_definition_needs_a_yes_and_then_is_known
    tests/test_cli_project.py::test_a_foreign_definition_is_not_run_without_a_yes
It runs after a yes on the terminal, or with `--yes`.
    tests/unit/cli/test_known_definitions.py::test_a_terminal_is_asked
    tests/unit/cli/test_known_definitions.py::test_a_foreign_definition_needs_a_yes_and_then_is_known
This does not apply to pagecage's own experiments and to projects that `pagecage init` made on this
machine, so put no files of a stranger into them.
    tests/unit/cli/test_known_definitions.py::test_definitions_of_pagecage_are_known
    tests/unit/cli/test_known_definitions.py::test_definitions_of_ones_own_project_are_known
    tests/test_cli_project.py::test_a_project_of_ones_own_is_not_asked_for
Accepted are the commands, the texts of collectors, scripts and report sections, and the packages.
    tests/unit/cli/test_known_definitions.py::test_a_change_of_what_runs_is_asked_again
    tests/unit/cli/test_known_definitions.py::test_a_change_of_its_files_is_asked_again
Their hash is kept in `~/.local/state/pagecage/known`.
    tests/unit/cli/test_known_definitions.py::test_what_is_accepted_is_kept_for_this_user
A change of them is asked for again.
    tests/unit/cli/test_known_definitions.py::test_a_change_of_what_runs_is_asked_again
    tests/unit/cli/test_known_definitions.py::test_a_change_of_its_files_is_asked_again
Files that `copies` names are not part of the hash, and neither are the cages.
    nothing promised
Look at them too.
    nothing promised
A report section is Python code that runs as you.
    nothing promised
It is executed only if its very text belonged to a run that was accepted on this machine.
    tests/unit/cli/test_known_definitions.py::test_sections_may_be_executed_after_the_first_run
    tests/unit/analysis/views/test_render.py::test_code_that_was_not_accepted_is_text
`pagecage run --resume` runs the trials of plan.json.
    nothing promised
Do not put the run folder of a stranger into `runs/`.
    nothing promised
Collectors and bpftrace scripts run on the host, outside of every cage, and as root where the agent
is root.
    nothing promised
If tracefs is not mounted there, the agent mounts it for the session, readable by root alone, and
unmounts it at the end.
    tests/unit/agent/test_tracing.py::test_a_session_mounts_tracefs_and_unmounts_what_it_mounted
**A file of a customer** (`pagecage cage import`, of `pcprobe` too) is parsed, not run.
    tests/test_cli_bad_inputs.py::test_it_is_one_sentence_and_nothing_is_done
    tests/test_fuzz_readers.py::test_every_importer_reads_or_refuses_mutated_files
YAML is read without tags and without references that grow beyond 10 million values, and files above
64 MiB are refused.
    tests/test_cli_bad_inputs.py::test_it_is_one_sentence_and_nothing_is_done
    tests/test_fuzz_readers.py::test_references_that_grow_without_bound
    tests/unit/importers/test_formats.py::test_a_file_above_the_bound_is_refused
**Any file** of this section, whatever its bytes, is read or refused with one sentence.
    tests/test_fuzz_readers.py::test_every_importer_reads_or_refuses_mutated_files
    tests/test_fuzz_readers.py::test_a_compose_service_and_a_file_of_variables
    tests/test_fuzz_readers.py::test_files_of_a_run_are_read_or_refused
    tests/test_fuzz_readers.py::test_a_baseline_is_read_or_refused
    tests/test_fuzz_readers.py::test_an_image_archive_is_read_or_refused
Nothing is written outside of the folder that was named.
    tests/test_fuzz_readers.py::test_the_unpacker_writes_files_of_a_run_or_refuses
    tests/test_fuzz_readers.py::test_a_file_that_is_written_elsewhere_is_seen
Lines, names and counts in it are bounded, so that no file of the tests, which change one by up to a
few MiB, takes more than 768 MiB of memory.
    tests/test_fuzz_readers.py::test_too_much_memory_is_seen
    tests/test_fuzz_readers.py::test_a_name_that_would_fill_the_memory_is_refused
    tests/test_fuzz_readers.py::test_a_line_without_an_end_is_refused
    tests/unit/model/test_run_files.py::test_a_trace_of_any_length_is_not_read
    tests/unit/analysis/data/test_baseline.py::test_a_baseline_of_any_length_is_not_read
**An image's archive** (`replay --image FILE`) is never given to an engine as it is.
    tests/unit/agent/drivers/test_image_container.py::test_only_the_planned_image_is_loaded_and_under_no_name_of_the_archive
The agent pipes the configuration and the layers of the planned image alone, under a name of
pagecage's own.
    tests/unit/agent/drivers/test_image_container.py::test_only_the_planned_image_is_loaded_and_under_no_name_of_the_archive
    tests/order/test_image.py::test_the_image_is_loaded_once_and_removed_at_the_end
Names in the archive, and its other images, reach no engine.
    tests/unit/agent/drivers/test_image_container.py::test_only_the_planned_image_is_loaded_and_under_no_name_of_the_archive
The image's program does run, with the capabilities that the engine gives every container.
    tests/unit/agent/drivers/test_image_container.py::test_the_container_is_the_customers_but_for_slice_network_and_gate
**A command** for `make replay CMD=...` is evaluated neither by make nor by a shell outside of the
cage.
    tests/unit/cli/test_replay.py::test_make_replay_passes_the_text_on_and_runs_nothing_of_it
    tests/unit/cli/test_replay.py::test_signs_of_a_shell_are_for_a_shell_in_the_cage
`pagecage export` keeps what is known to be harmless: numbers, versions, and the words that
pagecage's own files use.
    tests/unit/bundle/test_redact.py::test_what_stays_is_made_of_known_words_and_numbers
    tests/unit/bundle/test_redact.py::test_what_a_reader_needs_stays
It replaces all else, and prints how much of each kind was kept and replaced.
    tests/unit/bundle/test_redact.py::test_a_run_that_has_all_of_it
    tests/unit/bundle/test_pack.py::test_nothing_tells_where_or_by_whom
    tests/unit/bundle/test_redact.py::test_a_kind_can_be_kept
The kinds are listed in [FORMAT.md](FORMAT.md#bundles).
    tests/unit/bundle/test_redact.py::test_every_kind_can_be_named
A text made of known words stays, whatever it means.
    nothing promised
In a checkout, the files in `experiments/` are pagecage's own, also those that you added.
    nothing promised
`pagecage publish` redacts every run in the same way, and makes its pages from what is left.
    tests/unit/bundle/test_pack.py::test_a_site_tells_neither_where_nor_by_whom
A baseline has neither names nor paths.
    tests/unit/analysis/data/test_baseline.py::test_every_experiment_keeps_its_figures_and_no_names
Values of environment variables are never recorded, only their names.
    tests/test_cli_image.py::test_a_value_of_a_variable_is_nowhere_in_the_plan
    tests/unit/runner/test_container_settings.py::test_a_recorded_command_only_names_variables
    tests/order/test_image.py::test_the_values_of_variables_are_in_no_record_and_in_no_file_afterwards
Those of `--env` are sent to the agent on its standard input.
    tests/order/test_image.py::test_the_values_of_variables_are_in_no_record_and_in_no_file_afterwards
    tests/unit/agent/drivers/test_image_container.py::test_values_of_variables_are_for_one_user_and_not_in_the_plan
They reach the container's engine in a file in memory with mode 0600, which is removed after the
trial.
    tests/order/test_image.py::test_the_values_of_variables_are_in_no_record_and_in_no_file_afterwards
The engine's own description of the container has them while it runs.
    nothing promised
A file of `--env-file` is copied to a host that is not this machine, and removed when the run is
finished.
    tests/unit/runner/test_images.py::test_files_of_a_container_are_carried_to_another_host
    tests/order/test_replay.py::test_files_are_carried_and_put_away
Python packages are installed from files with hashes, Rust crates from a lock file.
    tests/test_security_page.py::test_packages_are_installed_by_hash_and_crates_from_the_lock
    tests/test_linters.py::test_locks_answer_their_requests
The guest's packages come from Debian or Ubuntu and are verified by their keys.
    tests/unit/hosts/vm/test_image.py::test_debians_keyring_is_named_because_mmdebstrap_finds_it_only_with_gpg
    tests/unit/hosts/vm/test_image.py::test_without_it_the_keyring_is_that_of_debians_package_and_is_removed_afterwards
`make sbom` lists the contents of the images as CycloneDX.
    tests/test_containers.py::test_a_bill_of_materials_lists_debians_and_pythons_packages
    tests/test_containers.py::test_the_programs_in_rust_bring_their_crates
`make audit` checks the locked packages with pip-audit and cargo-audit, whose databases come from
the network.
    tests/test_audit.py::test_the_status_tells_what_was_checked
What it could not check, it names, and fails.
    tests/test_audit.py::test_the_status_tells_what_was_checked
A fault that lets a bundle or a customer's file run code, write outside of its directory, or keep a
limit from being checked is a security fault.
    nothing promised
Report it privately to the maintainers before you publish it.
    nothing promised
"""


def rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence of the table with the indented lines below it."""
    for match in re.finditer(r"((?:^\S.*\n)+)((?:^    .*\n)+)", table, re.MULTILINE):
        yield " ".join(match[1].split()), [line.strip() for line in match[2].splitlines()]


_ENDS = re.compile(r"(?<=[.:;]) (?=[A-Z`*])")


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences, items and rows of a page, from its first heading of a section on."""
    for block in page[page.index("\n## ") :].split("\n\n"):
        lines = block.strip().splitlines()
        if lines[0].startswith("| "):
            for line in lines[2:]:
                yield " | ".join(map(str.strip, line.strip("| ").split("|")))
        elif not lines[0].startswith("#"):
            for item in re.split(r"\n(?=- )", block.strip()):
                yield from _ENDS.split(" ".join(item.removeprefix("- ").split()))


TESTS = dict(rows(TABLE))


def test_each_sentence_is_in_the_table_and_no_other() -> None:
    assert list(sentences(PAGE.read_text())) == list(TESTS)


@cache
def names_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def missing(ids: list[str]) -> list[str]:
    """Return the node ids that name no test."""
    parts = [(one, *one.split("::")) for one in ids if one != NOTHING]
    return [
        one for one, path, name in parts if not (ROOT / path).exists() or name not in names_of(path)
    ]


def test_every_promise_has_tests_that_exist() -> None:
    assert {sentence: gone for sentence, ids in TESTS.items() if (gone := missing(ids))} == {}
    assert [sentence for sentence, ids in TESTS.items() if NOTHING in ids and len(ids) > 1] == []


def test_a_new_sentence_and_a_lost_test_are_seen() -> None:
    page = PAGE.read_text().replace("Styles are not restricted.", "Styles are not. Nor is more.")
    assert set(sentences(page)) - set(TESTS) == {"Styles are not.", "Nor is more."}
    own = "tests/test_security_page.py"
    lost = [f"{own}::test_gone", "tests/test_gone.py::test_x"]
    there = f"{own}::test_no_part_listens_on_a_network"
    assert missing([*lost, NOTHING, there]) == lost


_LISTENS = re.compile(
    r"\bAF_INET6?\b|\bINADDR_|TcpListener|UdpSocket|ServerSocket|HTTPServer|socketserver"
    r"|start_server|create_server|hostfwd=(?!tcp:127\.0\.0\.1:)|(?<!127\.0\.)0\.0\.0\.0"
)
SOURCES = ("pagecage", "analysis", "volume", "workloads", "tools", "containers", "ansible")


def test_no_part_listens_on_a_network() -> None:
    """No part that runs on a machine makes a server's socket other than a unix socket."""
    suffixes = (".py", ".rs", ".c", ".h", ".java", ".sh", ".yml", "")
    paths = [path for top in SOURCES for path in files(ROOT / top) if path.suffix in suffixes]
    assert len(paths) > 300
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        for match in _LISTENS.finditer(path.read_text(errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["socket.AF_INET", "TcpListener::bind", "hostfwd=tcp::22-:22", "host='0.0.0.0'"]
)
def test_a_socket_of_the_network_is_seen(text: str) -> None:
    assert _LISTENS.search(text)
    assert not _LISTENS.search("hostfwd=tcp:127.0.0.1:0-:22 AF_UNIX UnixListener")


def test_a_trials_container_is_a_limit_and_no_sandbox() -> None:
    words = options(Container("c", "pagecage-x.slice", ("true",), (), (), None, ()))
    assert {"--cap-add=ALL", "--network=host", "--pid=host"} < set(words)


def test_packages_are_installed_by_hash_and_crates_from_the_lock() -> None:
    """Continued lines count as one."""
    commands = [
        line
        for top in ("tools", "containers", "tests")
        for path in files(ROOT / top)
        if path.suffix in ("", ".sh", ".Containerfile") or path.name == "cargo.py"
        for line in path.read_text(errors="replace").replace("\\\n", " ").splitlines()
        if not line.lstrip().startswith("#")
    ]
    installs = [line for line in commands if re.search(r"\bpip install\b", line)]
    builds = [line for line in commands if re.search(r"(\bcargo (build|rustc|run)|\$rust) ", line)]
    assert len(installs) >= 4
    assert len(builds) >= 3
    by_hash = ("--require-hashes", "--no-index /wheel/")  # the second is made here
    assert [line for line in installs if not any(word in line for word in by_hash)] == []
    assert [line for line in builds if "--locked" not in line] == []
