//! The promises of [`rollhook_core::ports::BranchReader`].

use rollhook_core::{Error, app::AppId, deploy::Commit, ports::BranchReader, source::GitSource};

use crate::{branches::Branches, report::Can, samples};

fn app() -> AppId {
    samples::app("shop", "test", "api").id
}

fn on(source: &GitSource, branch: &str) -> GitSource {
    GitSource { branch: branch.parse().unwrap(), ..source.clone() }
}

/// The commit in full, of the branch that is asked for and of none whose name only ends like it.
pub async fn head_is_the_branchs(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    let main = branches.push(&source).await;
    let other = on(&source, "feature/main");
    let longer = on(&source, "x/refs/heads/main");
    let theirs = branches.push(&other).await;
    let last = branches.push(&longer).await;
    assert!(main != theirs && theirs != last && last != main);
    assert!(main.is_sha() && matches!(main.as_str().len(), 40 | 64), "{main}");
    for (source, head) in [(&source, &main), (&other, &theirs), (&longer, &last)] {
        assert_eq!(reader.head(&app(), source).await.unwrap().as_ref(), Some(head), "{}", source.branch);
        assert_eq!(
            reader.look(&app(), source).await.unwrap().as_ref(),
            Some(head),
            "{}, where nobody waits",
            source.branch
        );
    }
    Ok(())
}

/// What is pushed is seen, also where it takes the branch back.
pub async fn head_follows_a_push(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    let first = branches.push(&source).await;
    assert_eq!(reader.head(&app(), &source).await.unwrap(), Some(first.clone()));
    let second = branches.push(&source).await;
    assert_ne!(first, second);
    assert_eq!(reader.head(&app(), &source).await.unwrap(), Some(second));
    branches.push_back(&source, &first).await;
    assert_eq!(reader.head(&app(), &source).await.unwrap(), Some(first));
    Ok(())
}

/// A branch that is not there is no failure.
pub async fn head_of_no_branch_is_none(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    branches.push(&source).await;
    for gone in ["gone", "ma", "main2"] {
        assert_eq!(reader.head(&app(), &on(&source, gone)).await.unwrap(), None, "{gone}");
    }
    Ok(())
}

/// A source that does not answer is given up on, and may answer later.
pub async fn head_of_a_silent_source_is_unavailable(branches: &dyn Branches) -> Can {
    let source = branches.silent().await?;
    let error = branches.reader().head(&app(), &source).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
    Ok(())
}

/// A source that does not let the reader in says so.
pub async fn head_of_a_closed_source_is_denied(branches: &dyn Branches) -> Can {
    let source = branches.closed().await?;
    let error = branches.reader().head(&app(), &source).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    Ok(())
}

/// Returns the commits of a branch's log.
async fn logged(reader: &dyn BranchReader, source: &GitSource) -> Vec<Commit> {
    let log = reader.log(&app(), source).await.unwrap();
    log.commits().iter().map(|logged| logged.commit.clone()).collect()
}

/// The commits of the branch, each with its parents, and none of another branch.
pub async fn log_is_the_branchs(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    let mut pushed = Vec::new();
    for _ in 0..3 {
        pushed.push(branches.push(&source).await);
    }
    let other = on(&source, "feature/main");
    let theirs = branches.push(&other).await;
    let log = reader.log(&app(), &source).await.unwrap();
    assert_eq!(log.commits().first().map(|head| &head.commit), pushed.last());
    for (older, newer) in pushed.iter().zip(&pushed[1..]) {
        let logged = log.commits().iter().find(|logged| logged.commit == *newer);
        assert!(logged.is_some_and(|logged| logged.parents.contains(older)), "{log:?}");
        assert!(log.is_older(older, newer) && !log.is_older(newer, older), "{log:?}");
    }
    assert!(log.is_older(&pushed[0], &pushed[2]), "{log:?}");
    assert!(!logged(&*reader, &source).await.contains(&theirs));
    assert_eq!(logged(&*reader, &other).await.first(), Some(&theirs));
    Ok(())
}

/// What is pushed is seen, also where it takes the branch back: what it leaves is in the log no more.
pub async fn log_follows_a_push(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    let first = branches.push(&source).await;
    let second = branches.push(&source).await;
    assert_eq!(logged(&*reader, &source).await.first(), Some(&second));
    branches.push_back(&source, &first).await;
    let after = logged(&*reader, &source).await;
    assert_eq!((after.first(), after.contains(&second)), (Some(&first), false));
    Ok(())
}

/// A branch that is not there has no commits, and is no failure.
pub async fn log_of_no_branch_is_empty(branches: &dyn Branches) -> Can {
    let (reader, source) = (branches.reader(), branches.source());
    branches.push(&source).await;
    assert_eq!(logged(&*reader, &on(&source, "gone")).await, []);
    Ok(())
}

/// A source that does not answer is given up on, and may answer later.
pub async fn log_of_a_silent_source_is_unavailable(branches: &dyn Branches) -> Can {
    let source = branches.silent().await?;
    let error = branches.reader().log(&app(), &source).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
    Ok(())
}

/// A source that does not let the reader in says so.
pub async fn log_of_a_closed_source_is_denied(branches: &dyn Branches) -> Can {
    let source = branches.closed().await?;
    let error = branches.reader().log(&app(), &source).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    Ok(())
}
