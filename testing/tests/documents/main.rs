//! The book and the README. Every command is run as it is pasted: the shell blocks of each page from top to bottom, by a
//! real shell, against real servers; the README's tour in the same way by `tour.rs`. `book.rs` is about pages and links.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod book;
mod cluster;
mod docker;
mod elsewhere;
mod files;
mod pages;
mod runbook;
mod script;
mod server;
mod tour;

use rollhook_testing::documents::{self, shell_blocks, statements};

use crate::{
    elsewhere::{ELSEWHERE, is_elsewhere},
    pages::{PAGES, Place},
};

#[test]
fn every_command_of_the_book_is_run_or_has_a_reason_why_not() {
    for (path, text) in documents::pages().into_iter().filter(|(path, _)| path.starts_with("docs/")) {
        let blocks = shell_blocks(&text);
        let known = PAGES.iter().find(|page| page.path == path).map_or(&[][..], |page| page.blocks);
        assert_eq!(known.len(), blocks.len(), "{path}: the number of its shell blocks, in pages.rs and in the page");
        for (block, text) in known.iter().zip(blocks) {
            let statements = statements(text);
            let here = statements.iter().find(|statement| block.file.is_some() || !is_elsewhere(&path, statement));
            match block.place {
                Place::Elsewhere => assert_eq!(here, None, "{path}: not run, and not in elsewhere.rs"),
                Place::Server | Place::Cluster | Place::Bare | Place::Docker => {
                    assert!(here.is_some(), "{path}: nothing of this block is run: {text}")
                }
            }
        }
    }
}

#[test]
fn each_reason_is_of_a_command_that_the_book_has() {
    let pages = documents::pages();
    for page in PAGES {
        assert!(pages.iter().any(|(path, _)| path == page.path), "there is no page {}", page.path);
    }
    for (page, command, reason) in ELSEWHERE {
        let (_, text) = pages.iter().find(|(path, _)| path == page).unwrap_or_else(|| panic!("there is no {page}"));
        let all = shell_blocks(text).into_iter().flat_map(statements);
        let found = all.filter(|statement| statement.starts_with(command)).count();
        assert_eq!(found, 1, "{page}: the number of commands `{command}`, which is not run because {reason}");
    }
}
