-- The configurations, sealed. The values, which are long, stand last, so that a list of the others does not read them.
CREATE TABLE configurations (
    app INTEGER NOT NULL,
    id BLOB NOT NULL, -- 16 bytes
    created_at INTEGER NOT NULL,
    key TEXT NOT NULL, -- the key that they are sealed with
    sealed BLOB NOT NULL,
    UNIQUE (app, id)
) STRICT;
CREATE INDEX configurations_by_key ON configurations (key);
