//! Pinning threads to CPUs, so that no figure depends on where the scheduler moved a thread.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// Return the CPUs that this process may use, `sched_getaffinity(2)`; empty if the kernel refuses.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Return the CPU for a thread: from the last one down, because the first one usually serves the
/// interrupts.
#[must_use]
pub fn chosen(allowed: &[usize], thread: usize) -> Option<usize> {
    (!allowed.is_empty()).then(|| allowed[allowed.len() - 1 - thread % allowed.len()])
}

/// Pin the calling thread to this CPU. If the kernel refuses, the thread stays where it is.
pub fn pin_this_thread(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set); // an unpinned thread only makes figures vary more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_cpu() {
        let all = allowed();
        let cpu = chosen(&all, 0).unwrap();
        let left = std::thread::spawn(move || {
            pin_this_thread(cpu);
            allowed()
        });
        assert_eq!(left.join().unwrap(), [cpu]);
    }

    #[test]
    fn threads_go_round_the_cpus() {
        assert_eq!([0, 1, 2].map(|thread| chosen(&[3, 5], thread)), [Some(5), Some(3), Some(5)]);
        assert_eq!(chosen(&[], 0), None);
    }
}
