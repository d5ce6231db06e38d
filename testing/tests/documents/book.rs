//! The pages of the book: each is in its contents, and each link leads somewhere.

use std::{collections::BTreeSet, fs, process::Command};

use rollhook_testing::{
    Ended,
    documents::{pages, root},
    process::tool,
    test_name,
};

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

/// The links of a rendered page to others of the book, with their fragments.
fn rendered_links(page: &str) -> BTreeSet<(String, String)> {
    let targets = page.split("href=\"").skip(1).filter_map(|after| after.split('"').next());
    let local = targets.filter(|target| !target.contains("://"));
    local
        .map(|target| target.split_once('#').unwrap_or((target, "")))
        .map(|(file, at)| (file.into(), at.into()))
        .collect()
}

#[test]
fn book_is_built_without_a_warning_and_its_links_lead_to_its_own_pages() {
    let Some(mdbook) = tool("bin/mdbook", &test_name!()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut build = Command::new(mdbook);
    build.arg("build").arg(root().join("docs")).arg("--dest-dir").arg(directory.path()).env_remove("RUST_LOG");
    let ended = Ended::from(build.output().unwrap()).ok();
    let said = format!("{}{}", ended.out, ended.err);
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");

    for (path, _) in pages().iter().filter(|(path, _)| path.starts_with("docs/") && path != CONTENTS) {
        let page = directory.path().join(path.trim_start_matches("docs/")).with_extension("html");
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{path}: {error}"));
        for (file, fragment) in rendered_links(&text) {
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(&file) };
            assert!(target.exists(), "{path} links to {file}, which is not in the book");
            if !fragment.is_empty() && target.extension().is_some_and(|kind| kind == "html") {
                let known = fs::read_to_string(&target).unwrap();
                assert!(known.contains(&format!("id=\"{fragment}\"")), "{path} links to {file}#{fragment}");
            }
        }
    }
}
