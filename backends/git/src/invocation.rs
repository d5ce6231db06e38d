//! Starts git for one source.

use std::{path::Path, time::Duration};

use rollhook_core::source::GitSource;
use tokio::process::Command;

use crate::{Addresses, Credentials, environment};

/// The variables that tell ssh the files of the credentials.
const KEY: &str = "ROLLHOOK_SSH_KEY";
const KNOWN_HOSTS: &str = "ROLLHOOK_SSH_KNOWN_HOSTS";

/// A source, and what git needs to read it.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// The source to read.
    pub source: &'a GitSource,
    /// The credentials of the source.
    pub credentials: &'a Credentials,
    /// The addresses of the source's host.
    pub addresses: &'a Addresses,
    /// A directory of the caller's own, which is git's home directory.
    pub home: &'a Path,
    /// The longest that a connection may be silent.
    pub silence: Duration,
}

impl Invocation<'_> {
    /// Returns a git command for this directory, configured by its environment, which other users of this machine
    /// cannot read.
    ///
    /// Other configuration is ignored. git speaks the one protocol of the source's URL, follows no redirect and never
    /// prompts.
    pub fn git(&self, directory: &Path) -> Command {
        let mut command = environment::child("git");
        let silence = self.silence.as_secs().max(1).to_string();
        let mut settings = vec![
            ("protocol.version", "2"),
            ("http.followRedirects", "false"),
            ("http.lowSpeedLimit", "1"),
            ("http.lowSpeedTime", &silence),
            ("credential.helper", ""),
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("submodule.recurse", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("advice.detachedHead", "false"),
        ];
        let resolved = self.addresses.for_http(&self.source.url);
        settings.extend(resolved.iter().map(|resolved| ("http.curloptResolve", resolved.as_str())));
        // By this name git itself sends the header nowhere else.
        let header =
            self.credentials.header().map(|header| (format!("http.{}.extraHeader", header.below), &header.text));
        settings.extend(header.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (index, (name, value)) in settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command
            .env("HOME", self.home)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_SSH_COMMAND", self.ssh())
            .envs(self.credentials.key().map(|file| (KEY, file)))
            .envs(self.credentials.known_hosts().map(|file| (KNOWN_HOSTS, file)))
            .env("GIT_ALLOW_PROTOCOL", self.source.url.protocol())
            .current_dir(directory);
        command
    }

    /// Returns the ssh command, as a shell reads it. Other configuration is ignored, and ssh never prompts: a host
    /// without a known key is refused, and no known_hosts file is written.
    fn ssh(&self) -> String {
        let silence = self.silence.as_secs().max(1);
        let mut ssh = format!(
            "ssh -F none -o LogLevel=ERROR -o BatchMode=yes -o StrictHostKeyChecking=yes -o UpdateHostKeys=no \
             -o ConnectTimeout={silence} -o ServerAliveInterval={silence} -o ServerAliveCountMax=1"
        );
        ssh.extend(self.addresses.for_ssh(&self.source.url));
        // The files are named in variables, which ssh takes literally: in its options, blanks and `%` have a meaning.
        if self.credentials.known_hosts().is_some() {
            ssh.push_str(&format!(" -o 'UserKnownHostsFile=${{{KNOWN_HOSTS}}}'"));
        }
        // A source opens what its own credentials open: neither an agent nor the keys of the server's user are offered to
        // a host that whoever registers apps may name.
        ssh.push_str(" -o IdentitiesOnly=yes -o IdentityAgent=none");
        match self.credentials.key() {
            Some(_) => ssh.push_str(&format!(" -o 'IdentityFile=${{{KEY}}}'")),
            None => ssh.push_str(" -o IdentityFile=none"),
        }
        ssh
    }
}
