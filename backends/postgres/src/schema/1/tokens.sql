-- The sealed tokens, and the management token's hash.

-- NULL where the app is gone. Its row is locked, so that no token is put for an app that is just being removed.
CREATE FUNCTION rollhook.put_token(_uid text, _sealed bytea) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _app record;
    _time bigint;
BEGIN
    PERFORM rollhook.be_durable();
    SELECT a.id, a.created_at INTO _app FROM rollhook.apps a WHERE a.uid = _uid FOR KEY SHARE;
    IF FOUND THEN
        INSERT INTO rollhook.tokens AS t (app, sealed, created_at)
        VALUES (_app.id, _sealed, greatest(rollhook.clock(), _app.created_at))
        ON CONFLICT (app) DO UPDATE
        SET sealed = excluded.sealed, created_at = greatest(excluded.created_at, t.created_at)
        RETURNING t.created_at INTO _time;
    END IF;
    RETURN _time;
END
$$;

CREATE FUNCTION rollhook.remove_token(_uid text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
BEGIN
    PERFORM rollhook.be_durable();
    DELETE FROM rollhook.tokens t USING rollhook.apps a WHERE a.uid = _uid AND t.app = a.id;
END
$$;

-- Puts tokens that were sealed anew in the place of those that are still what they were; says how many those are.
CREATE FUNCTION rollhook.replace_tokens(_tokens json) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _replaced bigint;
BEGIN
    PERFORM rollhook.be_durable();
    UPDATE rollhook.tokens t SET sealed = decode(n.new, 'hex')
    FROM json_to_recordset(_tokens) n (app bigint, old text, new text)
    WHERE t.app = n.app AND t.sealed = decode(n.old, 'hex');
    GET DIAGNOSTICS _replaced = ROW_COUNT;
    RETURN _replaced;
END
$$;

CREATE FUNCTION rollhook.set(_name text, _value text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
BEGIN
    PERFORM rollhook.be_durable();
    INSERT INTO rollhook.settings (name, value) VALUES (_name, _value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
END
$$;
