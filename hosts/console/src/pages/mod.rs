//! The pages, one module each.

pub(crate) mod access;
pub(crate) mod activity;
pub(crate) mod apps;
pub(crate) mod checks;
pub(crate) mod command_line;
pub(crate) mod configuration;
pub(crate) mod confirm;
pub(crate) mod deploys;
pub(crate) mod entry;
pub(crate) mod errors;
mod further;
mod git_fields;
pub(crate) mod lock;
pub(crate) mod logs;
pub(crate) mod matrix;
mod measured;
pub(crate) mod new_deploy;
pub(crate) mod promote;
pub(crate) mod provider;
pub(crate) mod receivers;
pub(crate) mod redeploy;
pub(crate) mod register;
pub(crate) mod report;
pub(crate) mod rollback;
pub(crate) mod runs;
pub(crate) mod scale;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod sign_in;
mod target_fields;
pub(crate) mod trust;
pub(crate) mod webhook;

#[cfg(test)]
mod tests;

use rollhook_core::deploy::Scale;

use crate::{
    console::Call,
    host::Failure,
    live,
    reply::{Reply, redirect},
    route::{AppPart, DeployPart, Page, ReceiverPart, RunPart},
};

/// Answers a call of a person who is signed in and has the permission for the page.
pub(crate) async fn answer(call: &Call<'_>, page: &Page) -> Result<Reply, Failure> {
    let reads = call.request.reads();
    match page {
        Page::Apps => apps::page(call).await,
        Page::Activity => activity::page(call).await,
        Page::ActivityLive => live::activity(call).await,
        Page::Report => report::page(call).await,
        Page::Register if reads => Ok(register::page(call)),
        // The future is large, with all that a registration has.
        Page::Register => Box::pin(register::submit(call)).await,
        Page::Promote(project) if reads => promote::page(call, project).await,
        Page::Promote(project) => promote::submit(call, project).await,
        Page::SignOut => sign_in::sign_out(call).await,
        Page::SignOutEverywhere => sign_in::sign_out_everywhere(call).await,
        Page::CommandLine if reads => command_line::page(call),
        Page::CommandLine => command_line::allow(call).await,
        Page::Access => access::page(call).await,
        Page::NewToken => access::create(call).await,
        Page::Revoke(name) if reads => Ok(access::confirm_revoke(call, name)),
        Page::Revoke(name) => access::revoke(call, name).await,
        Page::EndSession(id) if reads => Ok(sessions::confirm_end(call, id)),
        Page::EndSession(id) => sessions::end(call, id).await,
        Page::EndSessions if reads => Ok(sessions::confirm_end_all(call)),
        Page::EndSessions => sessions::end_all(call).await,
        Page::Receivers if reads => receivers::page(call).await,
        Page::Receivers => receivers::add(call).await,
        Page::Receiver(name, part) => match part {
            ReceiverPart::Test => receivers::test(call, name).await,
            ReceiverPart::Rotate if reads => Ok(receivers::confirm_rotate(call, name)),
            ReceiverPart::Rotate => receivers::rotate(call, name).await,
            ReceiverPart::Remove if reads => Ok(receivers::confirm_remove(call, name)),
            ReceiverPart::Remove => receivers::remove(call, name).await,
        },
        Page::App(id, part) => match part {
            AppPart::Deploys => deploys::page(call, id).await,
            AppPart::Live => live::stream(call, id).await,
            AppPart::Logs => logs::page(call, id).await,
            AppPart::LogList => logs::list(call, id).await,
            AppPart::LogMore => logs::more(call, id).await,
            AppPart::Runs => runs::page(call, id).await,
            AppPart::NewDeploy if reads => new_deploy::page(call, id).await,
            AppPart::NewDeploy => new_deploy::submit(call, id).await,
            AppPart::Redeploy if reads => redeploy::page(call, id).await,
            AppPart::Redeploy => redeploy::submit(call, id).await,
            AppPart::Stop if reads => scale::page(call, id, Scale::Stop).await,
            AppPart::Stop => scale::stop(call, id).await,
            AppPart::Start if reads => scale::page(call, id, Scale::Start).await,
            AppPart::Start => scale::start(call, id).await,
            AppPart::Rollback if reads => rollback::page(call, id).await,
            AppPart::Rollback => rollback::submit(call, id).await,
            AppPart::Webhook => webhook::page(call, id).await,
            // The address that a form leaves in the browser, when it is entered again.
            AppPart::Reveal if reads => Ok(redirect(&format!("/apps/{}/{}/webhook", id.namespace, id.name))),
            AppPart::Source | AppPart::Workloads if reads => {
                Ok(redirect(&format!("/apps/{}/{}/settings", id.namespace, id.name)))
            }
            AppPart::Reveal => webhook::reveal(call, id).await,
            AppPart::Enable if reads => webhook::confirm_enable(call, id).await,
            AppPart::Enable => webhook::enable(call, id).await,
            AppPart::Disable if reads => webhook::confirm_disable(call, id).await,
            AppPart::Disable => webhook::disable(call, id).await,
            AppPart::AddTrust if reads => trust::page(call, id).await,
            AppPart::AddTrust => trust::submit(call, id).await,
            AppPart::RemoveTrust if reads => webhook::confirm_remove_trust(call, id).await,
            AppPart::RemoveTrust => webhook::remove_trust(call, id).await,
            AppPart::Configuration if reads => configuration::page(call, id).await,
            AppPart::Configuration => configuration::submit(call, id).await,
            AppPart::Unset if reads => configuration::confirm_unset(call, id).await,
            AppPart::Unset => configuration::unset(call, id).await,
            AppPart::DiscardStaged if reads => configuration::confirm_discard(call, id).await,
            AppPart::DiscardStaged => configuration::discard(call, id).await,
            AppPart::Settings if reads => settings::page(call, id).await,
            AppPart::Settings => settings::change_policy(call, id).await,
            AppPart::Source => settings::change_source(call, id).await,
            AppPart::Workloads => Box::pin(settings::change_workloads(call, id)).await,
            AppPart::Checks if reads => checks::page(call, id).await,
            AppPart::Checks => checks::set(call, id).await,
            AppPart::TestCheck => checks::test(call, id).await,
            AppPart::RemoveCheck if reads => checks::confirm_remove(call, id).await,
            AppPart::RemoveCheck => checks::remove(call, id).await,
            AppPart::ReleaseHold if reads => settings::confirm_release(call, id).await,
            AppPart::ReleaseHold => settings::release(call, id).await,
            AppPart::Rotate if reads => webhook::confirm_rotate(call, id).await,
            AppPart::Rotate => webhook::rotate(call, id).await,
            AppPart::Lock if reads => lock::page(call, id).await,
            AppPart::Lock => lock::lock(call, id).await,
            AppPart::Unlock if reads => lock::confirm_unlock(call, id).await,
            AppPart::Unlock => lock::unlock(call, id).await,
            AppPart::Delete if reads => settings::confirm_delete(call, id).await,
            AppPart::Delete => settings::delete(call, id).await,
        },
        Page::Deploy(id, revision, part) => match part {
            DeployPart::Entry => entry::page(call, id, *revision).await,
            DeployPart::Status => entry::status(call, id, *revision).await,
            DeployPart::Log => entry::log(call, id, *revision).await,
            DeployPart::Cancel if reads => entry::confirm_cancel(call, id, *revision).await,
            DeployPart::Cancel => entry::cancel(call, id, *revision).await,
            DeployPart::Verdict => entry::decide(call, id, *revision).await,
        },
        Page::Run(id, number, RunPart::Run) => runs::show(call, id, *number).await,
        Page::Run(id, number, RunPart::Log) => runs::log(call, id, *number).await,
    }
}
