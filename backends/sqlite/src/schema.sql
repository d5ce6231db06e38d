CREATE TABLE apps (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that no app inherits what a removed one has left
    uid BLOB NOT NULL UNIQUE, -- 16 bytes
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    environment TEXT NOT NULL,
    version INTEGER NOT NULL,
    queued_at INTEGER, -- milliseconds since the epoch; so is every time
    lease TEXT, -- a replica's name#boot
    document TEXT NOT NULL, -- the state, as JSON
    UNIQUE (namespace, name)
) STRICT;
CREATE INDEX apps_with_work ON apps (queued_at, lease) WHERE queued_at IS NOT NULL;

-- The archive, in the order in which deploys ended: those of one commit lie on the same pages.
CREATE TABLE deploys (
    id INTEGER PRIMARY KEY,
    app INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    document TEXT NOT NULL, -- JSON
    UNIQUE (app, revision)
) STRICT;

CREATE TABLE keys (
    app INTEGER NOT NULL,
    header INTEGER NOT NULL,
    key TEXT NOT NULL,
    request BLOB NOT NULL, -- SHA-256
    revision INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (app, header, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_by_expiry ON keys (expires_at);

CREATE TABLE tokens (app INTEGER PRIMARY KEY, sealed BLOB NOT NULL, created_at INTEGER NOT NULL) STRICT;

CREATE TABLE records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- the version: each write makes a row, whose id is never used again
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    document TEXT NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (kind, key)
) STRICT;
CREATE INDEX records_by_age ON records (kind, created_at, key);
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE replicas (
    name TEXT PRIMARY KEY,
    boot INTEGER NOT NULL,
    ttl INTEGER NOT NULL, -- milliseconds
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE removed (app INTEGER PRIMARY KEY) STRICT; -- apps whose deploys are deleted bit by bit
