-- What is read for every deploy. A function that is STABLE reads at one point in time, that of the statement that calls it;
-- and the server keeps its plans, though the statement that calls it is planned anew each time.

-- Registrations and tokens by name, those that exist.
CREATE FUNCTION rollhook.look_up(_names json)
RETURNS TABLE (
    item integer, uid text, created_at bigint, body text, policy text, holds text, guard bigint,
    sealed text, token_created_at bigint
)
LANGUAGE plpgsql STABLE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _wanted record;
BEGIN
    FOR _wanted IN SELECT w.* FROM json_to_recordset(_names) w (item integer, namespace text, name text) LOOP
        RETURN QUERY
            SELECT _wanted.item, a.uid, a.created_at, a.body, a.policy, a.holds::text, h.guard,
                   encode(t.sealed, 'hex'), t.created_at
            FROM rollhook.apps a
            JOIN rollhook.heads h ON h.app = a.id
            LEFT JOIN rollhook.tokens t ON t.app = a.id
            WHERE a.namespace = _wanted.namespace AND a.name = _wanted.name;
    END LOOP;
END
$$;

-- Apps as decisions need them: a row of the app itself, then rows of its entries, both with its uid.
CREATE FUNCTION rollhook.views(_uids json)
RETURNS TABLE (
    uid text, now bigint, created_at bigint, body text, policy text, holds text, guard bigint,
    last_revision bigint, current_revision bigint, on_cluster bigint, last_restore bigint, unfinished bigint[],
    entry rollhook.entry
)
LANGUAGE plpgsql STABLE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _now bigint := rollhook.clock();
    _uid text;
    _app record;
BEGIN
    FOR _uid IN SELECT json_array_elements_text(_uids) LOOP
        SELECT a.created_at, a.body, a.policy, a.holds, h.* INTO _app
        FROM rollhook.apps a JOIN rollhook.heads h ON h.app = a.id WHERE a.uid = _uid;
        CONTINUE WHEN NOT FOUND;
        uid := _uid;
        now := greatest(_now, _app.last_time);
        created_at := _app.created_at;
        body := _app.body;
        policy := _app.policy;
        holds := _app.holds;
        guard := _app.guard;
        last_revision := _app.last_revision;
        current_revision := _app.current_revision;
        on_cluster := _app.on_cluster;
        last_restore := _app.last_restore;
        unfinished := _app.unfinished;
        entry := NULL;
        RETURN NEXT;
        body := NULL;
        FOR entry IN
            SELECT d.revision, d.step, d.superseded_by, d.by_rollback, d.created_at, d.updated_at, d.body
            FROM rollhook.deploys d
            WHERE d.app = _app.app AND d.revision = ANY (_app.unfinished || _app.current_revision || _app.on_cluster)
        LOOP
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;
