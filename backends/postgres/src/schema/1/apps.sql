-- The registrations.

-- created, or what it conflicts with: app, namespace.
CREATE FUNCTION rollhook.create_app(
    _uid text, _namespace text, _name text, _project text, _environment text, _body text, _policy text, _holds jsonb,
    OUT outcome text, OUT created_at bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _app bigint;
BEGIN
    PERFORM rollhook.be_durable();
    -- One at a time, until the end of the transaction: whose a namespace is, is not told by any one row.
    PERFORM pg_advisory_xact_lock('rollhook.apps'::regclass::oid::bigint);
    IF EXISTS (SELECT FROM rollhook.apps a
               WHERE a.namespace = _namespace AND (a.project <> _project OR a.environment <> _environment)) THEN
        outcome := 'namespace';
        RETURN;
    END IF;
    created_at := rollhook.clock();
    INSERT INTO rollhook.apps AS a (uid, namespace, name, project, environment, created_at, body, policy, holds)
    VALUES (_uid, _namespace, _name, _project, _environment, create_app.created_at, _body, _policy, _holds)
    ON CONFLICT DO NOTHING RETURNING a.id INTO _app;
    IF _app IS NULL THEN
        outcome := 'app';
        RETURN;
    END IF;
    INSERT INTO rollhook.heads (app, last_time, place)
    VALUES (_app, create_app.created_at, CASE WHEN rollhook.is_polled(_policy) THEN nextval('rollhook.places') END);
    outcome := 'created';
END
$$;

-- updated; app where the guard is another; gone.
CREATE FUNCTION rollhook.update_app(
    _uid text, _guard bigint, _source jsonb, _policy text, _holds jsonb,
    OUT outcome text, OUT created_at bigint, OUT body text, OUT policy text, OUT holds text, OUT guard bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _app bigint;
BEGIN
    PERFORM rollhook.be_durable();
    SELECT h.app, h.guard INTO _app, guard
    FROM rollhook.apps a JOIN rollhook.heads h ON h.app = a.id WHERE a.uid = _uid FOR UPDATE OF h;
    IF NOT FOUND THEN
        outcome := 'gone';
    ELSIF guard <> _guard THEN
        outcome := 'app';
    ELSE
        outcome := 'updated';
        guard := guard + 1;
        UPDATE rollhook.heads h
        SET guard = update_app.guard,
            place = CASE WHEN h.place IS NULL AND rollhook.is_polled(_policy)
                THEN nextval('rollhook.places') ELSE h.place END
        WHERE h.app = _app;
        UPDATE rollhook.apps a
        SET body = jsonb_set(a.body::jsonb, '{source}', _source)::text, policy = _policy, holds = _holds
        WHERE a.id = _app
        RETURNING a.created_at, a.body, a.policy, a.holds::text
        INTO update_app.created_at, update_app.body, update_app.policy, update_app.holds;
    END IF;
END
$$;

-- The app and its token go at once. Entries and keys, which can be many, belong to a number that is never used again: they
-- cannot be reached any more, and are deleted bit by bit.
CREATE FUNCTION rollhook.remove_app(_sender text, _uid text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _app bigint;
BEGIN
    PERFORM rollhook.be_durable();
    SELECT h.app INTO _app
    FROM rollhook.apps a JOIN rollhook.heads h ON h.app = a.id WHERE a.uid = _uid FOR UPDATE OF h;
    IF FOUND THEN
        DELETE FROM rollhook.apps a WHERE a.id = _app;
        INSERT INTO rollhook.leftovers (app) VALUES (_app);
        PERFORM rollhook.wake(_sender, ARRAY[_uid]);
    END IF;
END
$$;
