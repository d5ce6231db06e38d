-- Times are milliseconds since the Unix epoch.

-- The versions that the schema went through; the table also tells it from other programs' of its name.
CREATE TABLE rollhook.rollhook_schema (
    version integer PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The store's clock.
CREATE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The state of each app, and the columns that queries need of it. Half of each page is left free, so that the next version
-- of a row finds room on the page of the one before.
CREATE TABLE rollhook.apps (
    uid uuid PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    queued_at bigint,
    lease text COLLATE "C" NOT NULL, -- empty: no replica drives the app
    document text NOT NULL, -- JSON
    UNIQUE (namespace, name)
) WITH (fillfactor = 50);
CREATE INDEX apps_with_work ON rollhook.apps (lease, queued_at) WHERE queued_at IS NOT NULL;

-- The archive.
CREATE TABLE rollhook.deploys (
    app uuid NOT NULL,
    revision bigint NOT NULL,
    succeeded boolean NOT NULL,
    document text NOT NULL, -- JSON
    PRIMARY KEY (app, revision)
);
CREATE INDEX deploys_succeeded ON rollhook.deploys (app, revision) WHERE succeeded;

CREATE TABLE rollhook.keys (
    app uuid NOT NULL,
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
    boot bigint NOT NULL,
    seen_at bigint NOT NULL,
    ttl bigint NOT NULL
);

-- The foreign key also takes a token that is put while its app is being removed.
CREATE TABLE rollhook.tokens (
    app uuid PRIMARY KEY REFERENCES rollhook.apps ON DELETE CASCADE,
    sealed bytea NOT NULL,
    created_at bigint NOT NULL
);

-- The service's own records. Each write takes a version from the sequence, so that none is used again.
CREATE SEQUENCE rollhook.record_versions;
CREATE TABLE rollhook.records (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    document text NOT NULL, -- JSON
    created_at bigint NOT NULL,
    expires_at bigint,
    PRIMARY KEY (kind, key)
);
CREATE INDEX records_by_age ON rollhook.records (kind, created_at, key);
CREATE INDEX records_by_expiry ON rollhook.records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE rollhook.settings (name text PRIMARY KEY, value text NOT NULL);
