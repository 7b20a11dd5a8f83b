"""Words that pagecage's own files use: its keys, messages, workloads and experiments.

They name nothing of the machine or of its user. Cages are left out, because those that were saved
from a customer's figures are named after the customer.
"""

from __future__ import annotations

import functools
import re

from pagecage.checkout import TOP

_FOLDERS = {
    "pagecage": {".py"},
    "analysis": {".py"},
    "cgroups/catalogue": {".toml", ".csv"},
    "experiments": {".toml", ".csv", ".py", ""},
    "workloads": {".rs", ".c", ".h", ".py"},
    "volume": {".rs"},
}
"""Suffixes of the files that are read, by folder."""
_COUNTERS = """
aborting actually administrator allocstall_device allocstall_dma allocstall_dma32
allocstall_movable allocstall_normal announcing anonpages anybody aqu-sz areq-sz attachpoint
autovacuum avail avg300 avg60 avgqu-sz avgrq-sz awk balloon balloon_deflate balloon_inflate
balloon_migrate bash bdscd bfq bite bounce bread bwrtn cat checkpoint chk commitlimit committer
compact_isolated cow_ksm ctx dareq-sz dbytes dc_sec dios direct_map_level2_collapses
direct_map_level2_splits direct_map_level3_collapses direct_map_level3_splits directmap1g
directmap2m directmap4k disguises dkb drop_slab drqm dtps epyc eta everybody fatal filehugepages
fio_slat git granted grep groupid hardwarecorrupted htlb_buddy_alloc_fail
htlb_buddy_alloc_success hugepages_rsvd hugepages_surp idea impossible io_kbytes ipv4 java
judging kernelstack kreclaimable ksm_swpin_copy kswapd_high_wmark_hit_quickly kswapd_inodesteal
kswapd_low_wmark_hit_quickly launcher lc_ctype leaving memused memused-percent mends midst
mlocked neighbour night node nov nr_balloon_pages nr_bounce nr_file_pmdmapped
nr_foll_pin_acquired nr_foll_pin_released nr_free_cma nr_isolated_anon nr_isolated_file
nr_kernel_misc_reclaimable nr_memmap_boot_pages nr_memmap_pages nr_shmem_pmdmapped
nr_slab_reclaimable nr_slab_unreclaimable nr_swapcached nr_unaccepted nr_unevictable
nr_zone_active_anon nr_zone_active_file nr_zone_inactive_anon nr_zone_inactive_file
nr_zone_unevictable nr_zone_write_pending nr_zspages numa_foreign numa_hint_faults
numa_hint_faults_local numa_hit numa_huge_pte_updates numa_interleave numa_local numa_miss
numa_other numa_pages_migrated numa_pte_updates oldpwd oneself pageoutrun pagetables pdb percpu
perl pgactivate pgalloc_device pgalloc_dma pgalloc_dma32 pgalloc_movable pgalloc_normal
pgdeactivate pginodesteal pglazyfree pglazyfreed pgmigrate_fail pgmigrate_success
pgpromote_candidate_nrl pgrefill pgreuse pgrotated pgskip_device pgskip_dma pgskip_dma32
pgskip_movable pgskip_normal prime processed pswpin pswpout python python3 quicker rareq-sz rdma
recycled redo remembered replication roomy rrqm rtps sat saturation saying sec_pagetables
secpagetables sed sh shlvl shmemhugepages shutting simple slab slab_reclaimable
slab_unreclaimable slabs_scanned sun sunreclaim swapcached swapfree swpin_zero swpout_zero
sysname tar telling terminating think thp_split_pud thp_swpout thp_swpout_fallback
thp_underused_split_page thrown timezone total_swapcached total_unevictable tpc twelve twin
twins tz ult unaccepted unevictable unevictable_pgs_cleared unevictable_pgs_culled
unevictable_pgs_mlocked unevictable_pgs_munlocked unevictable_pgs_rescued
unevictable_pgs_scanned unevictable_pgs_stranded vmalloc vmallocchunk vmalloctotal vmallocused
wareq-sz workingset_activate_anon workingset_activate_file workingset_nodereclaim writebacktmp
wrqm wtps xeon zone_reclaim_failed zone_reclaim_success zswap zswapped zswpin zswpout zswpwb
"""
"""Words that no file of pagecage has: counters of the kernel (/proc/vmstat, /proc/meminfo,
memory.stat), of sysstat and of fio, common programs, and words of older definitions.
"""
_WORD = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_MOST_DIGITS = 8


@functools.cache
def vocabulary() -> frozenset[str]:
    """Return the words, and the words that these are composed of, in lower case."""
    words = set(_COUNTERS.split())
    for folder, suffixes in _FOLDERS.items():
        for path in (TOP / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file() and "target" not in path.parts:
                words.update(_WORD.findall(path.read_text(errors="replace").lower()))
    words |= {part for word in words for part in _PART.findall(word)}
    return frozenset(word for word in words if sum(map(str.isdigit, word)) < _MOST_DIGITS)
