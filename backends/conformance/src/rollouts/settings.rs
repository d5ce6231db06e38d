//! What instances are made with beside their variables, as far as specs say so.

use rollhook_core::{
    app::Settings,
    configuration::Configuration,
    deploy::Revision,
    ports::{Applied, CheckedSettings, Purpose, RolloutSpec, SettingsRequest},
};

use super::{Bench, OURS};
use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
    samples,
};

impl Bench<'_> {
    /// Returns what all instances that run are made with; there are some.
    async fn made_with(&self) -> Can<String> {
        let mut all = self.cluster.made_with(&self.app, &self.target).await?;
        all.dedup();
        assert_eq!(all.len(), 1, "all instances are made with the same: {all:?}");
        Ok(all.remove(0))
    }

    fn with_settings(&self, revision: u64, sample: Sample, configuration: &Configuration) -> Can<RolloutSpec> {
        Ok(self.order(OURS, revision, sample)?.with(|spec| spec.configuration = Some(configuration.clone())))
    }

    async fn check(&self, settings: &Settings) -> CheckedSettings {
        let (app, target) = (self.app.clone(), self.target.clone());
        self.rollouts.check_settings(&SettingsRequest { app, target, settings: settings.clone() }).await.unwrap()
    }
}

fn configuration(number: u128, variables: &[(&str, &str)], settings: &Settings) -> Configuration {
    samples::configuration(number, variables).with(|configuration| configuration.variables.settings = settings.clone())
}

/// Returns a target and two settings that its instances can be made with.
async fn with_settings<'a>(cluster: &'a dyn Clusters, name: &str) -> Can<(Bench<'a>, [Settings; 2])> {
    let none = Lack::NotApplicable("the driver takes no settings");
    let settings = cluster.made_with_settings().ok_or(none)?;
    Ok((Bench::new(cluster, name).await, settings))
}

/// The instances of a deploy are made with the settings of its configuration, those of a restore and of a rollback with the ones
/// before, and without any with what others gave.
pub async fn settings_come_back_with_their_configuration(cluster: &dyn Clusters) -> Can {
    let (bench, [one, other]) = with_settings(cluster, "settings").await?;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let plain = bench.made_with().await?;
    let before = bench.fingerprint().await;
    for settings in [&one, &other] {
        assert!(
            matches!(bench.check(settings).await, CheckedSettings::Valid(_)),
            "the harness says that they are valid"
        );
        let wrong: Settings = settings.keys().map(|name| (name.clone(), true.into())).collect();
        assert!(
            matches!(bench.check(&wrong).await, CheckedSettings::Invalid(_)),
            "settings of another type are refused"
        );
    }
    assert_eq!(bench.fingerprint().await, before, "the check has no effect");

    let first = configuration(1, &[("A", "kept")], &one);
    bench.roll_out(&bench.with_settings(2, Sample::Good, &first)?).await;
    let made = bench.made_with().await?;
    assert_ne!(made, plain, "the instances are made with the settings");
    let with_variable = configuration(2, &[("A", "one")], &one);
    bench.roll_out(&bench.with_settings(3, Sample::Another, &with_variable)?).await;
    assert_eq!(bench.made_with().await?, made, "settings stay beside variables");

    let second = configuration(3, &[("A", "kept")], &other);
    let failed = bench.with_settings(4, Sample::Crashing, &second)?;
    assert_eq!(bench.apply(&failed).await, Applied::Done);
    bench.until(&failed, "seen to fail", |seen| seen.failure.is_some()).await;
    let restore = bench.restore(5, 3, Sample::Another)?.with(|spec| spec.configuration = Some(with_variable.clone()));
    bench.roll_out(&restore).await;
    assert_eq!(bench.made_with().await?, made, "the restore brings the settings back");

    bench.roll_out(&bench.with_settings(6, Sample::Good, &second)?).await;
    let changed = bench.made_with().await?;
    assert!(changed != made && changed != plain, "a change of settings takes effect");
    let restore = bench.restore(7, 3, Sample::Another)?.with(|spec| spec.configuration = Some(with_variable.clone()));
    bench.roll_out(&restore).await;
    assert_eq!(bench.made_with().await?, made, "the restore brings the settings back");
    let purpose = Purpose::Rollback { to: Revision::FIRST };
    bench.roll_out(&bench.order(OURS, 8, Sample::Good)?.with(|spec| spec.purpose = purpose)).await;
    assert_eq!(bench.made_with().await?, plain, "without settings it is as others gave it");
    Ok(())
}

/// Settings of one app are none of another.
pub async fn settings_are_of_their_own_app(cluster: &dyn Clusters) -> Can {
    let (theirs, [one, other]) = with_settings(cluster, "settings-theirs").await?;
    theirs.roll_out(&theirs.with_settings(1, Sample::Good, &configuration(1, &[("A", "kept")], &other))?).await;
    let ours = Bench::new(cluster, "settings-ours").await;
    ours.roll_out(&ours.with_settings(1, Sample::Good, &configuration(2, &[("A", "kept")], &one))?).await;
    assert_ne!(ours.made_with().await?, theirs.made_with().await?, "the instances of each app have its own settings");
    ours.roll_out(&ours.with_settings(2, Sample::Good, &configuration(3, &[("A", "kept")], &other))?).await;
    assert_eq!(ours.made_with().await?, theirs.made_with().await?, "the same settings make the same");
    Ok(())
}
