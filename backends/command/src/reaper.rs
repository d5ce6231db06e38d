//! Kills the processes of a build, which are found by the build's number in their environment.

use std::{fs, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::environment::MARKER;

/// The number of attempts to kill all; each kills the processes that the one before missed.
const ATTEMPTS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);

/// Kills all processes of a build, and returns once they are gone.
///
/// `group`: the build's process group, whose leader has ended and was waited for.
pub(crate) async fn end(run: &str, group: Option<u32>) {
    for _ in 0..ATTEMPTS {
        let wanted = run.to_owned();
        let found = tokio::task::spawn_blocking(move || find(&wanted, group)).await.unwrap_or_default();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // The process may be gone by now.
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(BETWEEN).await;
    }
    tracing::warn!(run, "killing the processes of a build failed");
}

fn find(run: &str, group: Option<u32>) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let wanted = format!("{MARKER}={run}");
    // The group's number is free for another one once its leader and all members are gone; if a process has that number
    // again, the group is not the build's any more.
    let group = group.filter(|group| fs::metadata(format!("/proc/{group}")).is_err());
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| carries(*pid, &wanted) || (group.is_some() && group_of(*pid) == group))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Returns whether the process has this in its environment; `false` for processes of other users, which cannot be read.
fn carries(pid: i32, wanted: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// Returns the process's group; `None` for a zombie.
fn group_of(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = fields.next()? == "Z";
    let group = fields.nth(1)?.parse().ok()?;
    (!ended).then_some(group)
}
