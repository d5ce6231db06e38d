//! The pages of the book: each is in its contents, and each link leads somewhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::{collections::BTreeSet, fs, path::Path};

use rollhook_testing::documents::{pages, root};

const CONTENTS: &str = "docs/SUMMARY.md";

/// The targets of a page's links to files of the repository, with their fragments.
fn links(text: &str) -> Vec<(String, Option<String>)> {
    let targets = text.split("](").skip(1).filter_map(|after| after.split_once(')')).map(|(target, _)| target);
    let local = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    local
        .map(|target| match target.split_once('#') {
            Some((file, fragment)) => (file.to_owned(), Some(fragment.to_owned())),
            None => (target.to_owned(), None),
        })
        .collect()
}

/// The fragments by which a page's headings are linked: lower case, words joined by hyphens, no punctuation.
fn fragments(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |heading: &str| {
        let plain = heading.to_lowercase().replace(' ', "-");
        plain.chars().filter(|character| character.is_alphanumeric() || "-_".contains(*character)).collect()
    };
    headings.map(kept).collect()
}

#[test]
fn every_page_is_in_the_contents() {
    let all = pages();
    let (_, contents) = all.iter().find(|(path, _)| path == CONTENTS).unwrap();
    let listed: BTreeSet<_> = links(contents).into_iter().map(|(file, _)| format!("docs/{file}")).collect();
    for (path, _) in all.iter().filter(|(path, _)| path.starts_with("docs/") && path != CONTENTS) {
        assert!(listed.contains(path), "{path} is not in {CONTENTS}");
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for (path, text) in pages() {
        let here = root().join(&path);
        for (file, fragment) in links(&text) {
            let target = if file.is_empty() { here.clone() } else { here.parent().unwrap().join(&file) };
            assert!(target.exists(), "{path} links to {file}, which is not there");
            if let Some(fragment) = fragment.filter(|_| target.extension().is_some_and(|kind| kind == "md")) {
                let known = fragments(&fs::read_to_string(&target).unwrap());
                assert!(
                    known.contains(&fragment),
                    "{path} links to {file}#{fragment}, a heading that is not there: {known:?}"
                );
            }
        }
    }
}

#[test]
fn book_reads_its_pages_from_where_they_are() {
    let book = fs::read_to_string(root().join("docs/book.toml")).unwrap();
    assert!(book.contains("src = \".\""), "{book}");
    assert!(Path::new(&root().join(CONTENTS)).exists());
}
