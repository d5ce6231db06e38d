-- Who drives which app: signs of life, and the queue of apps with work. A claim that changes nothing writes nothing.

-- Names the apps that this incarnation drives from now on, those that wait longest first. Of two that claim at once, each
-- app is named by one. That an incarnation is alive is decided anew once its app is locked; and an incarnation that may
-- have been taken for dead waits for those locks before it names what it had.
CREATE FUNCTION rollhook.claim(_name text, _incarnation bigint, _ttl bigint, _limit bigint)
RETURNS TABLE (now bigint, uid text)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
DECLARE
    _now bigint := rollhook.clock();
    _left bigint;
    _others bigint[];
    _mine bigint[];
    _free bigint[];
BEGIN
    SELECT r.expires_at - _now INTO _left
    FROM rollhook.replicas r WHERE r.name = _name AND r.incarnation = _incarnation AND r.ttl = _ttl;
    -- A sign of life is worth a write once a tenth of its time is over. One that seems to last longer than its time was
    -- given before the clock was set back.
    IF _left IS NULL OR _left <= _ttl - _ttl / 10 OR _left > _ttl THEN
        INSERT INTO rollhook.replicas (name, incarnation, ttl, expires_at)
        VALUES (_name, _incarnation, _ttl, _now + _ttl)
        ON CONFLICT (name) DO UPDATE
        SET incarnation = excluded.incarnation, ttl = excluded.ttl, expires_at = excluded.expires_at;
        -- Names of processes that have long been gone, such as a deleted pod's. One that comes back just now has its row
        -- locked, and may wait for ours.
        DELETE FROM rollhook.replicas r WHERE r.name = ANY (ARRAY(
            SELECT o.name FROM rollhook.replicas o
            WHERE o.name <> _name AND o.expires_at < _now - 24 * 3600 * 1000 FOR UPDATE SKIP LOCKED));
        IF _left IS NULL OR _left < _ttl / 2 OR _left > _ttl THEN
            PERFORM FROM rollhook.heads h WHERE h.owner = _incarnation ORDER BY h.app FOR UPDATE;
        END IF;
    END IF;

    _mine := ARRAY(
        SELECT h.app FROM rollhook.heads h
        WHERE h.place IS NOT NULL AND h.owner = _incarnation ORDER BY h.place LIMIT _limit);
    IF cardinality(_mine) < _limit THEN
        _others := rollhook.alive_but(_name);
        _free := ARRAY(
            SELECT h.app FROM rollhook.heads h
            WHERE h.place IS NOT NULL AND (h.owner IS NULL OR h.owner <> ALL (_others || _incarnation))
            ORDER BY h.place LIMIT _limit - cardinality(_mine) FOR UPDATE SKIP LOCKED);
        IF cardinality(_free) > 0 THEN
            _others := rollhook.alive_but(_name);
            UPDATE rollhook.heads h SET owner = _incarnation
            WHERE h.app = ANY (_free) AND h.place IS NOT NULL AND (h.owner IS NULL OR h.owner <> ALL (_others));
        END IF;
    END IF;
    RETURN QUERY
        SELECT _now, NULL::text
        UNION ALL
        (SELECT NULL, a.uid FROM rollhook.heads h JOIN rollhook.apps a ON a.id = h.app
         WHERE h.app = ANY (_mine || _free) AND h.owner = _incarnation AND h.place IS NOT NULL ORDER BY h.place);
END
$$;

-- The incarnations of other names that are alive.
CREATE FUNCTION rollhook.alive_but(_name text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := rollhook.clock();
BEGIN
    RETURN ARRAY(
        SELECT r.incarnation FROM rollhook.replicas r
        WHERE r.name <> _name AND r.expires_at > _now AND r.expires_at - _now <= r.ttl);
END
$$;

-- Frees all that the incarnation had, apps at rest too. A late farewell of an earlier incarnation ends nothing of the
-- present one.
CREATE FUNCTION rollhook.give_up(_name text, _incarnation bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '3s' SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $$
BEGIN
    DELETE FROM rollhook.replicas r WHERE r.name = _name AND r.incarnation = _incarnation;
    PERFORM FROM rollhook.heads h WHERE h.owner = _incarnation ORDER BY h.app FOR UPDATE;
    UPDATE rollhook.heads h SET owner = NULL WHERE h.owner = _incarnation;
    RETURN rollhook.clock();
END
$$;
