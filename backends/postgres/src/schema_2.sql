-- The evidence of a failed rollout is long: it stands beside the document, so that a page of deploys does not read it.
ALTER TABLE rollhook.deploys ADD COLUMN evidence text; -- JSON

-- A deploy that is forgotten takes its keys along.
CREATE INDEX keys_by_revision ON rollhook.keys (app, revision);
