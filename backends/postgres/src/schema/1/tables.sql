-- What functions set for themselves, here and in the other files: how long they wait for a lock of somebody else, and that
-- they go from row to row by index. Plans are kept for as long as a session lives, and one that was made while a table was
-- empty would read all of it ever after. Costs count for nothing then, and nothing is worth compiling (jit).

-- The tables. Times are milliseconds since the Unix epoch; a revision of 0 means none.

-- The store's clock.
CREATE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- What seldom changes of an app. A number is never used again, so that what is left of a removed app belongs to nobody.
CREATE TABLE rollhook.apps (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uid text COLLATE "C" NOT NULL UNIQUE,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    body text NOT NULL, -- JSON: the registration as it was given; the next two are in force instead of what it says
    policy text NOT NULL, -- JSON
    holds jsonb NOT NULL,
    UNIQUE (namespace, name)
);

-- Whether an app of this policy has its source looked at for changes: such an app always has work.
CREATE FUNCTION rollhook.is_polled(_policy text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _policy::jsonb ->> 'poll_ms' IS NOT NULL
$$;

-- What every deploy changes of an app. Whoever changes anything of an app but its token locks this row first.
CREATE TABLE rollhook.heads (
    app bigint PRIMARY KEY REFERENCES rollhook.apps ON DELETE CASCADE,
    guard bigint NOT NULL DEFAULT 0,
    last_revision bigint NOT NULL DEFAULT 0,
    current_revision bigint NOT NULL DEFAULT 0,
    on_cluster bigint NOT NULL DEFAULT 0, -- the newest that touched the cluster
    ended_on_cluster bigint NOT NULL DEFAULT 0, -- the newest that touched it and ended
    last_restore bigint NOT NULL DEFAULT 0,
    unfinished bigint[] NOT NULL DEFAULT '{}', -- ascending
    touching bigint[] NOT NULL DEFAULT '{}', -- the unfinished ones that touched the cluster, which may be taken back
    place bigint, -- in the queue of apps with work
    owner bigint, -- the incarnation that drives it, or did last
    last_time bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX heads_with_work ON rollhook.heads (place) WHERE place IS NOT NULL;
CREATE INDEX heads_owned ON rollhook.heads (owner) WHERE owner IS NOT NULL;
CREATE SEQUENCE rollhook.places;

-- No index has a column that a change of an unfinished entry changes, so that its new version stays on its page.
CREATE TABLE rollhook.deploys (
    app bigint NOT NULL,
    revision bigint NOT NULL,
    step integer NOT NULL,
    ended boolean NOT NULL,
    succeeded boolean NOT NULL,
    touched boolean NOT NULL,
    superseded_by bigint, -- with the next: in force instead of the body's state
    by_rollback boolean,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    body text NOT NULL, -- JSON: all that has no column
    PRIMARY KEY (app, revision)
) WITH (fillfactor = 70);
CREATE INDEX deploys_succeeded ON rollhook.deploys (app, revision) WHERE succeeded;

CREATE TABLE rollhook.keys (
    app bigint NOT NULL,
    header smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    request bytea NOT NULL, -- SHA-256
    revision bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (app, header, key)
);
CREATE INDEX keys_by_expiry ON rollhook.keys (expires_at);

CREATE TABLE rollhook.replicas (
    name text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL,
    ttl bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE rollhook.tokens (
    app bigint PRIMARY KEY REFERENCES rollhook.apps ON DELETE CASCADE,
    sealed bytea NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE rollhook.settings (name text PRIMARY KEY, value text NOT NULL);

-- Removed apps whose entries and keys are deleted bit by bit.
CREATE TABLE rollhook.leftovers (app bigint PRIMARY KEY);
