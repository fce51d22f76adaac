-- Tenants that take turns, in queues that ask for it. `fairness.rs` explains how tenants are found and how a claim is shared out.

-- Finds the tenants that have messages waiting. Returns a header; then one row for each tenant among the new rows: the lowest
-- position of all its rows, and the lowest of its free rows, as far as it read; then one row for each tenant in p_known, in order.
create function {survey_tenants}(
  p_queue smallint, p_due_limit integer,
  -- Discovery reads new rows above the low-water mark p_low_water, and from the transaction's bound in p_lows when one of the
  -- transactions in p_xids has ended.
  p_low_water bigint, p_xids text[], p_lows bigint[], p_window integer,
  -- Known tenants, sorted by their bytes, and the position from which each is read, null to skip it. They are read when p_probe
  -- is set, or when there are more new rows than p_window.
  p_known text[], p_starts bigint[], p_probe boolean,
  -- Whether to search for unknown tenants between the known ones, with one index probe for each gap.
  p_gaps boolean)
returns table (
  snapshot text, next_age integer, last_position bigint, scanned_to bigint, window_full boolean,
  tenant text, live bigint, free bigint, probed boolean)
language plpgsql volatile
set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_from bigint;
  v_seen bigint;
  v_count integer;
  v_stray boolean;
  v_strays bigint[];
  v_tenants text[];
  v_lives bigint[];
  v_frees bigint[];
begin
  -- Messages that are due move to ready, with a position behind the other messages of their tenant.
  with due_rows as (
    delete from {scheduled} l where l.ctid = any(array(
      select w.ctid from {scheduled} w where w.queue = p_queue and w.due_at <= (select clock_timestamp())
      order by w.queue, w.due_at, w.id limit p_due_limit for update skip locked))
    returning l.*)
  insert into {ready} (staged_at, due_at, message_id, attempts, deliveries, queue, ordered, fair, payload, event_type,
                       content_type, key, tenant, subject, timer, headers, last_error, first_failed_at)
  select c.staged_at, c.due_at, c.message_id, c.attempts, c.deliveries, c.queue, c.ordered, true, c.payload, c.event_type,
         c.content_type, c.key, c.tenant, c.subject, c.timer, c.headers, c.last_error, c.first_failed_at
  from due_rows c order by c.due_at, c.id on conflict (message_id, (queue::integer)) do nothing;

  last_position := coalesce(pg_sequence_last_value('{message_position}'), 0);
  next_age := age('3'::xid);
  snapshot := pg_current_snapshot()::text;
  v_from := least(p_low_water, (
    select min(b.low) from unnest(p_xids, p_lows) b(x, low)
    where pg_visible_in_snapshot(b.x::xid8, snapshot::pg_snapshot)));
  select array_agg(t.tenant), array_agg(t.live), array_agg(t.free), max(t.last), sum(t.n), bool_or(t.stray)
  into v_tenants, v_lives, v_frees, v_seen, v_count, v_stray
  from (
    select s.tenant, min(s.id) as live, min(s.id) filter (where s.is_free) as free, max(s.id) as last, count(*) as n,
           bool_or(s.stray) as stray
    from (select r.id, (coalesce(r.tenant, '') collate "C") as tenant, r.lease_until <= (select clock_timestamp()) as is_free,
                 r.fair is not true
                   and (not r.ordered or (select not k.ordered from {queue} k where k.id = p_queue)) as stray
          from {ready} r where r.queue = p_queue and r.id > v_from order by r.queue, r.id limit p_window) s
    group by s.tenant) t;
  scanned_to := coalesce(v_seen, v_from);
  window_full := coalesce(v_count, 0) >= p_window;

  -- Staged by a producer that did not know yet that tenants take turns. Rows that are locked now are read again next time.
  if v_stray then
    v_strays := array(
      select r.id from {ready} r where r.queue = p_queue and r.id > v_from and r.id <= scanned_to and r.fair is not true
        -- Messages of a queue that became ordered meanwhile belong to their lanes.
        and (not r.ordered or (select not k.ordered from {queue} k where k.id = p_queue))
      order by r.queue, r.id);
    with made as (
      update {ready} r set fair = true where r.ctid = any(array(
        select l.ctid from unnest(v_strays) u(id), lateral (
          select w.ctid from {ready} w where w.queue = p_queue and w.id = u.id for update skip locked) l))
      returning r.id)
    select min(u.id) - 1 into v_seen from unnest(v_strays) u(id)
    where u.id not in (select m.id from made m)
      and exists (select from {ready} r where r.queue = p_queue and r.id = u.id offset 0);
    scanned_to := least(scanned_to, v_seen);
  end if;
  return next;

  return query
  select null::text, null::integer, null::bigint, null::bigint, null::boolean, u.tenant, u.live, u.free, false
  from unnest(v_tenants, v_lives, v_frees) u(tenant, live, free);

  if p_gaps then
    return query
    with recursive w(tenant, id, high) as (
      select f.tenant, f.id, g.high
      from unnest(array[''] || p_known, p_known || repeat(chr(1114111), 64)) g(low, high), lateral (
        select (coalesce(r.tenant, '') collate "C") as tenant, r.id from {ready} r
        where r.queue = p_queue and r.fair and (coalesce(r.tenant, '') collate "C") > g.low
          and (coalesce(r.tenant, '') collate "C") < g.high
        order by (coalesce(r.tenant, '') collate "C"), r.id limit 1) f
      union all
      select f.tenant, f.id, w.high from w, lateral (
        select (coalesce(r.tenant, '') collate "C") as tenant, r.id from {ready} r
        where r.queue = p_queue and r.fair and (coalesce(r.tenant, '') collate "C") > w.tenant
          and (coalesce(r.tenant, '') collate "C") < w.high
        order by (coalesce(r.tenant, '') collate "C"), r.id limit 1) f)
    select null::text, null::integer, null::bigint, null::bigint, null::boolean, w.tenant, w.id, w.id, false from w
    union all
    select null::text, null::integer, null::bigint, null::bigint, null::boolean, '', f.id, f.id, false
    from (select r.id from {ready} r
          where r.queue = p_queue and r.fair and (coalesce(r.tenant, '') collate "C") >= '' and (coalesce(r.tenant, '') collate "C") <= ''
          order by (coalesce(r.tenant, '') collate "C"), r.id limit 1) f
    where '' <> all(p_known);
  end if;

  if p_probe or window_full then
    return query
    select null::text, null::integer, null::bigint, null::bigint, null::boolean, k.tenant,
      (select r.id from {ready} r
       where r.queue = p_queue and r.fair and ((coalesce(r.tenant, '') collate "C"), r.id) > (k.tenant, k.start) and (coalesce(r.tenant, '') collate "C") <= k.tenant
       order by (coalesce(r.tenant, '') collate "C"), r.id limit 1),
      (select r.id from {ready} r
       where r.queue = p_queue and r.fair and ((coalesce(r.tenant, '') collate "C"), r.id) > (k.tenant, k.start) and (coalesce(r.tenant, '') collate "C") <= k.tenant
         and r.lease_until <= (select clock_timestamp())
       order by (coalesce(r.tenant, '') collate "C"), r.id limit 1), true
    from unnest(p_known, p_starts) k(tenant, start) where k.start is not null;
  end if;
end
$$;

-- Marks the next rows of a queue for the index by tenant. Returns the position at which to continue, and null at the end.
create function {mark_fair}(p_queue text, p_after bigint, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_queue smallint := (select q.id from {queue} q where q.name = p_queue and q.fair);
  v_last bigint;
begin
  select max(s.id) into v_last from (
    select r.id from {ready} r where r.queue = v_queue and r.id > p_after order by r.queue, r.id limit p_limit) s;
  update {ready} r set fair = true where r.fair is not true and r.ctid = any(array(
    select w.ctid from {ready} w where w.queue = v_queue and w.id > p_after and w.id <= v_last
    order by w.queue, w.id for update skip locked));
  return v_last;
end
$$;

revoke all on function {survey_tenants}, {mark_fair} from public;
