//! As whom a registry is asked: with the operator's login; or as anyone, and then with the logins of the platform, one after the other.

use rollhook_core::{
    app::Namespace,
    error::{Entity, Error, Result},
    image::ImageRef,
};
use rollhook_registry_logins::{Login, PlatformLogins};

use crate::{
    client::{Access, Question, Repository},
    registry::HttpRegistry,
};

/// The most logins of the platform that are tried.
const LOGINS: usize = 4;

impl HttpRegistry {
    /// Answers a question to the registry of an image.
    ///
    /// A registry that hides what a caller may not see is believed that something is missing only where it was asked with the
    /// operator's login, or as anyone may ask: the platform may show another app's login.
    pub(crate) async fn ask<T, F>(
        &self,
        (environment, image): (&Namespace, &ImageRef),
        attempt: impl Fn(Question) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let settings = self.client.settings();
        let at = Repository::of(image, settings)?;
        let ask_as = |access| {
            let question = Question { environment: environment.clone(), image: image.clone(), at: at.clone(), access };
            Box::pin(attempt(question))
        };
        let Some(platform) = &settings.platform else { return ask_as(Access::Own).await };
        let memory = self.client.memory();
        let place = (environment.clone(), at.name());
        let has_own = async || !matches!(settings.logins.login(environment, image).await, Ok(None));
        let mut way = memory.way(&place);
        if way.is_some() && has_own().await {
            memory.forget_way(&place);
            way = None;
        }
        let mut refusal = None;
        match way {
            None => match ask_as(Access::Own).await {
                Err(error) if is_refusal(&error) && !has_own().await => refusal = Some(error),
                answer => return answer,
            },
            Some(mark) if memory.authorization(&(place.clone(), way)).is_some() => {
                match ask_as(Access::Kept(mark)).await {
                    Err(error) if is_refusal(&error) => {}
                    answer => return answer,
                }
            }
            Some(_) => {}
        }
        let mut logins = match logins(platform.as_ref(), environment, image).await {
            Ok(logins) => logins,
            // Anyone may read the image by now, as far as is known.
            Err(error) if way.is_some() => return ask_as(Access::Own).await.or(Err(error)),
            Err(error) => return Err(error),
        };
        // The one that was let in before comes first.
        logins.sort_by_key(|login| Some(memory.mark(login)) != way);
        let mut other = None;
        for login in logins.into_iter().take(LOGINS) {
            let mark = memory.mark(&login);
            match ask_as(Access::Platform(login)).await {
                Err(error) if is_refusal(&error) => {}
                // A registry may answer with its page for a sign-in.
                Err(error @ (Error::Corrupt { .. } | Error::Invalid { .. })) => drop(other.get_or_insert(error)),
                answer => {
                    if matches!(answer, Ok(_) | Err(Error::NotFound(_))) {
                        memory.keep_way(place, mark);
                    }
                    return answer;
                }
            }
        }
        match other.or(refusal) {
            Some(refusal) => Err(refusal),
            None => {
                memory.forget_way(&place);
                ask_as(Access::Own).await
            }
        }
    }
}

/// Returns whether another login may be let in.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Denied { .. } | Error::NotFound(Entity::Repository))
}

/// Returns the platform's logins for an image, each once.
///
/// # Errors
/// `Unavailable` if the platform does not show them: what the registry would answer with them is not known.
async fn logins(platform: &dyn PlatformLogins, environment: &Namespace, image: &ImageRef) -> Result<Vec<Login>> {
    let shown = platform.logins(environment, image).await;
    let unknown = "the logins with which the platform pulls the image cannot be read";
    let shown =
        shown.map_err(|error| if error.is_unavailable() { error } else { Error::unavailable(unknown, error) })?;
    let mut found = Vec::new();
    for logins in shown {
        // An entry without a login is none.
        let login = logins.login(image).await.ok().flatten().map(|(_, login)| login);
        if let Some(login) = login
            && !found.contains(&login)
        {
            found.push(login);
        }
    }
    Ok(found)
}
