-- The evidence of a failed rollout is long: it stands behind the document, so that a page of deploys does not read it.
ALTER TABLE deploys ADD COLUMN evidence TEXT; -- JSON
