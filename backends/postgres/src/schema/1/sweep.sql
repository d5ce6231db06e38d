-- What is done beside the calls.

-- Deletes some of what nobody needs: expired keys, and what removed apps have left. Says whether there may be more. What
-- another process deletes, or writes, is left to it.
CREATE FUNCTION rollhook.sweep(_most integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _now bigint := rollhook.clock();
    _keys integer;
    _app bigint;
    _left integer;
    _deleted integer;
BEGIN
    DELETE FROM rollhook.keys k WHERE k.ctid = ANY (ARRAY(
        SELECT e.ctid FROM rollhook.keys e
        WHERE e.expires_at <= _now ORDER BY e.expires_at LIMIT _most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS _keys = ROW_COUNT;
    SELECT l.app INTO _app FROM rollhook.leftovers l LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN _keys = _most;
    END IF;
    DELETE FROM rollhook.deploys d WHERE d.ctid = ANY (ARRAY(
        SELECT e.ctid FROM rollhook.deploys e WHERE e.app = _app LIMIT _most));
    GET DIAGNOSTICS _left = ROW_COUNT;
    DELETE FROM rollhook.keys k WHERE k.ctid = ANY (ARRAY(
        SELECT e.ctid FROM rollhook.keys e WHERE e.app = _app LIMIT _most));
    GET DIAGNOSTICS _deleted = ROW_COUNT;
    IF _left + _deleted = 0 THEN
        DELETE FROM rollhook.leftovers l WHERE l.app = _app;
    END IF;
    RETURN true;
END
$$;
