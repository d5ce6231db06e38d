//! Limits the memory and the files of git: a server chooses how much it answers, and git keeps it.

use std::{fs, sync::Once};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Limits the memory of a process that has just begun, and of each process that it starts or has started by now, in bytes.
pub fn limit_memory(process: Option<u32>, most: u64) {
    limit_all(process, Resource::Data, most);
}

/// Limits the size of each file that such processes write, in bytes.
pub(crate) fn limit_files(process: Option<u32>, most: u64) {
    limit_all(process, Resource::Fsize, most);
}

fn limit_all(process: Option<u32>, resource: Resource, most: u64) {
    let Some(pid) = process.and_then(|id| i32::try_from(id).ok()) else { return };
    let most = getrlimit(resource).maximum.map_or(most, |own| own.min(most));
    // On a busy machine git has its helpers before it has its limit. What a process starts after it was limited is limited
    // as well, so that those are missed by no pass from the top.
    let mut unlimited = vec![pid];
    while let Some(pid) = unlimited.pop() {
        limit(pid, resource, most);
        unlimited.extend(children(pid));
    }
}

fn limit(pid: i32, resource: Resource, most: u64) {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    // A process that has ended already needs no limit.
    if let Err(error) = prlimit(Pid::from_raw(pid), resource, limit) {
        static WARNED: Once = Once::new();
        tracing::debug!(%error, "limiting git failed");
        WARNED.call_once(|| {
            tracing::warn!(
                %error,
                "the memory and the files of git cannot be limited: allow the system call prlimit64 to this service"
            );
        });
    }
}

/// Returns the processes that a process has started and that have not ended; none once it has ended itself.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    listed.flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    /// Returns the processes below this one, those below them included.
    fn below(pid: i32) -> Vec<i32> {
        children(pid).into_iter().flat_map(|child| [vec![child], below(child)].concat()).collect()
    }

    #[test]
    fn processes_that_were_started_before_the_limit_have_it_too() {
        let script = "sh -c 'sleep 60 & echo; wait' & sh -c 'sleep 60 & echo; wait' & wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        // Once both have said so, each has its own.
        let said = BufReader::new(shell.stdout.take().unwrap()).lines();
        assert_eq!(said.take(2).filter(Result::is_ok).count(), 2);
        let pid = i32::try_from(shell.id()).unwrap();
        limit_memory(Some(shell.id()), 32 << 20);
        let all = [vec![pid], below(pid)].concat();
        let limits = all.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap());
        let data: Vec<String> = limits
            .map(|limits| limits.lines().find(|line| line.starts_with("Max data size")).unwrap_or_default().to_owned())
            .collect();
        for pid in all.iter().rev().filter_map(|pid| Pid::from_raw(*pid)) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(all.len(), 5, "the shell, two below it, and one below each");
        assert!(data.iter().all(|line| line.split_whitespace().nth(3) == Some("33554432")), "{data:?}");
    }
}
