//! Logs of an app's instances.

use std::{collections::BTreeMap, time::Duration};

use rollhook_api::{
    Instance, InstanceLog, InstanceLogLine, Kind,
    operations::{InstanceLogQuery, InstancesQuery, Lines, ListInstances, ReadInstanceLog},
    terminal::plain,
};
use rollhook_core::{
    app::AppId,
    instance::InstanceName,
    ports::{LOG_LINES_MAX, LogPosition},
    text::escaped,
};

use super::Session;
use crate::{
    args,
    exit::{CliError, Exit},
    output::{message, print_to_reader},
};

/// The pause between two readings of logs that are being written.
const PAUSE: Duration = Duration::from_secs(1);
/// The most parts of one instance's log that are read in a row.
const IN_A_ROW: usize = 10;

pub(crate) async fn logs(session: &Session<'_>, args: &args::Logs) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let workload = args.workload.as_deref();
    let mut reading = Reading { session, id, workload, only: args.instance.as_ref(), positions: BTreeMap::new() };
    let instances = reading.instances().await?;
    if instances.is_empty() && !args.follow {
        let all = Reading { session, id, workload, only: None, positions: BTreeMap::new() }.instances().await?;
        return Err(none(id, workload, args.instance.as_ref(), &all));
    }
    let mut lines = Vec::new();
    for instance in &instances {
        let query = InstanceLogQuery {
            previous: args.previous.then_some(true),
            limit: Some(Lines::new(args.tail.into())),
            after: None,
        };
        reading.read(instance, query, &mut lines).await?;
    }
    let is_named = reading.only.is_none() && (args.follow || instances.len() > 1);
    let mut names = Names { is_named, width: 0 };
    if lines.is_empty() && !args.follow {
        message(if args.previous { "no instance was restarted" } else { "nothing was logged yet" });
    }
    let mut has_reader = names.print(&instances, lines)?;
    let mut is_away = false;
    while args.follow && has_reader {
        tokio::time::sleep(PAUSE).await;
        let mut lines = Vec::new();
        let (instances, outcome) = reading.go_on(&mut lines).await;
        has_reader = names.print(&instances, lines)?;
        match outcome {
            Err(error) if is_passing(&error) => {
                if !is_away {
                    error.lines().iter().for_each(|line| message(&format!("{line} (trying again)")));
                }
                is_away = true;
            }
            outcome => {
                outcome?;
                is_away = false;
            }
        }
    }
    Ok(())
}

fn none(id: &AppId, workload: Option<&str>, only: Option<&InstanceName>, all: &[Instance]) -> CliError {
    let of_workload = workload.map(|workload| format!(" of {}", escaped(workload))).unwrap_or_default();
    let names = all.iter().map(|instance| instance.name.to_string()).collect::<Vec<_>>().join(", ");
    CliError::Other(match only {
        Some(name) if !names.is_empty() => format!("{id} has no instance {name}{of_workload}; it has: {names}."),
        Some(_) | None => format!("{id} has no instances{of_workload}: nothing was started yet, or all are gone."),
    })
}

/// Returns whether the failure may pass by itself: the server, the store or the cluster is away, or there were too many calls.
fn is_passing(error: &CliError) -> bool {
    error.exit() == Exit::Unreachable || error.is(Kind::RateLimited)
}

/// The places up to which logs were read.
struct Reading<'a> {
    session: &'a Session<'a>,
    id: &'a AppId,
    workload: Option<&'a str>,
    only: Option<&'a InstanceName>,
    /// By the instances' ids.
    positions: BTreeMap<InstanceName, LogPosition>,
}

/// A line, and the place of its instance among those that are read.
type Line = (InstanceName, InstanceLogLine);

impl Reading<'_> {
    async fn instances(&self) -> Result<Vec<Instance>, CliError> {
        let query = InstancesQuery { workload: self.workload.map(str::to_owned) };
        let mut found = self.session.api.call(ListInstances, self.id, query).await?.instances;
        found.retain(|instance| self.only.is_none_or(|only| instance.name == *only || instance.id == *only));
        Ok(found)
    }

    /// Reads a part, and notes where the next one begins. Returns whether more is there already. An instance that is gone
    /// meanwhile has no more lines.
    async fn read(
        &mut self,
        instance: &Instance,
        query: InstanceLogQuery,
        lines: &mut Vec<Line>,
    ) -> Result<bool, CliError> {
        let subject = (self.id.clone(), instance.id.clone());
        let part = match self.session.api.call(ReadInstanceLog, &subject, query).await {
            Err(error) if error.is(Kind::NoSuchInstance) => InstanceLog::default(),
            part => part?,
        };
        if !part.next.is_empty() {
            self.positions.insert(instance.id.clone(), part.position());
        }
        lines.extend(part.lines.into_iter().map(|line| (instance.id.clone(), line)));
        Ok(part.more)
    }

    /// Reads what was written since, of new instances all. Returns the instances, as far as it got.
    async fn go_on(&mut self, lines: &mut Vec<Line>) -> (Vec<Instance>, Result<(), CliError>) {
        let instances = match self.instances().await {
            Ok(instances) => instances,
            Err(error) => return (Vec::new(), Err(error)),
        };
        self.positions.retain(|id, _| instances.iter().any(|instance| instance.id == *id));
        for instance in &instances {
            for _ in 0..IN_A_ROW {
                let after = self.positions.get(&instance.id).copied().unwrap_or(LogPosition::START);
                let limit = Some(Lines::new(LOG_LINES_MAX));
                let query = InstanceLogQuery { previous: None, limit, after: Some(after) };
                match self.read(instance, query, lines).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return (instances, Err(error)),
                }
            }
        }
        (instances, Ok(()))
    }
}

/// How lines name their instance.
struct Names {
    is_named: bool,
    /// The width of the longest name so far.
    width: usize,
}

impl Names {
    /// Prints the lines in the order of their times. Returns whether somebody reads them.
    fn print(&mut self, instances: &[Instance], lines: Vec<Line>) -> Result<bool, CliError> {
        let text = self.text(instances, lines);
        if text.is_empty() { Ok(true) } else { print_to_reader(&text) }
    }

    fn text(&mut self, instances: &[Instance], mut lines: Vec<Line>) -> String {
        lines.sort_by_key(|(_, line)| line.at);
        let longest = instances.iter().map(|instance| instance.name.as_str().len()).max();
        self.width = self.width.max(longest.unwrap_or(0));
        let line = |(id, line): (InstanceName, InstanceLogLine)| {
            // A log has text of strangers.
            let text = plain(&line.text);
            let named = instances.iter().find(|instance| instance.id == id).filter(|_| self.is_named);
            named.map_or(format!("{text}\n"), |instance| {
                format!("{:width$} | {text}\n", instance.name.as_str(), width = self.width)
            })
        };
        lines.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;

    use super::*;

    #[test]
    fn lines_name_their_instance_and_have_no_control_characters() {
        let instance = |name: &str| Instance {
            name: name.parse().unwrap(),
            id: name.parse().unwrap(),
            revision: None,
            state: String::new(),
            ready: true,
            restarts: 0,
            workload: None,
        };
        let line = |name: &str, at, text: &str| {
            (name.parse().unwrap(), InstanceLogLine { at: Timestamp::from_millis(at), text: text.to_owned() })
        };
        let instances = [instance("web-1"), instance("web-10")];
        let lines = vec![line("web-1", 3, "c\u{1b}[2J\u{7}"), line("web-1", 4, "d"), line("web-10", 1, "a")];
        let named = Names { is_named: true, width: 0 }.text(&instances, lines.clone());
        assert_eq!(named, "web-10 | a\nweb-1  | c\\u{7}\nweb-1  | d\n");
        assert_eq!(Names { is_named: false, width: 0 }.text(&instances, lines), "a\nc\\u{7}\nd\n");
    }
}
