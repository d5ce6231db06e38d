//! The variables that specs bring to the environment of instances.

use rollhook_core::{
    configuration::Configuration,
    deploy::{Reason, Revision},
    ports::{Applied, Phase, Purpose, RolloutSpec},
};

use super::{Bench, OURS};
use crate::{
    clusters::{Clusters, Environment, Sample},
    report::{Can, Lack},
    samples,
};

/// A value of every kind of character that an environment can hold.
const ODD: &str = "one\ntwo\t\"three\" 'four' $HOME ${HOME} %s \\ = ä \u{1f600}";

impl Bench<'_> {
    fn configured(&self, revision: u64, sample: Sample, configuration: &Configuration) -> Can<RolloutSpec> {
        Ok(self.order(OURS, revision, sample)?.with(|spec| spec.configuration = Some(configuration.clone())))
    }

    /// Returns the environments of the instances that run; there are some.
    async fn environments(&self) -> Can<Vec<Environment>> {
        let environments = self.cluster.environments(&self.app, &self.target).await?;
        assert!(!environments.is_empty(), "instances run");
        Ok(environments)
    }

    /// Asserts that each instance has just these of the variables that the case knows.
    async fn assert_has(&self, wanted: &[(&str, Option<&str>)]) -> Can {
        for environment in self.environments().await? {
            for (name, value) in wanted {
                assert_eq!(environment.get(*name).map(String::as_str), *value, "the variable {name}");
            }
        }
        Ok(())
    }
}

/// Returns a configuration as that of the deploy which brings it.
fn new(configuration: Configuration) -> Configuration {
    configuration.with(|configuration| configuration.is_new = true)
}

/// Returns a target whose environment can be set.
async fn configurable<'a>(cluster: &'a dyn Clusters, name: &str) -> Can<Bench<'a>> {
    let bench = Bench::new(cluster, name).await;
    let Some(why) = bench.rollouts.unconfigurable(&bench.target) else { return Ok(bench) };
    assert!(!why.is_empty(), "a person is told why");
    Err(Lack::NotApplicable("the driver sets no variables"))
}

/// The variables of a deploy are in the environment of its instances, those of the one before are not, and what others have
/// set stays.
pub async fn apply_sets_the_variables(cluster: &dyn Clusters) -> Can {
    let bench = configurable(cluster, "variables").await?;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    cluster.set_variable(&bench.app, &bench.target, "THEIRS", "stays").await?;

    let first = samples::configuration(1, &[("A", "one"), ("ODD", ODD), ("EMPTY", "")]);
    let spec = bench.configured(2, Sample::Good, &first)?;
    bench.roll_out(&spec).await;
    let wanted = [("A", Some("one")), ("ODD", Some(ODD)), ("EMPTY", Some("")), ("THEIRS", Some("stays"))];
    bench.assert_has(&wanted).await?;
    let before = bench.instances().await?;
    assert_eq!(bench.apply(&spec).await, Applied::Done);
    assert_eq!(super::ids(&bench.instances().await?), super::ids(&before), "a repeated deploy restarts nothing");

    let second = samples::configuration(2, &[("A", "two"), ("B", "new")]);
    bench.roll_out(&bench.configured(3, Sample::Another, &second)?).await;
    let wanted = [("A", Some("two")), ("B", Some("new")), ("ODD", None), ("EMPTY", None), ("THEIRS", Some("stays"))];
    bench.assert_has(&wanted).await?;
    bench.roll_out(&bench.configured(4, Sample::Good, &second)?).await;
    bench.assert_has(&wanted).await?;
    // As a rollback to a version from before the first one.
    bench.roll_out(&bench.order(OURS, 5, Sample::Another)?).await;
    bench.assert_has(&[("A", None), ("B", None), ("THEIRS", Some("stays"))]).await
}

/// The restore of a deploy with other variables brings the ones before back, to whatever runs.
pub async fn restore_brings_the_variables_back(cluster: &dyn Clusters) -> Can {
    let bench = configurable(cluster, "variables-restore").await?;
    let good = samples::configuration(1, &[("A", "good")]);
    bench.roll_out(&bench.configured(1, Sample::Good, &good)?).await;
    let wanted = [("A", Some("good")), ("B", None)];
    bench.assert_has(&wanted).await?;
    let bad = samples::configuration(2, &[("A", "bad"), ("B", "new")]);
    for (revision, sample) in [(2, Sample::Missing), (4, Sample::Crashing), (6, Sample::Good)] {
        let failed = bench.configured(revision, sample, &bad)?;
        assert_eq!(bench.apply(&failed).await, Applied::Done);
        if sample == Sample::Good {
            bench.until_complete(&failed).await;
        } else {
            bench.until(&failed, "seen to fail", |seen| seen.failure.is_some()).await;
        }
        let to = if revision == 2 { 1 } else { revision - 1 };
        let restore = bench.restore(revision + 1, to, Sample::Good)?;
        let restore = restore.with(|spec| spec.configuration = Some(good.clone()));
        bench.roll_out(&restore).await;
        bench.assert_has(&wanted).await?;
    }
    Ok(())
}

/// A variable that others have set as well would be theirs or ours by chance: it is refused.
pub async fn variable_of_another_is_refused(cluster: &dyn Clusters) -> Can {
    let bench = configurable(cluster, "variables-conflict").await?;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    cluster.set_variable(&bench.app, &bench.target, "THEIRS", "stays").await?;
    let before = bench.fingerprint().await;
    let ours = new(samples::configuration(1, &[("THEIRS", "ours")]));
    let spec = bench.configured(2, Sample::Good, &ours)?;
    let Applied::Refused { reason, message } = bench.apply(&spec).await else { panic!("both have set it") };
    assert_eq!(reason.as_str(), Reason::CONFIGURATION_CONFLICT);
    assert!(message.contains("THEIRS") && !message.contains("ours"), "{message}");
    assert_eq!(bench.fingerprint().await, before, "nothing was changed");
    Ok(())
}

/// A variable that others have set since its own configuration was brought keeps neither a deploy nor a return from being made:
/// the value of the others stays, and the history says so.
pub async fn variable_of_another_refuses_no_return(cluster: &dyn Clusters) -> Can {
    let bench = configurable(cluster, "variables-return").await?;
    let ours = samples::configuration(1, &[("OWN", "ours"), ("SHARED", "ours")]);
    bench.roll_out(&bench.configured(1, Sample::Good, &new(ours.clone()))?).await;
    bench.assert_has(&[("OWN", Some("ours")), ("SHARED", Some("ours"))]).await?;
    cluster.set_variable(&bench.app, &bench.target, "SHARED", "theirs").await?;
    let restore = bench.restore(4, 2, Sample::Another)?.with(|spec| spec.configuration = Some(ours.clone()));
    let specs = [
        bench.configured(2, Sample::Another, &ours)?,
        bench.configured(3, Sample::Good, &ours)?.with(|spec| spec.purpose = Purpose::Rollback { to: Revision::FIRST }),
        restore,
    ];
    for spec in specs {
        assert_eq!(bench.apply(&spec).await, Applied::Done, "{:?}", spec.purpose);
        let Phase::Complete { note, .. } = bench.until_complete(&spec).await.phase else { panic!("not complete") };
        let note = note.expect("the history says whose value it is");
        assert!(note.contains("SHARED") && !note.contains("OWN") && !note.contains("theirs"), "{note}");
        bench.assert_has(&[("OWN", Some("ours")), ("SHARED", Some("theirs"))]).await?;
    }
    let other = new(samples::configuration(2, &[("SHARED", "other")]));
    let refused = bench.apply(&bench.configured(5, Sample::Good, &other)?).await;
    super::assert_refused(&refused, Reason::CONFIGURATION_CONFLICT);
    Ok(())
}
