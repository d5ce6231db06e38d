//! `rollhook app look-up` and `app follow explain`: what the registry has of an image, and of a repository that is followed.

use rollhook_api::{
    Following, Image,
    operations::{ExplainFollowing, ImageQuery, LookUpImage},
};
use rollhook_core::text::escaped;

use super::Session;
use crate::{
    args::{LookUp, Target},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit, Style},
};

pub(crate) async fn look_up(session: &Session<'_>, args: &LookUp) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    let query = ImageQuery { reference: args.image.as_ref().map(ToString::to_string) };
    let image = session.api.call(LookUpImage, &id, query).await?;
    session.output.data(&image, || lines(&image))
}

/// Shows the tags of the repository that an app follows, and what comes of them.
pub(crate) async fn explain(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    let following = session.api.call(ExplainFollowing, &id, ()).await?;
    if following.left_off > 0 {
        message(&format!("note: {} more tags are not listed", following.left_off));
    }
    session.output.data(&following, || explained(&following, session.output.style))
}

fn explained(following: &Following, style: Style) -> String {
    let Following { rule, repository, every, .. } = following;
    let head =
        format!("{} follows {}, every {every}\n{}\n", escaped(repository), escaped(rule), escaped(&following.outcome));
    if following.tags.is_empty() {
        return head;
    }
    let rows: Vec<_> = following.tags.iter().map(|tag| vec![Cell::new(&tag.tag), Cell::new(&tag.why)]).collect();
    head + "\n" + &table::render(&[Column("TAG", 0, Fit::Cut), Column("WHY", 0, Fit::Keep)], &rows, style)
}

/// Returns an image, a line for each thing that is known of it.
fn lines(image: &Image) -> String {
    let platforms = Some(image.platforms.join(", ")).filter(|platforms| !platforms.is_empty());
    let lines = [
        ("image", Some(&image.image)),
        ("digest", Some(&image.digest)),
        ("platforms", platforms.as_ref()),
        ("commit", image.labels.revision.as_ref()),
        ("version", image.labels.version.as_ref()),
        ("source", image.labels.source.as_ref()),
        ("url", image.labels.url.as_ref()),
    ]
    .map(|(name, value)| value.map(|value| format!("{name:<10} {}\n", escaped(value))));
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use rollhook_api::ImageLabels;

    use super::*;

    #[test]
    fn image_is_shown_by_what_is_known_of_it() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let image = Image {
            image: "registry.example.com/api:v1".to_owned(),
            digest: digest.clone(),
            media_type: None,
            platforms: vec!["linux/amd64".to_owned(), "linux/arm64".to_owned()],
            labels: ImageLabels {
                revision: Some("abc\u{1b}[2J".to_owned()),
                version: Some("1.2".to_owned()),
                ..ImageLabels::default()
            },
        };
        let shown = format!(
            "image      registry.example.com/api:v1\ndigest     {digest}\nplatforms  linux/amd64, linux/arm64\n\
             commit     abc\\u{{1b}}[2J\nversion    1.2\n"
        );
        assert_eq!(lines(&image), shown, "control characters of labels are escaped");
    }
}
