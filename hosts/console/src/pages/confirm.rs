//! The question before an act that cannot be taken back: a page of its own, or a dialog.

use askama::Template;
use http::StatusCode;
use rollhook_core::text::escaped;

use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::Head,
};

/// The question before an act, and where its answer goes.
#[derive(Default)]
pub(crate) struct Question<'a> {
    /// The app that it is about.
    pub(crate) head: Option<&'a Head>,
    pub(crate) title: String,
    /// The consequences, a sentence each.
    pub(crate) consequences: Vec<String>,
    /// The path that the answer is posted to.
    pub(crate) action: String,
    /// The path to return to without an answer.
    pub(crate) back: String,
    pub(crate) button: String,
    /// The fields that the answer brings along.
    pub(crate) hidden: Vec<(&'static str, String)>,
    /// The word that must be typed.
    pub(crate) typed: Option<String>,
    /// The name of a box to tick, and the words beside it.
    pub(crate) tick: Option<(&'static str, &'static str)>,
    /// The reason for the act in spite of a lock, where one asks for it.
    pub(crate) reason: Option<String>,
    /// The help of a field for a new secret.
    pub(crate) secret: Option<&'static str>,
    pub(crate) error: Option<String>,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage<'a> {
    frame: &'a crate::view::Frame,
    question: &'a Question<'a>,
}

#[derive(Template)]
#[template(path = "_confirm.html")]
struct ConfirmPart<'a> {
    question: &'a Question<'a>,
}

impl Question<'_> {
    /// Returns the question as a page or a dialog.
    pub(crate) fn reply(&self, call: &Call<'_>) -> Reply {
        self.answer(call, StatusCode::OK)
    }

    /// Returns the question again, with the reason why it is not done.
    pub(crate) fn refused(mut self, call: &Call<'_>, failure: &Failure) -> Reply {
        self.error = Some(escaped(&failure.problem.detail));
        self.answer(call, status(failure))
    }

    fn answer(&self, call: &Call<'_>, status: StatusCode) -> Reply {
        match call.request.is_partial() {
            true => reply::html(status, &ConfirmPart { question: self }),
            false => reply::html(status, &ConfirmPage { frame: &call.frame(), question: self }),
        }
    }
}
