//! Logs of builds: many who follow one cost the cluster one reading.

use std::{io::Write, time::Duration};

use futures_util::future::{join, join_all};
use rollhook_core::ports::{BuildTrigger, DeployId};

use crate::{
    actor::digit,
    harness::{ended, order, start, test, until},
};

/// Follows a log until it ends so.
async fn follow(builds: &dyn BuildTrigger, build: DeployId, end: &str) -> String {
    let mut log = Vec::new();
    for _ in 0..600 {
        log.extend(builds.log(build, log.len() as u64).await.unwrap().unwrap());
        if log.ends_with(end.as_bytes()) {
            return String::from_utf8(log).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the log is not complete: {}", String::from_utf8_lossy(&log));
}

#[test]
fn all_who_follow_a_build_share_one_reading_of_its_log() {
    test("all_who_follow_a_build_share_one_reading_of_its_log", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::HANGS);
        start(&builds, &order).await;
        until("the builder writes", async || builds.log(order.id, 0).await.unwrap().unwrap().ends_with(b"step 1\n"))
            .await;
        let pod = ground.active().await.remove(0).metadata.name.unwrap();
        let file = ground.bed.state.join("logs").join(&ground.bed.namespace).join(pod).join("build");
        let follows = join_all((0..50).map(|_| follow(&builds, order.id, "the end\n")));
        let writes = async {
            for line in 0..20 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let mut log = std::fs::File::options().append(true).open(&file).unwrap();
                writeln!(log, "line {line}").unwrap();
            }
            std::fs::File::options().append(true).open(&file).unwrap().write_all(b"the end\n").unwrap();
        };
        let (logs, ()) = join(follows, writes).await;
        assert!(logs.iter().all(|log| *log == logs[0]) && logs[0].contains("fetched\nstep 1\nline 0\n"), "{logs:?}");
        let requests = std::fs::read_to_string(file.with_file_name("build.requests")).unwrap();
        assert!(requests.lines().count() == 1 && requests.contains("follow=true"), "{requests}");
        builds.cancel(order.id).await.unwrap();
        ended(&builds, &order).await;
    });
}
