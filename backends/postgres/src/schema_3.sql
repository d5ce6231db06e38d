-- The configurations, sealed. The foreign key also takes one that is put while its app is being removed.
CREATE TABLE rollhook.configurations (
    app uuid NOT NULL REFERENCES rollhook.apps ON DELETE CASCADE,
    id uuid NOT NULL,
    created_at bigint NOT NULL,
    key text COLLATE "C" NOT NULL, -- the key that it is sealed with
    sealed bytea NOT NULL,
    PRIMARY KEY (app, id)
);
-- Sealed values cannot be compressed.
ALTER TABLE rollhook.configurations ALTER COLUMN sealed SET STORAGE EXTERNAL;
CREATE INDEX configurations_by_key ON rollhook.configurations (key);
