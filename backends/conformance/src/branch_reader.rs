//! The promises of [`rollhook_core::ports::BranchReader`].

use rollhook_core::{Error, app::AppId, source::GitSource};

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
