-- The evidence of a failed rollout is long: it stands behind the document, so that a page of deploys does not read it.
ALTER TABLE deploys ADD COLUMN evidence TEXT; -- JSON

-- A deploy that is forgotten takes its keys along.
CREATE INDEX keys_by_revision ON keys (app, revision);
