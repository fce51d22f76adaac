-- Tenants that take turns, where a queue asks for it. Each tenant has a line of its own in an index, and messages without one
-- are in the line without a name; queues that do not ask have nothing in it. A claim changes no column of it, so claims
-- stay HOT updates. `fair.rs` tells how lines are found and shared out.

-- Either true or nothing: what is null takes no room in a row, and no time when a claim has to find out whether it has
-- changed an indexed column.
alter table {queue} add column fair boolean;
alter table {queue} add constraint {#queue_fair} check (fair is null or (fair and not ordered));
alter table {ready} add column fair boolean;
create index {#ready_tenant} on {ready} (queue, (coalesce(tenant, '') collate "C"), id) where fair;

-- Finds the tenants that have something waiting. Answers with a header; then one row for each tenant that it came upon: the
-- oldest place that lives, and the oldest that is free, as far as it looked; then one for each tenant in p_known, in order.
create function {survey_tenants}(
  p_queue smallint, p_come integer,
  -- Discovery reads new rows above p_mark, and from lower down when one of the transactions in p_xids has ended.
  p_mark bigint, p_xids text[], p_lows bigint[], p_window integer,
  -- Tenants that are known, sorted by their bytes, and from where each is looked at, if it is: in any case, or when there is more
  -- that is new than discovery reads at once.
  p_known text[], p_starts bigint[], p_probe boolean,
  -- Whether to look for tenants between those that are known, with a probe for each.
  p_gaps boolean)
returns table (
  snapshot text, next_age integer, last_place bigint, scanned_to bigint, window_full boolean,
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
  -- What has come due takes its place at the end of its tenant's line.
  with come as (
    delete from {later} l where l.ctid = any(array(
      select w.ctid from {later} w where w.queue = p_queue and w.due_at <= (select clock_timestamp())
      order by w.queue, w.due_at, w.id limit p_come for update skip locked))
    returning l.*)
  insert into {ready} (staged_at, due_at, message_id, attempts, deliveries, queue, ordered, fair, payload, event_type,
                       content_type, key, tenant, subject, timer, headers, last_error)
  select c.staged_at, c.due_at, c.message_id, c.attempts, c.deliveries, c.queue, c.ordered, true, c.payload, c.event_type,
         c.content_type, c.key, c.tenant, c.subject, c.timer, c.headers, c.last_error
  from come c order by c.due_at, c.id on conflict do nothing;

  last_place := coalesce(pg_sequence_last_value('{place}'), 0);
  next_age := age('3'::xid);
  snapshot := pg_current_snapshot()::text;
  v_from := least(p_mark, (
    select min(b.low) from unnest(p_xids, p_lows) b(x, low)
    where pg_visible_in_snapshot(b.x::xid8, snapshot::pg_snapshot)));
  select array_agg(t.tenant), array_agg(t.live), array_agg(t.free), max(t.last), sum(t.n), bool_or(t.stray)
  into v_tenants, v_lives, v_frees, v_seen, v_count, v_stray
  from (
    select s.tenant, min(s.id) as live, min(s.id) filter (where s.is_free) as free, max(s.id) as last, count(*) as n,
           bool_or(s.stray) as stray
    from (select r.id, (coalesce(r.tenant, '') collate "C") as tenant, r.lease_until <= (select clock_timestamp()) as is_free,
                 r.fair is not true as stray
          from {ready} r where r.queue = p_queue and r.id > v_from order by r.queue, r.id limit p_window) s
    group by s.tenant) t;
  scanned_to := coalesce(v_seen, v_from);
  window_full := coalesce(v_count, 0) >= p_window;

  -- Staged by somebody who did not know yet that tenants take turns. What somebody has locked is looked at again.
  if v_stray then
    v_strays := array(
      select r.id from {ready} r where r.queue = p_queue and r.id > v_from and r.id <= scanned_to and r.fair is not true
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
revoke all on function {survey_tenants} from public;

-- Puts the next rows of a queue into the lines of their tenants. Answers where to go on, and with null at the end.
create function {line_up}(p_queue text, p_after bigint, p_limit integer) returns bigint
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
revoke all on function {line_up} from public;

drop function {declare_queue};
create function {declare_queue}(
  p_name text, p_ordered boolean, p_on_failure text, p_keep_for interval, p_dead_letters boolean,
  -- Without a word on it, it stays as it is: a program that does not know of turns yet declares nothing about them.
  p_fair boolean default null)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_queue record;
begin
  perform {queue_id}(p_name);
  select * into v_queue from {queue} q where q.name = p_name for update;
  if v_queue.ordered <> p_ordered then
    -- Whoever is staging now finishes first, and is seen.
    lock table {ready}, {later} in share row exclusive mode;
    if exists (select from {ready} r where r.queue = v_queue.id order by r.queue, r.id limit 1)
       or exists (select from {later} r where r.queue = v_queue.id order by r.queue, r.due_at, r.id limit 1) then
      return false;
    end if;
  end if;
  update {queue} q set ordered = p_ordered, on_failure = p_on_failure, keep_for = p_keep_for,
                       dead_letters = p_dead_letters, fair = case when p_fair is null then q.fair when p_fair then true end
  where q.id = v_queue.id;
  perform {make_days}();
  return true;
end
$$;
revoke all on function {declare_queue} from public;

-- What follows is as it was, and lets each new row know whether its tenants take turns.

create or replace function {stage_many}(
  p_queues text[], p_queue smallint[], p_id uuid[], p_given boolean[], p_after double precision[], p_at timestamptz[],
  p_timer text[], p_extend boolean[], p_payload bytea[], p_event_type text[], p_content_type text[], p_key text[],
  p_tenant text[], p_subject text[], p_headers text[])
returns table (n integer, fate text, id uuid)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_queue smallint[];
  v_ordered boolean[];
  v_fair boolean[];
  v_due timestamptz[];
  v_late boolean[];
  v_known boolean[];
  v_signal smallint[];
  v_row record;
begin
  -- Made in one order, so that two producers of new queues cannot wait for each other.
  perform {queue_id}(q.name) from (select u.name from unnest(p_queues) u(name) order by u.name collate "C") q;
  v_queue := array(select (select k.id from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_ordered := array(select (select k.ordered from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_fair := array(select (select k.fair from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_due := array(
    select coalesce(u.at, clock_timestamp() + coalesce(u.after, 0) * interval '1 s')
    from unnest(p_at, p_after) u(at, after));
  v_late := array(select u.due > (select clock_timestamp()) from unnest(v_due) u(due));
  v_known := array(
    select case when u.given then
      exists (select from {ready} r where r.message_id = u.id and r.queue = v_queue[u.queue] offset 0)
      or exists (select from {later} r where r.message_id = u.id and r.queue = v_queue[u.queue] offset 0)
      or exists (select from {dead} r where r.message_id = u.id and r.queue = v_queue[u.queue] offset 0)
      or exists (select from {archive} r where r.message_id = u.id and r.queue = v_queue[u.queue] offset 0)
    else false end
    from unnest(p_id, p_given, p_queue) u(id, given, queue));

  return query
  with input as materialized (
    select u.* from unnest(
      p_id, p_queue, v_due, v_late, v_known, p_timer, p_payload, p_event_type, p_content_type, p_key, p_tenant,
      p_subject, p_headers) with ordinality
      u(id, queue, due, late, known, timer, payload, event_type, content_type, key, tenant, subject, headers, n)
  ), at_once as (
    insert into {ready} (message_id, queue, ordered, fair, due_at, payload, event_type, content_type, key, tenant,
                         subject, headers)
    select i.id, v_queue[i.queue], v_ordered[i.queue], v_fair[i.queue], i.due, i.payload, i.event_type, i.content_type,
           case when v_ordered[i.queue] then coalesce(i.key, i.id::text) else i.key end,
           i.tenant, i.subject, i.headers::jsonb
    from input i where not i.known and not i.late and i.timer is null
    on conflict do nothing returning message_id, {ready}.queue
  ), waits as (
    insert into {later} (message_id, queue, ordered, due_at, payload, event_type, content_type, key, tenant, subject,
                         headers)
    select i.id, v_queue[i.queue], v_ordered[i.queue], i.due, i.payload, i.event_type, i.content_type,
           case when v_ordered[i.queue] then coalesce(i.key, i.id::text) else i.key end,
           i.tenant, i.subject, i.headers::jsonb
    from input i where not i.known and i.late and i.timer is null
    on conflict do nothing returning message_id, {later}.queue
  )
  select i.n::integer, 'duplicate'::text, i.id from input i
  where i.known
  union all
  -- Not known when we looked, and yet not stored: somebody else committed the same message in between.
  select i.n::integer, 'duplicate'::text, i.id from input i
  where (select count(*) from at_once) + (select count(*) from waits)
        <> (select count(*) from input c where not c.known and c.timer is null)
    and not i.known and i.timer is null
    and (v_queue[i.queue], i.id) not in (select s.queue, s.message_id from (table at_once union all table waits) s);

  v_signal := array(
    select distinct v_queue[u.queue] from unnest(p_queue, v_late, v_known, p_timer) u(queue, late, known, timer)
    where not u.late and not u.known and u.timer is null);
  for v_row in
    select u.n::integer as n, v_queue[u.queue] as queue, u.late, f.fate, f.id
    from unnest(p_id, p_queue, v_due, v_late, v_known, p_timer, p_extend, p_payload, p_event_type, p_content_type, p_key,
                p_tenant, p_subject, p_headers) with ordinality
      u(id, queue, due, late, known, timer, extend, payload, event_type, content_type, key, tenant, subject, headers,
        n),
      lateral {stage_timer}(
        v_queue[u.queue], v_ordered[u.queue], u.id, u.due, u.timer, u.extend, u.payload, u.event_type, u.content_type,
        case when v_ordered[u.queue] then coalesce(u.key, u.id::text) else u.key end,
        u.tenant, u.subject, u.headers::jsonb) f
    where u.timer is not null and not u.known
  loop
    if v_row.fate <> 'new' then
      n := v_row.n; fate := v_row.fate; id := v_row.id;
      return next;
    elsif not v_row.late then
      v_signal := v_signal || v_row.queue;
    end if;
  end loop;
  perform {signal}(v_signal);
end
$$;

create or replace function {stage_new}(
  p_queue text, p_id uuid[], p_payload bytea[], p_event_type text[], p_content_type text[], p_key text[], p_tenant text[],
  p_subject text[], p_headers text[])
returns bigint
language plpgsql volatile as $$
declare
  v_staged bigint;
begin
  -- OFFSET keeps the look-up of sleepers out of the rows.
  insert into {ready} (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject, headers)
  select k.id, k.ordered, k.fair, case when k.ordered then coalesce(u.key, u.message_id::text) else u.key end,
         u.message_id, u.payload, u.event_type, u.content_type, u.tenant, u.subject, u.headers::jsonb
  from (select q.id, q.ordered, q.fair,
               (select count(pg_notify('{#signal}', p_queue)) from {sleeper} s
                where s.queue = q.id and s.until > clock_timestamp()) as signalled
        from {queue} q where q.name = p_queue offset 0) k,
       unnest(p_id, p_payload, p_event_type, p_content_type, p_key, p_tenant, p_subject, p_headers)
         u(message_id, payload, event_type, content_type, key, tenant, subject, headers)
  where k.signalled >= 0;
  get diagnostics v_staged = row_count;
  return v_staged;
end
$$;

create or replace function {stage}(
  queue text, payload bytea, type text default null, key text default null, tenant text default null,
  subject text default null, content_type text default null, headers jsonb default null, id uuid default null,
  due_at timestamptz default null, due_after interval default null, timer text default null,
  on_conflict text default 'ignore', correlation_id text default null, causation_id text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  -- The arguments, under names that are no column's.
  v_queue text := coalesce($1, '');
  v_payload bytea := $2;
  v_type text := $3;
  v_key text := $4;
  v_tenant text := $5;
  v_subject text := $6;
  v_content_type text := nullif($7, 'application/json');
  v_headers jsonb := $8;
  -- Without an identity: one of version 7, so that new rows lie together in the index.
  v_id uuid := coalesce($9, encode(set_bit(set_bit(overlay(
    uuid_send(gen_random_uuid())
    placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    from 1 for 6), 52, 1), 53, 1), 'hex')::uuid);
  v_at timestamptz := $10;
  v_after double precision := extract(epoch from $11)::double precision;
  v_timer text := $12;
  v_on_conflict text := coalesce($13, 'ignore');
  v_correlation_id text := $14;
  v_causation_id text := $15;
  v_traceparent text := $16;
  v_fate text;
  v_holder uuid;
begin
  perform {check_text}('queue', 255, true, v_queue);
  if v_at is not null and v_after is not null then
    raise exception using errcode = '22023',
      message = 'due_at: cannot be combined with due_after: give one of the two';
  elsif v_after < 0 then
    raise exception using errcode = '22023', message = 'due_after: must not be negative';
  elsif v_after > 36600 * 86400::double precision then
    raise exception using errcode = '22023', message = 'due_after: lies more than 100 years ahead';
  elsif v_at < to_timestamp(0) then
    raise exception using errcode = '22023',
      message = 'due_at: lies before 1970; leave it out for a message that is due now';
  elsif v_at > to_timestamp(2 * 36600 * 86400::double precision) then
    raise exception using errcode = '22023', message = 'due_at: lies after the year 2170';
  end if;
  perform {check_text}('timer', 255, false, v_timer);
  if v_on_conflict not in ('ignore', 'extend') then
    raise exception using errcode = '22023', message = 'on_conflict: must be ignore or extend';
  end if;
  perform {check_text}('type', 255, true, v_type);
  perform {check_text}('key', 255, false, v_key);
  perform {check_text}('tenant', 255, false, v_tenant);
  perform {check_text}('subject', 255, false, v_subject);
  perform {check_text}('content_type', 255, false, v_content_type);
  perform {check_text}('correlation_id', 255, false, v_correlation_id);
  perform {check_text}('causation_id', 255, false, v_causation_id);
  if v_traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' or v_traceparent ~ '^ff'
     or v_traceparent ~ '^..-0{32}' or v_traceparent ~ '-0{16}-..$' then
    raise exception using errcode = '22023', message = 'traceparent: is not a W3C trace context such as '
      || '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  end if;
  v_headers := {check_headers}(v_headers) || jsonb_strip_nulls(jsonb_build_object(
    'correlation-id', v_correlation_id, 'causation-id', v_causation_id, 'traceparent', v_traceparent));
  if v_payload is null then
    raise exception using errcode = '22023', message = 'payload: is missing';
  elsif octet_length(v_payload) > 16777216 then
    raise exception using errcode = '22023', message = format(
      'payload: is %s bytes long; at most 16777216 bytes are allowed', octet_length(v_payload));
  end if;

  -- Due now, without an identity or a name, in a queue that exists: nothing can stand in its way.
  if $9 is null and v_timer is null and v_at is null and coalesce(v_after, 0) = 0 then
    insert into {ready} (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject,
                         headers)
    select k.id, k.ordered, k.fair, case when k.ordered then coalesce(v_key, v_id::text) else v_key end, v_id, v_payload, v_type,
           v_content_type, v_tenant, v_subject, nullif(v_headers, '{}')
    from {queue} k where k.name = v_queue;
    if found then
      -- As `signal` does it; in place, since a function of language sql is planned anew for each message.
      perform pg_notify('{#signal}', k.name) from {queue} k
      where k.name = v_queue
        and exists (select from {sleeper} s where s.queue = k.id and s.until > clock_timestamp());
      return v_id;
    end if;
  end if;
  select s.fate, s.id into v_fate, v_holder from {stage_many}(
    array[v_queue], array[1::smallint], array[v_id], array[$9 is not null], array[nullif(v_after, 0)], array[v_at],
    array[v_timer], array[v_on_conflict = 'extend'], array[v_payload], array[v_type], array[v_content_type],
    array[v_key], array[v_tenant], array[v_subject], array[nullif(v_headers, '{}')::text]) s;
  return case when v_fate is null then v_id when v_fate <> 'ignored' then v_holder end;
end
$$;

create or replace function {requeue}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_ordered boolean := (select q.ordered from {queue} q where q.id = p_queue);
  v_fair boolean := (select q.fair from {queue} q where q.id = p_queue);
  v_back uuid[];
  v_row record;
begin
  with gone as (
    delete from {dead} d where d.ctid = any(array(
      select s.ctid from unnest(p_ids) u(id), lateral (
        select m.ctid from {dead} m where m.message_id = u.id and m.queue = p_queue offset 0) s))
    returning d.*),
  line as materialized (select g.* from gone g order by g.failed_at, g.id),
  back as (
    insert into {ready} (id, staged_at, message_id, queue, ordered, fair, payload, event_type, content_type, key,
                         tenant, subject, headers)
    select case when v_ordered then l.id when pg_current_xact_id() is not null then nextval('{place}') end,
           l.staged_at, l.message_id, l.queue, v_ordered, v_fair, l.payload, l.event_type, l.content_type,
           case when v_ordered then coalesce(l.key, l.message_id::text) else l.key end, l.tenant, l.subject, l.headers
    from line l on conflict do nothing returning message_id)
  select coalesce(array_agg(b.message_id), '{}') into v_back from back b;
  if cardinality(v_back) = 0 then
    return v_back;
  end if;
  if v_ordered then
    for v_row in
      select r.key, min(r.id) as first
      from unnest(v_back) u(id), lateral (
        select m.key, m.id from {ready} m where m.message_id = u.id and m.queue = p_queue offset 0) r
      group by r.key order by r.key
    loop
      insert into {lane} as l (queue, key, after) values (p_queue, v_row.key, v_row.first - 1)
      on conflict (queue, key) do update set after = least(l.after, excluded.after);
    end loop;
  end if;
  insert into {audit} (actor, why, verb, queue, message_ids) values (p_actor, p_why, 'requeue', p_queue, v_back);
  perform {signal}(array[p_queue]);
  return v_back;
end
$$;
