-- The evidence of a failed rollout is long: it stands beside the document, so that a page of deploys does not read it.
ALTER TABLE rollhook.deploys ADD COLUMN evidence text; -- JSON
