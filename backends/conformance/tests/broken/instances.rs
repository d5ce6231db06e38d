//! Logs of instances that break a promise, and the case that notices.

use async_trait::async_trait;
use rollhook_conformance::instances::{
    instance_log_goes_on_behind_a_position, instance_log_has_what_was_written, instance_log_of_unknown_is_none,
    instances_are_those_of_the_target, previous_is_the_life_before,
};
use rollhook_core::{
    Result,
    app::App,
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LogQuery, TargetInstance},
};

use crate::{
    driver::{Broken, Promise},
    notices,
};

#[async_trait]
impl InstanceLogs for Broken {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        let mut found = self.cluster.instances(app).await?;
        if self.promise == Promise::InstancesHaveRevisions {
            found.iter_mut().for_each(|instance| instance.revision = None);
        }
        Ok(found)
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        let present = LogQuery { previous: false, ..*query };
        let query = if self.promise == Promise::PreviousIsBefore { &present } else { query };
        let Some(mut part) = self.cluster.read(app, instance, query).await? else {
            let empty = InstanceLogPart { lines: Vec::new(), next: query.after.unwrap_or_default(), has_more: false };
            return Ok((self.promise == Promise::UnknownHasNoLog).then_some(empty));
        };
        match (self.promise, query.after) {
            (Promise::LogIsOldestFirst, None) => part.lines.reverse(),
            // A position that has the time alone: lines of the same time are taken for read, or are read again.
            (Promise::PositionLosesNothing, Some(_)) => part.next.lines = u32::MAX,
            (Promise::PositionRepeatsNothing, Some(after)) if part.next > after && !part.has_more => {
                part.next.lines -= 1;
                let again = self.cluster.read(app, instance, &query.after(part.next)).await?;
                part.lines.extend(again.map(|part| part.lines).unwrap_or_default());
                part.lines.truncate(query.lines);
            }
            _ => {}
        }
        Ok(Some(part))
    }
}

#[test]
fn broken_logs_of_instances_are_noticed() {
    notices(Promise::InstancesHaveRevisions, instances_are_those_of_the_target, "not ready within a minute");
    notices(Promise::LogIsOldestFirst, instance_log_has_what_was_written, "oldest first");
    notices(Promise::PositionLosesNothing, instance_log_goes_on_behind_a_position, "lines are missing, or repeated");
    notices(Promise::PositionRepeatsNothing, instance_log_goes_on_behind_a_position, "lines are missing, or repeated");
    notices(Promise::PreviousIsBefore, previous_is_the_life_before, "was never restarted");
    notices(Promise::UnknownHasNoLog, instance_log_of_unknown_is_none, "left:");
}
