-- Accepts and records. They come in batches, one statement each, and a batch shares one commit.
--
-- A function that is VOLATILE takes a new snapshot for each of its statements, so that what follows a lock sees all that
-- was committed before the lock was had: keys, guard, newest revision and fullness are decided on under it.

-- A call of a batch: an accept, or a record.
CREATE TYPE rollhook.call AS (
    item integer, -- its number in the batch
    uid text,
    admits boolean,
    -- An accept:
    body text,
    header smallint,
    key text,
    request text, -- hexadecimal
    key_millis bigint, -- how long the key is kept
    guard bigint,
    after bigint, -- 0: there was none; NULL: not asked
    supersedes boolean,
    rollback boolean,
    restore boolean,
    hold jsonb,
    -- A record:
    claim bigint,
    changes json, -- of rollhook.change
    lift bigint[],
    rest boolean
);

CREATE TYPE rollhook.change AS (
    revision bigint,
    step integer,
    ended boolean,
    succeeded boolean,
    touched boolean,
    body text
);

-- An entry as it is read.
CREATE TYPE rollhook.entry AS (
    revision bigint,
    step integer,
    superseded_by bigint,
    by_rollback boolean,
    created_at bigint,
    updated_at bigint,
    body text
);

-- What a call came to: new, replay, reused, stale, full, recorded; busy, where somebody else keeps the app locked; or what it
-- conflicts with: app, claim, deploy.
CREATE TYPE rollhook.answer AS (
    outcome text,
    superseded bigint[],
    entry rollhook.entry
);

CREATE FUNCTION rollhook.admit(
    _call rollhook.call, _unfinished_max integer, _holds_max integer, INOUT head rollhook.heads, OUT answer rollhook.answer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _time bigint := greatest(rollhook.clock(), head.last_time);
    _revision bigint := head.last_revision + 1;
    _known record;
    _entry rollhook.entry;
BEGIN
    IF _call.key IS NOT NULL THEN
        SELECT k.revision, k.request INTO _known FROM rollhook.keys k
        WHERE k.app = head.app AND k.header = _call.header AND k.key = _call.key AND k.expires_at > _time;
        IF FOUND THEN
            IF _known.request <> decode(_call.request, 'hex') THEN
                answer.outcome := 'reused';
                RETURN;
            END IF;
            answer.outcome := 'replay';
            SELECT d.revision, d.step, d.superseded_by, d.by_rollback, d.created_at, d.updated_at, d.body
            INTO _entry
            FROM rollhook.deploys d WHERE d.app = head.app AND d.revision = _known.revision;
            answer.entry := _entry;
            RETURN;
        END IF;
    END IF;
    IF _call.guard <> head.guard OR _call.after <> head.last_revision THEN
        answer.outcome := 'stale';
        RETURN;
    END IF;
    IF NOT _call.supersedes AND cardinality(head.unfinished) >= _unfinished_max THEN
        answer.outcome := 'full';
        RETURN;
    END IF;

    answer.outcome := 'new';
    answer.entry := (_revision, 0, NULL, NULL, _time, _time, NULL)::rollhook.entry;
    IF _call.supersedes AND cardinality(head.unfinished) > 0 THEN
        UPDATE rollhook.deploys d
        SET step = d.step + 1, ended = true, superseded_by = _revision, by_rollback = _call.rollback, updated_at = _time
        WHERE d.app = head.app AND d.revision = ANY (head.unfinished);
        answer.superseded := head.unfinished;
        head.ended_on_cluster := head.on_cluster;
        head.unfinished := '{}';
        head.touching := '{}';
    END IF;
    IF _call.hold IS NOT NULL THEN
        UPDATE rollhook.apps a
        SET holds = CASE WHEN jsonb_array_length(a.holds) < _holds_max THEN a.holds ELSE a.holds - 0 END
            || jsonb_set(_call.hold, '{by}', to_jsonb(_revision))
        WHERE a.id = head.app;
        head.guard := head.guard + 1;
    END IF;
    INSERT INTO rollhook.deploys
        (app, revision, step, ended, succeeded, touched, created_at, updated_at, body)
    VALUES (head.app, _revision, 0, false, false, false, _time, _time, _call.body);
    IF _call.key IS NOT NULL THEN
        INSERT INTO rollhook.keys (app, header, key, request, revision, expires_at)
        VALUES (head.app, _call.header, _call.key, decode(_call.request, 'hex'), _revision, _time + _call.key_millis)
        ON CONFLICT (app, header, key) DO UPDATE -- one that expired
        SET request = excluded.request, revision = excluded.revision, expires_at = excluded.expires_at;
    END IF;
    head.last_revision := _revision;
    head.unfinished := head.unfinished || _revision;
    head.last_time := _time;
    IF _call.restore THEN
        head.last_restore := _revision;
    END IF;
    IF head.place IS NULL THEN
        head.place := nextval('rollhook.places');
    END IF;
END
$$;

CREATE FUNCTION rollhook.record(_call rollhook.call, INOUT head rollhook.heads, OUT answer rollhook.answer)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _time bigint := greatest(rollhook.clock(), head.last_time);
    _change rollhook.change;
    _seen bigint[] := '{}';
BEGIN
    IF _call.claim IS NOT NULL AND (
        head.owner IS DISTINCT FROM _call.claim
        OR NOT EXISTS (SELECT FROM rollhook.replicas r WHERE r.incarnation = _call.claim)
    ) THEN
        answer.outcome := 'claim';
        RETURN;
    END IF;
    FOR _change IN SELECT c.* FROM json_populate_recordset(NULL::rollhook.change, _call.changes) c LOOP
        PERFORM FROM rollhook.deploys d
        WHERE d.app = head.app AND d.revision = _change.revision AND d.step = _change.step - 1 AND NOT d.ended;
        IF NOT FOUND OR _change.revision = ANY (_seen) THEN
            answer.outcome := 'deploy';
            RETURN;
        END IF;
        _seen := _seen || _change.revision;
    END LOOP;

    answer.outcome := 'recorded';
    FOR _change IN SELECT c.* FROM json_populate_recordset(NULL::rollhook.change, _call.changes) c LOOP
        UPDATE rollhook.deploys d
        SET step = _change.step, ended = _change.ended, succeeded = _change.succeeded, touched = _change.touched,
            updated_at = _time, body = _change.body
        WHERE d.app = head.app AND d.revision = _change.revision;
        head.last_time := _time;
        head.touching := array_remove(head.touching, _change.revision);
        IF _change.ended THEN
            head.unfinished := array_remove(head.unfinished, _change.revision);
            IF _change.touched THEN
                head.ended_on_cluster := greatest(head.ended_on_cluster, _change.revision);
            END IF;
            IF _change.succeeded THEN
                head.current_revision := greatest(head.current_revision, _change.revision);
            END IF;
        ELSIF _change.touched THEN
            head.touching := head.touching || _change.revision;
        END IF;
    END LOOP;
    head.on_cluster := greatest(head.ended_on_cluster, (SELECT max(t.revision) FROM unnest(head.touching) t (revision)));
    IF cardinality(_call.lift) > 0 THEN
        UPDATE rollhook.apps a
        SET holds = (
            SELECT coalesce(jsonb_agg(h.hold ORDER BY h.number), '[]')
            FROM jsonb_array_elements(a.holds) WITH ORDINALITY h (hold, number)
            WHERE (h.hold ->> 'by')::bigint <> ALL (_call.lift))
        WHERE a.id = head.app;
        head.guard := head.guard + 1;
    END IF;
    IF _call.rest AND cardinality(head.unfinished) = 0
        AND NOT EXISTS (SELECT FROM rollhook.apps a WHERE a.id = head.app AND rollhook.is_polled(a.policy))
    THEN
        -- It stays its owner's for as long as that one lives: what comes next is driven without another claim.
        head.place := NULL;
    ELSIF head.place IS NULL THEN
        head.place := nextval('rollhook.places');
    END IF;
END
$$;

-- Writes a head back, where it was changed.
CREATE FUNCTION rollhook.save(_stored rollhook.heads, _head rollhook.heads) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _head IS DISTINCT FROM _stored THEN
        UPDATE rollhook.heads h
        SET (guard, last_revision, current_revision, on_cluster, ended_on_cluster, last_restore, unfinished, touching,
             place, last_time)
          = (_head.guard, _head.last_revision, _head.current_revision, _head.on_cluster, _head.ended_on_cluster,
             _head.last_restore, _head.unfinished, _head.touching, _head.place, _head.last_time)
        WHERE h.app = _head.app;
    END IF;
END
$$;

-- Tells the other processes which apps to look at, once the transaction is committed.
CREATE FUNCTION rollhook.wake(_sender text, _uids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- PostgreSQL keeps what one slow listener of whatever program has not heard yet, and where there is too much of it,
    -- refuses to commit. Hearing it late is better.
    IF cardinality(_uids) > 0 AND pg_notification_queue_usage() < 0.5 THEN
        -- A payload must be shorter than 8000 bytes; without any uid it means: some app.
        PERFORM pg_notify('rollhook', _sender || ':' || CASE WHEN cardinality(_uids) <= 200 THEN array_to_string(_uids, ',') ELSE '' END);
    END IF;
END
$$;

-- What was answered survives a crash of the server, whatever its default is.
CREATE FUNCTION rollhook.be_durable() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- Waits for an app that somebody else has locked, while there is time left, and gives its head; NULL where the app is gone.
-- Apart from the loop, because what catches an error costs a subtransaction, and an app is seldom locked.
CREATE FUNCTION rollhook.wait_for_head(_app bigint, _until timestamptz, OUT head rollhook.heads, OUT busy boolean)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s' AS $$ -- until it is set to what is left
DECLARE
    _left integer := floor(extract(epoch FROM _until - clock_timestamp()) * 1000);
BEGIN
    busy := _left <= 0;
    IF NOT busy THEN
        BEGIN
            PERFORM set_config('lock_timeout', _left::text, true);
            SELECT h.* INTO head FROM rollhook.heads h WHERE h.app = _app FOR UPDATE;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            busy := true;
        END;
    END IF;
END
$$;

-- All calls of a batch, each in its order among those of its app. Apps are locked in the order of their numbers, so that
-- two batches never wait for each other. An app that somebody keeps locked is nobody else's trouble: its calls are busy, once
-- the batch has waited for a second in all. Commits of other writers are waited for by that.
CREATE FUNCTION rollhook.write(_sender text, _unfinished_max integer, _holds_max integer, _calls json)
RETURNS TABLE (item integer, outcome text, superseded bigint[], entry rollhook.entry)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _until timestamptz := clock_timestamp() + interval '1 second';
    _next record;
    _app bigint;
    _head rollhook.heads;
    _stored rollhook.heads;
    _waited record;
    _busy boolean;
    _done record;
    _woken text[] := '{}';
BEGIN
    PERFORM rollhook.be_durable();
    FOR _next IN
        SELECT c AS call, a.id AS app
        FROM json_populate_recordset(NULL::rollhook.call, _calls) c LEFT JOIN rollhook.apps a ON a.uid = c.uid
        ORDER BY a.id, c.item
    LOOP
        IF _next.app IS DISTINCT FROM _app THEN
            PERFORM rollhook.save(_stored, _head);
            _app := _next.app;
            _busy := false;
            SELECT h.* INTO _head FROM rollhook.heads h WHERE h.app = _app FOR UPDATE SKIP LOCKED;
            IF NOT FOUND AND _app IS NOT NULL THEN
                _waited := rollhook.wait_for_head(_app, _until);
                _head := _waited.head;
                _busy := _waited.busy;
            END IF;
            _stored := _head;
        END IF;
        item := (_next.call).item;
        IF _head.app IS NULL THEN
            outcome := CASE WHEN _busy THEN 'busy' ELSE 'app' END;
            superseded := NULL;
            entry := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF (_next.call).admits THEN
            _done := rollhook.admit(_next.call, _unfinished_max, _holds_max, _head);
        ELSE
            _done := rollhook.record(_next.call, _head);
        END IF;
        _head := _done.head;
        outcome := (_done.answer).outcome;
        superseded := (_done.answer).superseded;
        entry := (_done.answer).entry;
        RETURN NEXT;
        IF outcome IN ('new', 'recorded') AND (_next.call).uid <> ALL (_woken) THEN
            _woken := _woken || (_next.call).uid;
        END IF;
    END LOOP;
    PERFORM rollhook.save(_stored, _head);
    PERFORM rollhook.wake(_sender, _woken);
END
$$;
