-- Notifies the queues of a batch that have an idle worker. A transaction that is to be prepared for a two-phase commit must not
-- notify, and says so with the setting `notify`, named like the tables.
create function {signal}(p_queues smallint[]) returns void
language sql volatile as $$
  select pg_notify('{#signal}', q.name) from {queue} q
  where q.id = any(p_queues) and current_setting('{#notify}', true) is distinct from 'off'
    and exists (select from {idle} s where s.queue = q.id and s.until > clock_timestamp())
$$;

-- Whether nobody holds the lease of a message, nor that of its key.
create function {is_free}(p_queue smallint, p_key text, p_ordered boolean, p_token uuid, p_lease_until timestamptz)
returns boolean
language sql volatile as $$
  select (p_token is null or p_lease_until <= clock_timestamp())
    and not (p_ordered and exists (
      select from {lane} l where l.queue = p_queue and l.key = p_key and l.lease_until > clock_timestamp()))
$$;

-- Stages one named timer.
create function {stage_timer}(
  p_queue smallint, p_ordered boolean, p_id uuid, p_due timestamptz, p_timer text, p_extend boolean,
  p_payload bytea, p_event_type text, p_content_type text, p_key text, p_tenant text, p_subject text, p_headers jsonb,
  out outcome text, out id uuid)
language plpgsql volatile as $$
declare
  v_holder uuid;
begin
  loop
    insert into {timer} (queue, name, message_id) values (p_queue, p_timer, p_id) on conflict do nothing;
    if found then
      insert into {scheduled} (due_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant, subject,
                           timer, headers)
      values (p_due, p_id, p_queue, p_ordered, p_payload, p_event_type, p_content_type, p_key, p_tenant, p_subject,
              p_timer, p_headers);
      outcome := 'new'; id := p_id;
      return;
    end if;
    outcome := 'ignored'; id := p_id;
    if not p_extend then
      return;
    end if;
    -- The name itself is not locked: the settlement of the message needs it, and its batch would wait for this transaction.
    select t.message_id into v_holder from {timer} t where t.queue = p_queue and t.name = p_timer;
    continue when not found;
    outcome := 'extended'; id := v_holder;
    update {scheduled} l set
      due_at = greatest(l.due_at, p_due),
      payload = case when p_due > l.due_at then p_payload else l.payload end,
      event_type = case when p_due > l.due_at then p_event_type else l.event_type end,
      content_type = case when p_due > l.due_at then p_content_type else l.content_type end,
      key = case when p_due > l.due_at then p_key else l.key end,
      tenant = case when p_due > l.due_at then p_tenant else l.tenant end,
      subject = case when p_due > l.due_at then p_subject else l.subject end,
      headers = case when p_due > l.due_at then p_headers else l.headers end,
      attempts = case when p_due > l.due_at then 0 else l.attempts end,
      deliveries = case when p_due > l.due_at then 0 else l.deliveries end,
      first_failed_at = case when p_due <= l.due_at then l.first_failed_at end,
      last_error = case when p_due > l.due_at then null else l.last_error end
    where l.message_id = v_holder and l.queue + 0 = p_queue;
    if found then
      return;
    end if;
    -- A timer that is due and free is scheduled anew: it was released, or waits for a retry that is due soon. In an ordered queue it
    -- may be delivered at any moment, since the lease is that of its key.
    with freed as (
      delete from {ready} r where r.message_id = v_holder and r.queue + 0 = p_queue and r.due_at < p_due and not r.ordered
        and {is_free}(r.queue, r.key, r.ordered, r.token, r.lease_until)
      returning r.staged_at, r.message_id, r.queue, r.ordered)
    insert into {scheduled} (staged_at, due_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant,
                             subject, timer, headers)
    select f.staged_at, p_due, f.message_id, f.queue, f.ordered, p_payload, p_event_type, p_content_type, p_key, p_tenant,
           p_subject, p_timer, p_headers
    from freed f;
    if found then
      return;
    end if;
    select case when not r.ordered and {is_free}(r.queue, r.key, r.ordered, r.token, r.lease_until)
                then 'extended' else 'ignored' end
    into outcome from {ready} r where r.message_id = v_holder and r.queue + 0 = p_queue;
    if found then
      id := case outcome when 'extended' then v_holder else p_id end;
      return;
    end if;
    -- The message ended between two of these statements: its name is free, or belongs to another one.
  end loop;
end
$$;

-- Stages messages that need more than an insert: given ids, times, timers, queues that do not exist yet. Returns only the messages
-- that are not simply new. The function runs on the producer's connection, so it brings its planner settings along: every look-up
-- here is a probe of an index, whatever the statistics say.
create function {stage_many}(
  p_queues text[], p_queue smallint[], p_id uuid[], p_given boolean[], p_after double precision[], p_at timestamptz[],
  p_timer text[], p_extend boolean[], p_payload bytea[], p_event_type text[], p_content_type text[], p_key text[],
  p_tenant text[], p_subject text[], p_headers text[], p_notify boolean default true)
returns table (n integer, outcome text, id uuid)
language plpgsql volatile security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off set search_path = pg_catalog, pg_temp as $$
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
  -- Queues are created in one order, so that two producers that create the same queues cannot deadlock.
  perform {queue_id}(q.name) from (select u.name from unnest(p_queues) u(name) order by u.name collate "C") q;
  v_queue := array(select (select k.id from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_ordered := array(select (select k.ordered from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_fair := array(select (select k.fair from {queue} k where k.name = u.name) from unnest(p_queues) u(name));
  v_due := array(
    select coalesce(u.at, clock_timestamp() + coalesce(u.after, 0) * interval '1 s')
    from unnest(p_at, p_after) u(at, after));
  v_late := array(select u.due > (select clock_timestamp()) from unnest(v_due) u(due));
  -- The archive is touched only for given ids: the statement locks it, and so waits while its partitions change.
  if true = any(p_given) then
    v_known := array(
      select u.given and (
        exists (select from {ready} r where r.message_id = u.id and r.queue + 0 = v_queue[u.queue] offset 0)
        or exists (select from {scheduled} r where r.message_id = u.id and r.queue + 0 = v_queue[u.queue] offset 0)
        or exists (select from {dead} r where r.message_id = u.id and r.queue + 0 = v_queue[u.queue] offset 0)
        or exists (select from {archive} r where r.message_id = u.id and r.queue + 0 = v_queue[u.queue] offset 0))
      from unnest(p_id, p_given, p_queue) u(id, given, queue));
  else
    v_known := array(select false from unnest(p_id));
  end if;

  return query
  with input as materialized (
    select u.* from unnest(
      p_id, p_queue, v_due, v_late, v_known, p_timer, p_payload, p_event_type, p_content_type, p_key, p_tenant,
      p_subject, p_headers) with ordinality
      u(id, queue, due, late, known, timer, payload, event_type, content_type, key, tenant, subject, headers, n)
  ), ready_now as (
    insert into {ready} (message_id, queue, ordered, fair, due_at, payload, event_type, content_type, key, tenant,
                         subject, headers)
    select i.id, v_queue[i.queue], v_ordered[i.queue], v_fair[i.queue], i.due, i.payload, i.event_type, i.content_type,
           case when v_ordered[i.queue] then coalesce(i.key, i.id::text) else i.key end,
           i.tenant, i.subject, i.headers::jsonb
    from input i where not i.known and not i.late and i.timer is null
    on conflict (message_id, (queue::integer)) do nothing returning message_id, {ready}.queue
  ), ready_later as (
    insert into {scheduled} (message_id, queue, ordered, due_at, payload, event_type, content_type, key, tenant, subject,
                         headers)
    select i.id, v_queue[i.queue], v_ordered[i.queue], i.due, i.payload, i.event_type, i.content_type,
           case when v_ordered[i.queue] then coalesce(i.key, i.id::text) else i.key end,
           i.tenant, i.subject, i.headers::jsonb
    from input i where not i.known and i.late and i.timer is null
    on conflict (message_id, queue) do nothing returning message_id, {scheduled}.queue
  )
  select i.n::integer, 'duplicate'::text, i.id from input i
  where i.known
  union all
  -- Not known when v_known was read, and yet not stored: another transaction committed the same message in between.
  select i.n::integer, 'duplicate'::text, i.id from input i
  where (select count(*) from ready_now) + (select count(*) from ready_later)
        <> (select count(*) from input c where not c.known and c.timer is null)
    and not i.known and i.timer is null
    and (v_queue[i.queue], i.id) not in (select s.queue, s.message_id from (table ready_now union all table ready_later) s);

  v_signal := array(
    select distinct v_queue[u.queue] from unnest(p_queue, v_late, v_known, p_timer) u(queue, late, known, timer)
    where not u.late and not u.known and u.timer is null);
  for v_row in
    select u.n::integer as n, v_queue[u.queue] as queue, u.late, f.outcome, f.id
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
    if v_row.outcome <> 'new' then
      n := v_row.n; outcome := v_row.outcome; id := v_row.id;
      return next;
    elsif not v_row.late then
      v_signal := v_signal || v_row.queue;
    end if;
  end loop;
  if p_notify then
    perform {signal}(v_signal);
  end if;
end
$$;

-- Stages messages that are new, due at once and for one queue. A driver that keeps no prepared statements would have the server
-- parse and plan the INSERT for every call; here the session keeps the plan. An empty array stands for a column that no message
-- uses. Returns the number of messages staged: zero when the queue does not exist yet.
create function {stage_new}(
  p_queue text, p_id uuid[], p_payload bytea[], p_event_type text[], p_content_type text[], p_key text[], p_tenant text[],
  p_subject text[], p_headers text[])
returns bigint
language plpgsql volatile as $$
declare
  v_staged bigint;
begin
  -- OFFSET makes the look-up of idle workers run once, not once for each row.
  insert into {ready} (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject, headers)
  select k.id, k.ordered, k.fair, case when k.ordered then coalesce(u.key, u.message_id::text) else u.key end,
         u.message_id, u.payload, u.event_type, u.content_type, u.tenant, u.subject, u.headers::jsonb
  from (select q.id, q.ordered, q.fair,
               (select count(pg_notify('{#signal}', p_queue)) from {idle} s
                where s.queue = q.id and s.until > clock_timestamp()
                  and current_setting('{#notify}', true) is distinct from 'off') as signalled
        from {queue} q where q.name = p_queue offset 0) k,
       unnest(p_id, p_payload, p_event_type, p_content_type, p_key, p_tenant, p_subject, p_headers)
         u(message_id, payload, event_type, content_type, key, tenant, subject, headers)
  where k.signalled >= 0;
  get diagnostics v_staged = row_count;
  return v_staged;
end
$$;

revoke all on function {signal}, {is_free}, {stage_timer}, {stage_many}, {stage_new} from public;
