//! The flags of `app set` that say what containers are made with.

use clap::Args;
use rollhook_core::app::Settings;
use serde_json::Value;

use super::{config::When, value::NamedCommand};

/// What containers are made with: a change is a revision.
#[derive(Debug, Args)]
#[command(next_help_heading = "With Docker, what the container is made with: a new revision of the image that runs")]
pub(crate) struct MadeWith {
    /// The memory that the container may use, such as 512m; empty for any
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<String>,
    /// The processor time that the container may use, such as 1.5 or 500m; empty for any
    #[arg(long, value_name = "AMOUNT")]
    cpu: Option<String>,
    /// All ports of the machine that lead into the container, such as 127.0.0.1:8081-8082:80 for two that versions take in
    /// turn; repeatable; empty for none
    #[arg(long, value_name = "[ADDRESS:]PORT[-PORT]:PORT")]
    publish: Option<Vec<String>>,
    /// A volume or directory, such as data:/var/lib/app, in place of what is mounted there; without SOURCE nothing is;
    /// repeatable: all that app set has set; empty for none of these
    #[arg(long = "volume", value_name = "[SOURCE]:PATH[:ro]")]
    volumes: Option<Vec<String>>,
    /// The network that the container joins first; empty for Docker's own
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// A label, such as those that a proxy reads, in place of one of its name; repeatable: all that app set has set; empty for
    /// none of these
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Option<Vec<String>>,
    /// The command of the container NAME, which a deploy has made, such as worker='bin/jobs'; repeatable; those that app set has
    /// set for others stay, without them if one is empty
    #[arg(long = "command", value_name = "NAME=COMMAND")]
    commands: Option<Vec<String>>,
    /// Path that answers with 2xx or 3xx once the container is ready; empty for none
    #[arg(long, value_name = "PATH")]
    readiness_path: Option<String>,
    /// Port of the container that answers there [default: the only one that it exposes]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    readiness_port: Option<u16>,
    #[command(flatten)]
    pub(crate) when: When,
}

impl MadeWith {
    /// Returns the settings that the flags ask for.
    ///
    /// # Errors
    /// For a label without a value, and for a command that is none, or one of two for one container.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        let list = |given: &Option<Vec<String>>| {
            given.as_ref().map(|texts| texts.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>())
        };
        let labels = match list(&self.labels) {
            Some(labels) => Some(labels.iter().map(|text| label(text)).collect::<Result<Settings, _>>()?),
            None => None,
        };
        let commands = match list(&self.commands) {
            Some(commands) => Some(by_name(&commands)?),
            None => None,
        };
        let given = [
            ("memory", self.memory.clone().map(Value::from)),
            ("cpu", self.cpu.clone().map(Value::from)),
            ("publish", list(&self.publish).map(Value::from)),
            ("volumes", list(&self.volumes).map(Value::from)),
            ("network", self.network.clone().map(Value::from)),
            ("labels", labels.map(Value::from)),
            ("commands", commands.map(Value::from)),
            ("readiness_path", self.readiness_path.clone().map(Value::from)),
            ("readiness_port", self.readiness_port.map(Value::from)),
        ];
        Ok(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }

    /// Returns whether the commands that are set already, of other containers, stay.
    pub(crate) fn keeps_commands(&self) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.iter().all(|text| !text.is_empty()))
    }
}

fn label(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("--label: must be NAME=VALUE.")?;
    Ok((name.to_owned(), value.into()))
}

/// Returns the words of commands by the names of their containers.
fn by_name(commands: &[String]) -> Result<Settings, String> {
    let mut all = Settings::new();
    for text in commands {
        let NamedCommand { name, words } =
            text.parse().map_err(|rule: String| format!("--command: {}.", rule.trim_end_matches('.')))?;
        if all.insert(name.clone(), words.into()).is_some() {
            return Err(format!("--command: {name} has two."));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{AppCommand, Cli, Command};

    fn settings_of(flags: &[&str]) -> Result<Value, String> {
        let line = ["rollhook", "app", "set", "store", "--project", "shop", "--environment", "test"];
        let cli = Cli::try_parse_from(line.iter().chain(flags)).unwrap();
        let Command::App(AppCommand::Set(set)) = cli.command else { panic!("not set") };
        set.made_with.settings().map(Value::Object)
    }

    #[test]
    fn commands_are_by_the_names_of_their_containers() {
        let two = ["--command", "worker='bin/jobs' --all 'two words'", "--command", "mailer=bin/mail"];
        let commands = json!({ "worker": ["bin/jobs", "--all", "two words"], "mailer": ["bin/mail"] });
        assert_eq!(settings_of(&two), Ok(json!({ "commands": commands })));
        assert_eq!(settings_of(&["--command", ""]), Ok(json!({ "commands": {} })), "none of these");
        for wrong in ["bin/jobs", "=bin/jobs", "worker=", "worker='bin"] {
            let refused = settings_of(&["--command", wrong]).unwrap_err();
            assert!(refused.starts_with("--command: ") && refused.ends_with('.'), "{refused}");
        }
        let refused = settings_of(&["--command", "worker=a", "--command", "worker=b"]).unwrap_err();
        assert_eq!(refused, "--command: worker has two.");
    }
}
