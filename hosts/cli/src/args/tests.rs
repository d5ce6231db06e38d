use super::*;

#[test]
fn the_definition_is_sound() {
    Cli::definition().debug_assert();
}

/// The whole help of the program, and the short one of each command.
#[test]
fn help_texts() {
    fn collect(command: &mut clap::Command, name: &str, all: &mut String) {
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let name = format!("{name} {}", sub.get_name());
            all.push_str(&format!("\n===== {name} -h\n{}", sub.render_help()));
            collect(sub, &name, all);
        }
    }
    let mut command = Cli::definition();
    command.build();
    let mut all = format!("===== rollhook --help\n{}", command.render_long_help());
    collect(&mut command, "rollhook", &mut all);
    insta::assert_snapshot!("help", all);
}

#[track_caller]
fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::read(line.split_whitespace())
}

#[test]
fn commands_are_read_as_the_contract_spells_them() {
    for line in [
        "rollhook app webhook enable api --project shop --environment test",
        "rollhook app webhook status api --project shop --environment test",
        "rollhook app webhook disable api --project shop --environment test",
        "rollhook app history api --project shop --environment test --limit 5 -o wide",
        "rollhook app rollback api --project shop --environment test --revision 3 --yes --wait",
        "rollhook app list",
        "rollhook app show api --project shop --environment test --server https://deploys.example.com",
        "rollhook app set api --project shop --environment test --on-failure leave --settle 0s",
        "rollhook app deploy api --project shop --environment test --image r.example.com/api:1 --commit abc --wait",
        "rollhook app cancel api --project shop --environment test --revision 4",
        "rollhook app verdict api pass --project shop --environment test --revision 4 --wait",
        "rollhook app verdict api fail --project shop --environment test --revision 4",
        "rollhook app promote api --project shop --environment prod --from-environment test --from-project shop",
        "rollhook app release-hold api --project shop --environment test",
        "rollhook app delete api --project shop --environment test --yes",
        "rollhook activity",
        "rollhook activity --environment prod --actor ada --status failed --limit 5 -o csv",
        "rollhook report --project shop --environment prod --days 7 -o csv",
        "rollhook completions bash",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn every_command_in_the_documents_is_read() {
    let commands = rollhook_testing::documents::commands("rollhook");
    assert!(commands.len() > 10, "{commands:?}");
    for (page, words) in commands {
        let names_project = words.iter().any(|word| word == "--project" || word == "-p");
        // Pages name the project once, by the environment.
        let project = if names_project { [].as_slice() } else { &["--project", "shop", "--environment", "test"] };
        // What follows -- is another program's.
        let own = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (own, others) = words.split_at(own);
        let text = |words| <[String]>::iter(words).map(String::as_str);
        let named = text(own).chain(project.iter().copied()).chain(text(others));
        if let Err(error) = Cli::read(words.iter()) {
            assert!(Cli::read(named).is_ok(), "{page}: {words:?}: {error}");
        }
    }
}

#[test]
fn every_command_that_the_documents_name_is_known() {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
    };
    let commands = rollhook_testing::documents::mentions("rollhook");
    assert!(commands.len() > 40, "{commands:?}");
    let incomplete =
        [DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand];
    for (page, words) in commands {
        let Err(error) = Cli::read(words.iter()) else { continue };
        assert!(incomplete.contains(&error.kind()), "{page}: {words:?}: {error}");
    }
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    let app = "api --project shop --environment test";
    for line in [
        "rollhook app history UPPER --project shop --environment test".to_owned(),
        format!("rollhook app history {app} --limit 0"),
        format!("rollhook app rollback {app} --revision 0"),
        format!("rollhook app deploy {app}"),
        format!("rollhook app deploy {app} --image Not/An/Image"),
        format!("rollhook app set {app} --settle 10"),
        format!("rollhook app set {app} --on-failure explode"),
        format!("rollhook app set {app} --poll often"),
        format!("rollhook app create {app} --env NOVALUE"),
        format!("rollhook app create {app} --workload Pod/x"),
        format!("rollhook app cancel {app}"),
        format!("rollhook app verdict {app} pass"),
        format!("rollhook app verdict {app} none --revision 4"),
        "rollhook report --days 8".to_owned(),
        "rollhook activity --status broken".to_owned(),
        format!("rollhook app show {app} --token secret"),
    ] {
        assert_eq!(parse(&line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn repositories_repeat_separate_or_empty() {
    let patch = |flags: &[&str]| {
        let line = ["rollhook", "app", "set", "api", "--project", "shop", "--environment", "test"];
        let cli = Cli::try_parse_from(line.iter().chain(flags)).unwrap();
        let Command::App(AppCommand::Set(set)) = cli.command else { panic!("not set") };
        set.policy.patch().repositories
    };
    assert_eq!(patch(&[]), None);
    assert_eq!(patch(&["--repository", "a/b", "--repository", "c/d"]), Some(vec!["a/b".to_owned(), "c/d".to_owned()]));
    assert_eq!(patch(&["--repositories", "a/b,c/d"]), Some(vec!["a/b".to_owned(), "c/d".to_owned()]));
    assert_eq!(patch(&["--repository", ""]), Some(Vec::new()));
}

#[test]
fn polling_is_a_time_or_off() {
    let patch = |flags: &[&str]| {
        let line = ["rollhook", "app", "set", "api", "--project", "shop", "--environment", "test"];
        let cli = Cli::try_parse_from(line.iter().chain(flags)).unwrap();
        let Command::App(AppCommand::Set(set)) = cli.command else { panic!("not set") };
        set.policy.patch().parse().unwrap().poll
    };
    assert_eq!(patch(&[]), None);
    assert_eq!(patch(&["--poll", "5m"]), Some(Some(std::time::Duration::from_secs(300))));
    assert_eq!(patch(&["--poll", "off"]), Some(None));
}

#[test]
fn two_places_are_not_named_at_once() {
    for line in [
        "rollhook app list --server http://127.0.0.1:1 --store sqlite:x.db",
        "rollhook --driver simulated app list --server http://127.0.0.1:1",
    ] {
        assert_eq!(parse(line).unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict, "{line}");
    }
    assert!(parse("rollhook --store sqlite:x.db app list").unwrap().connection.server.is_none());
    assert!(parse("rollhook app list --server http://127.0.0.1:1").unwrap().connection.server.is_some());
}

#[test]
fn one_environment_and_its_whole_project_are_not_named_at_once() {
    let line = "rollhook requirement remove -p shop --whole-project";
    assert!(parse(line).is_ok());
    let both = parse(&format!("{line} -e prod")).unwrap_err();
    assert_eq!(both.kind(), clap::error::ErrorKind::ArgumentConflict, "{both}");
}
