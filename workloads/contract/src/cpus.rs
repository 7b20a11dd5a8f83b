//! Keeping each thread on one CPU, so that no figure depends on where the scheduler moved it.

use std::mem::size_of;

/// The CPUs that this process may use, `sched_getaffinity(2)`; none where the kernel would not say.
#[must_use]
pub fn allowed() -> Vec<usize> {
    // SAFETY: cpu_set_t is a plain bit set for which all zeros are a value; the call writes at most its size.
    let (known, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0, set)
    };
    let limit = if known { libc::CPU_SETSIZE.unsigned_abs() as usize } else { 0 };
    // SAFETY: every index is below the size of the set.
    (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// The CPU for a thread: from the last one down, because the first one usually serves the interrupts.
#[must_use]
pub fn chosen(allowed: &[usize], thread: usize) -> Option<usize> {
    (!allowed.is_empty()).then(|| allowed[allowed.len() - 1 - thread % allowed.len()])
}

/// Keeps the calling thread on this CPU where the kernel lets it; elsewhere it stays where it is, as any program's
/// threads would.
pub fn pin_this_thread(cpu: usize) {
    // SAFETY: the set is built here and only read by the call; `cpu` came from a set of the same size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
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
