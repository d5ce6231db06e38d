//! The flags by which people give the fields of requests.

/// Returns the flag that a field of a registration, a policy, a source or a promotion is given by; `None` for a field of
/// anything else.
pub(crate) fn flag(field: &str) -> Option<String> {
    let (part, name) = field.split_once('.')?;
    Some(match (part, name) {
        ("git" | "source", "url") => "--git".to_owned(),
        ("workload", "kind" | "name" | "also") => "--workload".to_owned(),
        ("policy" | "template" | "workload" | "settings", several) if SEVERAL.contains(&several) => {
            format!("--{}", singular(several).replace('_', "-"))
        }
        ("from", name) => format!("--from-{name}"),
        ("git" | "source" | "workload" | "policy" | "template" | "settings", name) => {
            format!("--{}", name.replace('_', "-"))
        }
        (_, _) => return None,
    })
}

/// The fields of several values, whose flags are given once for each.
const SEVERAL: [&str; 6] = ["repositories", "containers", "env_from_secrets", "volumes", "labels", "commands"];

fn singular(name: &str) -> String {
    match name.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => name.trim_end_matches('s').to_owned(),
    }
}

/// Returns a refusal's text with the flag in place of the field that it begins with.
pub(crate) fn in_flags(field: &str, text: &str) -> Option<String> {
    let rule = text.strip_prefix(field)?.strip_prefix(": ")?;
    Some(format!("{}: {rule}", flag(field)?))
}

/// Returns a text with the flags in place of these fields, which it lists.
pub(crate) fn list_in_flags(fields: &[&str], text: &str) -> String {
    text.replacen(&fields.join(", "), &flags(fields), 1)
}

/// Returns the flags of these fields, listed.
pub(crate) fn flags(fields: &[&str]) -> String {
    let flags: Vec<_> = fields.iter().map(|field| flag(field).unwrap_or_else(|| format!("--{field}"))).collect();
    flags.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use rollhook_core::request::Field;

    use super::*;
    use crate::args::Cli;

    /// The long flags of a command.
    fn known_flags(path: &[&str]) -> Vec<String> {
        let mut command = Cli::command();
        for name in path {
            command = command.find_subcommand(name).unwrap().clone();
        }
        command.get_arguments().filter_map(|flag| flag.get_long()).map(|name| format!("--{name}")).collect()
    }

    #[test]
    fn every_field_of_a_registration_has_a_flag() {
        let known = known_flags(&["app", "create"]);
        let settings = ["kind", "name", "also", "containers", "replace"].map(|name| format!("workload.{name}"));
        let template = [
            "command",
            "replicas",
            "port",
            "env",
            "env_from_secrets",
            "pull_secret",
            "readiness_path",
            "publish",
            "volumes",
            "network",
            "labels",
            "memory",
            "cpu",
            "pod_security",
        ];
        let template = template.map(|name| format!("template.{name}"));
        let policy = [
            Field::PolicyOnFailure,
            Field::PolicyHold,
            Field::PolicySettle,
            Field::PolicyPatience,
            Field::PolicyReadyWithin,
            Field::PolicyRolloutDeadline,
            Field::PolicyBuildDeadline,
            Field::PolicyReleaseCommand,
            Field::PolicyReleaseDeadline,
            Field::PolicyRepositories,
            Field::PolicyKeep,
            Field::PolicyFollow,
            Field::PolicyResolve,
            Field::PolicyFollowSettle,
            Field::PolicyRequireSignature,
            Field::PolicyRequireAttestation,
            Field::PolicyPoll,
            Field::GitUrl,
            Field::GitBranch,
            Field::GitDockerfile,
            Field::GitContext,
            Field::GitImageRepository,
            Field::GitCredentials,
            Field::SourceUrl,
            Field::SourceImageRepository,
        ];
        let fields = policy.iter().map(|field| field.as_str().to_owned());
        for field in fields.chain(settings).chain(template) {
            let flag = flag(&field).unwrap();
            assert!(known.contains(&flag), "{field}: {flag}");
        }
        let set = known_flags(&["app", "set"]);
        for name in
            ["memory", "cpu", "publish", "volumes", "network", "labels", "commands", "readiness_path", "readiness_port"]
        {
            let flag = flag(&format!("settings.{name}")).unwrap();
            assert!(set.contains(&flag), "{name}: {flag}");
        }
        let promote = known_flags(&["app", "promote"]);
        for field in [Field::FromProject, Field::FromEnvironment] {
            assert!(promote.contains(&flag(field.as_str()).unwrap()), "{field}");
        }
        for other in ["image", "name", "claims", "target.name"] {
            assert_eq!(flag(other), None);
        }
    }

    #[test]
    fn refusal_names_the_flag_that_was_typed() {
        let field = "git.image_repository";
        assert_eq!(
            in_flags(field, "git.image_repository: must have no tag.").unwrap(),
            "--image-repository: must have no tag."
        );
        assert_eq!(in_flags(field, "Another sentence."), None);
        assert_eq!(in_flags("image", "image: must be one."), None);
        let listed = "It is as it is, without image, template.volumes. To adopt it: --adopt.";
        assert_eq!(
            list_in_flags(&["image", "template.volumes"], listed),
            "It is as it is, without --image, --volume. To adopt it: --adopt."
        );
    }
}
