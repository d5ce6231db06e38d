//! A reading of the repository that an app follows: each tag with its place, and the outcome.

use std::time::Duration;

use crate::{
    action::Action,
    deploy::Deploy,
    engine::following::{self as decision, Standing},
    follow::{Follow, Followed, Unfollowed},
    image::{ImageRef, Tag},
    request::{Field, Refusal},
    service::{
        Authorized, Deployer, Outcome,
        drive::following::{Reading, read},
        read::image::unread,
    },
};

/// The most tags that are listed.
const LISTED_MAX: usize = 200;

/// A reading of the repository that an app follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The rule.
    pub rule: Follow,
    /// The repository, without a tag.
    pub repository: ImageRef,
    /// The interval of polls.
    pub every: Duration,
    /// The image that was decided on last; `None`: nothing yet, or no tag was followed.
    pub decided: Option<ImageRef>,
    /// The newest image now.
    pub newest: Option<ImageRef>,
    /// The outcome for that image.
    pub standing: Standing,
    /// The tags, those that the rule follows first, the newest of them before the others.
    pub tags: Vec<ListedTag>,
    /// The number of tags that are not listed, beside those of signatures.
    pub left_off: usize,
}

/// A tag of a repository that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTag {
    /// The tag.
    pub tag: Tag,
    /// Its place by the rule.
    pub place: Place,
}

/// The place of a tag by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tag is the newest.
    Newest,
    /// The tag is as new as the newest, which goes before it.
    Equal,
    /// The tag is older than the newest.
    Older,
    /// The rule does not follow it.
    Unfollowed(Unfollowed),
}

impl Deployer {
    /// Returns what following finds in the app's repository now, and what comes of it. Nothing is recorded.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] if the app follows nothing, or has no image yet; as
    /// [`Deployer::look_up_image`] if the repository cannot be read.
    pub async fn explain_following(&self, access: &Authorized) -> Outcome<Following> {
        access.check(Action::Deploy)?;
        let state = self.state(access).await?;
        let (rule, every) = match (&state.app.policy.follow, state.app.policy.poll) {
            (Some(rule), Some(every)) => (rule.clone(), every),
            (Some(_) | None, _) => return Err(unfollowing("the app follows no repository: set a rule first.")),
        };
        let repository = state.repository().ok_or_else(|| {
            unfollowing("no deploy of this app has an image yet, which would name the repository to follow.")
        })?;
        let registry = self.ports.registry.as_deref().ok_or(Refusal::NoRegistry)?;
        let clock = &*self.ports.clock;
        let Reading { tags, newest } = read(registry, clock, &access.id.namespace, &rule, &repository)
            .await
            .map_err(|error| unread(repository.clone(), Vec::new(), error))?;
        let found = Followed { rule: rule.clone(), repository: repository.clone(), newest: newest.clone() };
        let is_there = |entry: &Deploy| decision::is_of(entry, &found);
        let entries = self.entries_since(&state, is_there).await.map_err(Refusal::of_store)?;
        let standing = decision::explained(&state, &entries, &found);
        let decided = state.followed().and_then(|followed| followed.newest.clone());
        let (tags, left_off) = listed(&rule, tags, newest.as_ref());
        Ok(Following { rule, repository, every, decided, newest, standing, tags, left_off })
    }
}

fn unfollowing(why: &str) -> Refusal {
    Refusal::InvalidField(Field::PolicyFollow, why.to_owned())
}

/// Returns the tags in their order, and the number of those that are left off.
fn listed(rule: &Follow, tags: Vec<Tag>, newest: Option<&ImageRef>) -> (Vec<ListedTag>, usize) {
    let best = newest.and_then(|image| rule.rank_of(image));
    let mut ranked: Vec<_> = tags.into_iter().map(|tag| (rule.rank(&tag), tag)).collect();
    ranked.retain(|(rank, tag)| rank.is_ok() || !tag.is_of_signatures());
    ranked.sort_by(|(one, one_tag), (other, other_tag)| match (one, other) {
        (Ok(one), Ok(other)) => {
            let among = Follow::among_equals(other_tag).cmp(&Follow::among_equals(one_tag));
            other.cmp(one).then(among)
        }
        (Ok(_), Err(_)) => std::cmp::Ordering::Less,
        (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
        (Err(_), Err(_)) => one_tag.cmp(other_tag),
    });
    ranked.dedup();
    let left_off = ranked.len().saturating_sub(LISTED_MAX);
    let place = |rank, tag: &Tag| match rank {
        Err(why) => Place::Unfollowed(why),
        Ok(_) if newest.and_then(ImageRef::tag) == Some(tag.as_str()) => Place::Newest,
        Ok(rank) if best.as_ref() == Some(&rank) => Place::Equal,
        Ok(_) => Place::Older,
    };
    let listed = ranked.into_iter().take(LISTED_MAX).map(|(rank, tag)| ListedTag { place: place(rank, &tag), tag });
    (listed.collect(), left_off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_is_listed_first_and_each_other_says_why_it_is_not() {
        let rule: Follow = "semver:^1.4".parse().unwrap();
        let signatures = format!("sha256-{}.sig", "0".repeat(64));
        let tags = [&*signatures, "latest", "1.4.2", "2.0.0", "1.10.0", "v1.10.0", "1.9.0", "1.4.2"];
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        let newest = "registry.example.com/api:1.10.0".parse().unwrap();
        let (listed, left_off) = listed(&rule, tags, Some(&newest));
        let listed: Vec<_> = listed.iter().map(|listed| (listed.tag.as_str(), listed.place)).collect();
        let expected = [
            ("1.10.0", Place::Newest),
            ("v1.10.0", Place::Equal),
            ("1.9.0", Place::Older),
            ("1.4.2", Place::Older),
            ("2.0.0", Place::Unfollowed(Unfollowed::Unmet)),
            ("latest", Place::Unfollowed(Unfollowed::NoVersion)),
        ];
        assert_eq!((listed.as_slice(), left_off), (expected.as_slice(), 0));
    }

    #[test]
    fn long_lists_are_cut_behind_the_newest() {
        let rule: Follow = r"regex:r(?<n>\d+)".parse().unwrap();
        let tags = (0..1_000).map(|number| format!("r{number}").parse().unwrap()).collect();
        let (listed, left_off) = listed(&rule, tags, Some(&"api.example.com/a:r999".parse().unwrap()));
        assert_eq!((listed.len(), left_off, listed[0].tag.as_str()), (LISTED_MAX, 1_000 - LISTED_MAX, "r999"));
    }
}
