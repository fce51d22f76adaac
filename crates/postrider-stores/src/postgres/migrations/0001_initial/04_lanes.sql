-- Order by key. A claim leases keys and returns several consecutive messages of each; a claim never updates message rows, and a
-- failed head stays where it is, so no message overtakes another. Functions, because each needs several fresh snapshots in one
-- round trip (READ COMMITTED: one per statement). Only nested loops: every look-up is a probe of the right index, whatever the
-- statistics say. In a look-up of a key's messages the row comparison and the order by (key, id) leave ready_key as the only index
-- that fits.
create function {claim_lanes}(
  p_queue smallint, p_token uuid, p_lease double precision, p_limit integer, p_lanes integer,
  -- Discovery reads new rows above the low-water mark p_low_water, and from the transaction's bound in p_lows when one of the
  -- transactions in p_xids has ended.
  p_low_water bigint, p_xids text[], p_lows bigint[], p_window integer,
  -- No open transaction can still insert a message at or below p_floor.
  p_floor bigint,
  -- The ring of lanes is read from this position.
  p_ring bigint)
returns table (
  header boolean, snapshot text, next_age integer, last_position bigint, scanned_to bigint, window_full boolean, ring_to bigint,
  lane_keys text[],
  id bigint, message_id uuid, payload bytea, event_type text, content_type text, key text, tenant text, subject text,
  headers text, staged_at timestamptz, due_at timestamptz, attempts integer, deliveries integer, isolated smallint,
  first_failed_at timestamptz, timer text)
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_from bigint;
  v_new text[];
  v_heads bigint[];
  v_scanned integer;
  v_stray boolean;
  v_began timestamptz := clock_timestamp();
  v_keys text[] := '{}';
  v_afters bigint[] := '{}';
  v_expired_leases integer[] := '{}';
  v_share integer;
  v_claimed record;
begin
  -- Timers that are due move to ready, with a position at the end of the queue.
  with due_rows as (
    delete from {scheduled} l where l.ctid = any(array(
      select w.ctid from {scheduled} w where w.queue = p_queue and w.due_at <= (select clock_timestamp())
      order by w.queue, w.due_at, w.id limit p_limit for update skip locked))
    returning l.*)
  insert into {ready} (staged_at, due_at, message_id, attempts, deliveries, queue, ordered, payload, event_type,
                       content_type, key, tenant, subject, timer, headers, last_error, first_failed_at)
  select c.staged_at, c.due_at, c.message_id, c.attempts, c.deliveries, c.queue, c.ordered, c.payload, c.event_type,
         c.content_type, c.key, c.tenant, c.subject, c.timer, c.headers, c.last_error, c.first_failed_at
  from due_rows c order by c.due_at, c.id on conflict (message_id, (queue::integer)) do nothing;

  -- Discovery comes first, because it alone may wait (for a transaction that is deleting a lane) and must hold no lock then.
  last_position := coalesce(pg_sequence_last_value('{message_position}'), 0);
  next_age := age('3'::xid);
  snapshot := pg_current_snapshot()::text;
  v_from := least(p_low_water, (
    select min(b.low) from unnest(p_xids, p_lows) b(x, low)
    where pg_visible_in_snapshot(b.x::xid8, snapshot::pg_snapshot)));
  loop
    select array_agg(k.key), array_agg(k.head), max(k.last), sum(k.n), bool_or(k.stray)
    into v_new, v_heads, scanned_to, v_scanned, v_stray
    from (
      select s.key, min(s.id) as head, max(s.id) as last, count(*) as n, bool_or(not s.ordered) as stray
      from (select r.id, coalesce(r.key, r.message_id::text) collate "C" as key, r.ordered
            from {ready} r where r.queue = p_queue and r.id > v_from
            order by r.queue, r.id limit p_window) s
      group by s.key order by s.key) k;
    exit when v_stray is not true;
    -- Staged by a producer that did not know yet that the queue is ordered.
    update {ready} r set ordered = true, key = coalesce(r.key, r.message_id::text)
    where r.ctid = any(array(
      select w.ctid from {ready} w where w.queue = p_queue and w.id > v_from
      order by w.queue, w.id limit p_window for update)) and not r.ordered;
  end loop;
  scanned_to := coalesce(scanned_to, v_from);
  window_full := coalesce(v_scanned, 0) >= p_window;
  -- Lanes of new keys are inserted with their lease, which saves a second write; but half of p_lanes stays for the ring.
  v_share := greatest(1, p_lanes / 2);
  if v_new is not null then
    for v_claimed in
      insert into {lane} (queue, key, after, token, lease_until)
      -- Below the first new message of the key, and below everything that an open transaction may still insert before it.
      -- A lane that exists now may be deleted before this insert: then its key joins the ring without a lease.
      select p_queue, u.key, least(u.head - 1, p_floor),
             case when u.is_leased then p_token end,
             case when u.is_leased then clock_timestamp() + p_lease * interval '1 s' else '-infinity' end
      from (
        select n.key, n.head, n.fresh and count(*) filter (where n.fresh) over (rows unbounded preceding) <= v_share as is_leased
        from (
          select d.key, d.head, not exists (
                   select from {lane} l where l.queue = p_queue and l.key = d.key offset 0) as fresh
          from unnest(v_new, v_heads) d(key, head)) n) u
      on conflict do nothing returning {lane}.key, {lane}.after, {lane}.token
    loop
      if v_claimed.token is not null then
        v_keys := v_keys || v_claimed.key; v_afters := v_afters || v_claimed.after; v_expired_leases := v_expired_leases || 0;
      end if;
    end loop;
    if clock_timestamp() > v_began + p_lease * interval '100 ms' then
      -- The insert had to wait for another transaction: the leases start now.
      update {lane} l set lease_until = clock_timestamp() + p_lease * interval '1 s'
      where l.ctid = any(array(
        select (select m.ctid from {lane} m where m.queue = p_queue and m.key = u.key) from unnest(v_keys) u(key)))
        and l.token = p_token;
    end if;
  end if;

  -- Keys whose retry is due.
  for v_claimed in
    update {lane} l set token = p_token, lease_until = clock_timestamp() + p_lease * interval '1 s', due_at = null,
                        reason = null, error = null
    where l.ctid = any(array(
      select w.ctid from {lane} w where w.queue = p_queue and w.due_at <= (select clock_timestamp())
      order by w.queue, w.due_at limit greatest(0, p_lanes - cardinality(v_keys)) for update skip locked))
    returning l.key, l.after, l.expired_leases
  loop
    v_keys := v_keys || v_claimed.key; v_afters := v_afters || v_claimed.after; v_expired_leases := v_expired_leases || v_claimed.expired_leases;
  end loop;

  -- The ring: keys that have more messages, and keys whose lease expired.
  ring_to := p_ring;
  for v_claimed in
    update {lane} l set token = p_token, lease_until = clock_timestamp() + p_lease * interval '1 s',
                        expired_leases = l.expired_leases + (l.token is not null)::integer
    where l.ctid = any(array(
      select w.ctid from {lane} w where w.queue = p_queue and w.due_at is null and w.turn > p_ring
        and w.lease_until <= clock_timestamp()
      order by w.queue, w.turn limit greatest(0, p_lanes - cardinality(v_keys)) for update skip locked))
    returning l.key, l.after, l.expired_leases, l.turn
  loop
    v_keys := v_keys || v_claimed.key; v_afters := v_afters || v_claimed.after; v_expired_leases := v_expired_leases || v_claimed.expired_leases;
    ring_to := greatest(ring_to, v_claimed.turn);
  end loop;

  header := true;
  lane_keys := v_keys;
  return next;

  -- In a statement of its own: in the snapshot that leased the lanes, messages that the previous owner has just settled would
  -- still be visible. A key whose lease expired gets its head alone, so that a message that crashes its workers is found.
  return query
  select false, null::text, null::integer, null::bigint, null::bigint, null::boolean, null::bigint, null::text[],
         m.id, m.message_id, m.payload, m.event_type, m.content_type, m.key, m.tenant, m.subject, m.headers::text,
         m.staged_at, m.due_at, m.attempts, m.deliveries + 1 + k.expired_leases, m.isolated, m.first_failed_at, m.timer
  from unnest(v_keys, v_afters, v_expired_leases) k(key, after, expired_leases),
       lateral (
         select r.* from {ready} r
         where r.queue = p_queue and (r.key, r.id) > (k.key, k.after) and r.key <= k.key and r.ordered
         order by r.key, r.id
         limit case when k.expired_leases > 0 then 1 else greatest(1, p_limit / greatest(1, cardinality(v_keys))) end) m;
end
$$;

-- Ends turns, or records progress in them. One entry per lane, sorted by (queue, key), so that locks are taken in one order.
-- Returns the indexes of the lanes whose lease was lost: nothing was changed for them.
create function {settle_lanes}(
  p_queue smallint[], p_key text[], p_token uuid[],
  p_end boolean[],
  -- Released without an attempt: the count of expired leases stays.
  p_release boolean[],
  -- The position of the message that failed; the seconds that its key waits (infinity parks it); whether the message is dead.
  p_failed bigint[], p_wait double precision[], p_dead boolean[], p_reason text[], p_error text[],
  p_floor bigint[],
  -- The messages that succeeded: the index of the lane among the arguments, and the position of the message.
  p_done_lane integer[], p_done bigint[])
returns integer[]
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_after bigint[];
  v_first bigint[];
  v_lane integer;
  v_expired_leases integer;
begin
  v_after := array(
    select (select l.after from {lane} l where l.queue = u.queue and l.key = u.key and l.token = u.token for update)
    from unnest(p_queue, p_key, p_token) u(queue, key, token));

  if cardinality(p_done) > 0 then
    with gone as (
      delete from {ready} r where r.ctid = any(array(
        select (select m.ctid from {ready} m where m.queue = p_queue[d.lane] and m.id = d.position)
        from unnest(p_done_lane, p_done) d(lane, position) where v_after[d.lane] is not null))
      returning r.*),
    kept as (
      insert into {archive} (id, staged_at, due_at, expires_at, message_id, attempts, deliveries, queue, ordered, payload,
                             event_type, content_type, key, tenant, subject, timer, headers, last_error)
      select g.id, g.staged_at, g.due_at,
             clock_timestamp() + (select q.keep_for from {queue} q where q.id = g.queue),
             g.message_id, g.attempts, g.deliveries + 1, g.queue, g.ordered, g.payload, g.event_type, g.content_type,
             g.key, g.tenant, g.subject, g.timer, g.headers, g.last_error
      from gone g where exists (select from {queue} q where q.id = g.queue and q.keep_for is not null offset 0))
    delete from {timer} t where t.ctid = any(array(
      select (select m.ctid from {timer} m where m.queue = g.queue and m.name = g.timer)
      from gone g where g.timer is not null));
  end if;

  for v_lane in
    select u.lane from unnest(p_failed, v_after) with ordinality u(failed, after, lane)
    where u.failed is not null and u.after is not null
  loop
    select l.expired_leases into v_expired_leases from {lane} l where l.queue = p_queue[v_lane] and l.key = p_key[v_lane];
    if p_dead[v_lane] then
      with gone as (
        delete from {ready} r where r.queue = p_queue[v_lane] and r.id = p_failed[v_lane] returning r.*),
      freed as (
        delete from {timer} t where t.ctid = any(array(
          select (select m.ctid from {timer} m where m.queue = g.queue and m.name = g.timer)
          from gone g where g.timer is not null)))
      insert into {dead} (id, staged_at, due_at, message_id, attempts, deliveries, queue, ordered, payload, reason,
                          event_type, content_type, key, tenant, subject, timer, headers, last_error)
      select g.id, g.staged_at, g.due_at, g.message_id, g.attempts + 1, g.deliveries + 1 + v_expired_leases, g.queue, g.ordered,
             g.payload, p_reason[v_lane], g.event_type, g.content_type, g.key, g.tenant, g.subject, g.timer, g.headers,
             p_error[v_lane]
      from gone g where (select q.dead_letters from {queue} q where q.id = g.queue);
    else
      update {ready} r set attempts = r.attempts + 1, deliveries = r.deliveries + 1 + v_expired_leases,
                           isolated = null, first_failed_at = coalesce(r.first_failed_at, clock_timestamp()),
                           due_at = coalesce(clock_timestamp() + nullif(p_wait[v_lane], 'infinity') * interval '1 s', r.due_at),
                           last_error = p_error[v_lane]
      where r.queue = p_queue[v_lane] and r.id = p_failed[v_lane];
    end if;
  end loop;

  -- The first remaining message of each key whose turn ends, in a fresh snapshot.
  v_first := array(
    select case when u.over and u.after is not null then (
      select r.id from {ready} r
      where r.queue = u.queue and (r.key, r.id) > (u.key, u.after) and r.key <= u.key and r.ordered
      order by r.key, r.id limit 1) end
    from unnest(p_queue, p_key, v_after, p_end) u(queue, key, after, over));

  -- `on conflict` is an update with a value per row that has one plan only: the probe of the primary key.
  insert into {lane} as held (queue, key, after, expired_leases, due_at, reason, error)
  select u.queue, u.key, greatest(u.after, least(u.first - 1, u.floor)),
         case when u.release then (select l.expired_leases from {lane} l where l.queue = u.queue and l.key = u.key) else 0 end,
         case when u.wait is null then null
              when u.wait = 'infinity' then 'infinity'::timestamptz
              else clock_timestamp() + u.wait * interval '1 s' end,
         u.reason, u.error
  from unnest(p_queue, p_key, v_after, p_end, p_release, v_first, p_floor, p_wait, p_reason, p_error)
    u(queue, key, after, over, release, first, floor, wait, reason, error)
  where u.over and u.after is not null and u.first is not null
  on conflict (queue, key) do update set
    token = null, lease_until = '-infinity', expired_leases = excluded.expired_leases, turn = excluded.turn, after = excluded.after,
    due_at = excluded.due_at,
    reason = case when excluded.due_at is not null then excluded.reason end,
    error = case when excluded.due_at is not null then excluded.error end;

  delete from {lane} l where l.ctid = any(array(
    select (select m.ctid from {lane} m where m.queue = u.queue and m.key = u.key)
    from unnest(p_queue, p_key, v_after, p_end, v_first) u(queue, key, after, over, first)
    where u.over and u.after is not null and u.first is null));

  -- A message that arrived meanwhile: either the claimer that discovered it saw the lane, and then this fresh snapshot shows the
  -- message; or that claimer waits for this delete and then inserts the lane itself. No message is orphaned.
  insert into {lane} (queue, key, after)
  select u.queue, u.key, u.after
  from unnest(p_queue, p_key, v_after, p_end, v_first) u(queue, key, after, over, first)
  where u.over and u.after is not null and u.first is null
    and exists (
      select from {ready} r
      where r.queue = u.queue and (r.key, r.id) > (u.key, u.after) and r.key <= u.key and r.ordered
      -- OFFSET keeps this a probe for each key: a join would read the whole index.
      order by r.key, r.id limit 1 offset 0)
  on conflict do nothing;

  return array(select u.lane::integer from unnest(v_after) with ordinality u(after, lane) where u.after is null);
end
$$;

revoke all on function {claim_lanes}, {settle_lanes} from public;
