//! Several processes that use the same file: who pays for loading it, and how much memory they take together.

use crate::arguments::{Plan, Stagger};
use crate::member::Member;
use contract::smaps::Rollup;
use contract::{line, Failure};
use serde_json::{json, Value};
use std::thread;
use std::time::{Duration, Instant};

/// Starts the processes, lets one after the other begin, and prints what they found together.
///
/// # Errors
/// When one of them fails, or the bytes of one do not add up.
pub fn measure_together(plan: &Plan, processes: usize) -> Result<(), Failure> {
    let mut members =
        (0..processes).map(|_| Member::start(plan)).collect::<Result<Vec<Member>, Failure>>()?;
    if !plan.handshake.wait_for_go()? {
        return Ok(());
    }
    let started = Instant::now();
    let ends = begin_one_after_another(plan.stagger, &mut members)?;
    let together = Together { seconds: started.elapsed().as_secs_f64(), memory: memory(&members), ends };
    line::print(&together.sample())?;
    line::print(&together.end())?;
    plan.handshake.wait_for_close()?;
    if together.checksum_ok() == Some(false) {
        let shown = plan.file.display();
        return Err(Failure::Failed(format!("the bytes of {shown} do not add up to what was expected")));
    }
    Ok(())
}

/// Closing lines in the order in which the processes began.
fn begin_one_after_another(stagger: Stagger, members: &mut [Member]) -> Result<Vec<Value>, Failure> {
    match stagger {
        Stagger::Loaded => {
            let one = |member: &mut Member| member.go().and_then(|()| member.end());
            members.iter_mut().map(one).collect()
        }
        Stagger::After(pause) => {
            begin_in_turn(pause, members)?;
            members.iter_mut().map(Member::end).collect()
        }
    }
}

/// What they print stays in their pipes meanwhile: a few hundred bytes each.
fn begin_in_turn(pause: Duration, members: &mut [Member]) -> Result<(), Failure> {
    for (number, member) in members.iter_mut().enumerate() {
        thread::sleep(if number == 0 { Duration::ZERO } else { pause });
        member.go()?;
    }
    Ok(())
}

/// All processes' memory while all of them still have it: proportional and plain.
fn memory(members: &[Member]) -> [Option<u64>; 2] {
    let rollups: Vec<Option<Rollup>> = members.iter().map(|member| Rollup::of(Some(member.pid()))).collect();
    ["Pss", "Rss"]
        .map(|name| rollups.iter().map(|rollup| rollup.as_ref().and_then(|rollup| rollup.bytes(name))).sum())
}

struct Together {
    seconds: f64,
    memory: [Option<u64>; 2],
    ends: Vec<Value>,
}

impl Together {
    fn checksum_ok(&self) -> Option<bool> {
        let each: Option<Vec<bool>> = self.ends.iter().map(|end| end["checksum_ok"].as_bool()).collect();
        each.map(|all| all.into_iter().all(|ok| ok))
    }

    fn sum(&self, key: &str) -> u64 {
        self.ends.iter().filter_map(|end| end[key].as_u64()).sum()
    }

    fn faults(&self, key: &str) -> i64 {
        let threads = self.ends.iter().filter_map(|end| end["threads"].as_array()).flatten();
        threads.filter_map(|thread| thread[key].as_i64()).sum()
    }

    fn sample(&self) -> Value {
        json!({
            "type": "sample",
            "iteration": 0,
            "seconds": self.seconds,
            "bytes": self.sum("bytes"),
            "blocks": self.sum("blocks"),
            "covered_fraction": self.ends[0]["covered_fraction"],
            "checksum": self.ends[0]["checksum"],
            "major_faults": self.faults("major_faults"),
            "minor_faults": self.faults("minor_faults"),
        })
    }

    fn end(&self) -> Value {
        let threads: Vec<&Value> =
            self.ends.iter().filter_map(|end| end["threads"].as_array()).flatten().collect();
        json!({
            "type": "end",
            "seconds": self.seconds,
            "bytes": self.sum("bytes"),
            "blocks": self.sum("blocks"),
            "distinct_bytes": self.ends[0]["distinct_bytes"],
            "covered_fraction": self.ends[0]["covered_fraction"],
            "checksum": self.ends[0]["checksum"],
            "checksum_ok": self.checksum_ok(),
            "threads": threads,
            "setup": self.ends[0]["setup"],
            "processes": self.ends.iter().map(|end| end["response"].clone()).collect::<Vec<Value>>(),
            "response": self.response(),
        })
    }

    fn response(&self) -> Value {
        let loads: Vec<Option<f64>> =
            self.ends.iter().map(|end| end["response"]["prefault_seconds"].as_f64()).collect();
        let first = loads[0];
        let later = middle(&loads[1..]);
        let totals: Vec<Option<f64>> =
            self.ends.iter().map(|end| end["response"]["total_seconds"].as_f64()).collect();
        json!({
            "total_seconds": self.seconds,
            "first_load_seconds": first,
            "later_load_seconds": later,
            "later_load_fraction": first.zip(later).map(|(first, later)| later / first),
            "first_ready_seconds": totals[0],
            "later_ready_seconds": middle(&totals[1..]),
            "pss_sum_bytes": self.memory[0],
            "rss_sum_bytes": self.memory[1],
        })
    }
}

/// The median; none of nothing, or where one is not known.
fn middle(figures: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = figures.iter().copied().collect::<Option<_>>()?;
    known.sort_by(f64::total_cmp);
    let half = known.len() / 2;
    match known.len() {
        0 => None,
        length if length % 2 == 1 => Some(known[half]),
        _ => Some(f64::midpoint(known[half - 1], known[half])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_nothing_or_of_the_unknown_is_not_zero() {
        assert_eq!(middle(&[]), None);
        assert_eq!(middle(&[Some(1.0), None]), None);
        assert_eq!(middle(&[Some(9.0), Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(middle(&[Some(4.0), Some(1.0)]), Some(2.5));
    }
}
