-- The actions of operators. Each writes its audit row in the same transaction, or does nothing.

-- Requeues dead letters under their ids, with their counters at zero. On an ordered queue each returns to its old position, and the
-- cursor of its key moves back with it, so that it runs before later messages; elsewhere it gets a new position, so that claimers
-- that have passed the old one find it.
create function {requeue}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile security definer set enable_hashjoin = off set enable_mergejoin = off set search_path = pg_catalog, pg_temp as $$
declare
  v_ordered boolean := (select q.ordered from {queue} q where q.id = p_queue);
  v_fair boolean := (select q.fair from {queue} q where q.id = p_queue);
  v_back uuid[];
begin
  with gone as (
    delete from {dead} d where d.ctid = any(array(
      select s.ctid from unnest(p_ids) u(id), lateral (
        select m.ctid from {dead} m where m.message_id = u.id and m.queue + 0 = p_queue offset 0) s))
    returning d.*),
  returned as materialized (select g.* from gone g order by g.id),
  back as (
    insert into {ready} (id, staged_at, message_id, queue, ordered, fair, payload, event_type, content_type, key,
                         tenant, subject, headers)
    select case when v_ordered then l.id when pg_current_xact_id() is not null then nextval('{message_position}') end,
           l.staged_at, l.message_id, l.queue, v_ordered, v_fair, l.payload, l.event_type, l.content_type,
           case when v_ordered then coalesce(l.key, l.message_id::text) else l.key end, l.tenant, l.subject, l.headers
    from returned l on conflict (message_id, (queue::integer)) do nothing returning id, message_id, key),
  -- In the order of keys, so that two transactions that requeue the same keys wait for each other and do not deadlock.
  lanes as (
    insert into {lane} as l (queue, key, after)
    select p_queue, b.key, min(b.id) - 1 from back b where v_ordered group by b.key order by b.key
    on conflict (queue, key) do update set after = least(l.after, excluded.after))
  select coalesce(array_agg(b.message_id), '{}') into v_back from back b;
  if cardinality(v_back) = 0 then
    return v_back;
  end if;
  insert into {audit} (actor, why, verb, queue, message_ids) values (p_actor, p_why, 'requeue', p_queue, v_back);
  perform {signal}(array[p_queue]);
  return v_back;
end
$$;

-- Removes messages that are not in flight.
create function {discard}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile security definer set enable_hashjoin = off set enable_mergejoin = off set search_path = pg_catalog, pg_temp as $$
declare
  v_gone uuid[];
  v_timers text[];
begin
  -- Messages of leased keys stay: the lock on a lane keeps its key from being claimed meanwhile.
  perform 1 from (
    select distinct r.key from unnest(p_ids) u(id), lateral (
      select m.key from {ready} m where m.message_id = u.id and m.queue + 0 = p_queue and m.ordered offset 0) r
    order by r.key) k, lateral (
    select l.key from {lane} l where l.queue = p_queue and l.key = k.key for update) l;
  with ready as (
    delete from {ready} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue
      and (r.token is null or r.lease_until <= clock_timestamp())
      and not (r.ordered and exists (
        select from {lane} l where l.queue = r.queue and l.key = r.key and l.lease_until > clock_timestamp() offset 0))
    returning r.message_id, r.timer),
  scheduled as (
    delete from {scheduled} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, r.timer),
  dead as (
    delete from {dead} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, null::text),
  archived as (
    delete from {archive} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, null::text),
  gone as (table ready union all table scheduled union all table dead union all table archived)
  select coalesce(array_agg(g.message_id), '{}'), array_agg(g.timer) filter (where g.timer is not null)
  into v_gone, v_timers from gone g;
  if cardinality(v_gone) = 0 then
    return v_gone;
  end if;
  delete from {timer} t where t.queue = p_queue and t.name = any(v_timers);
  insert into {audit} (actor, why, verb, queue, message_ids) values (p_actor, p_why, 'discard', p_queue, v_gone);
  return v_gone;
end
$$;

-- Lets a parked or waiting key run again.
create function {release_key}(p_queue smallint, p_key text, p_actor text, p_why text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {lane} l set due_at = null, turn = nextval('{turn}'), reason = null, error = null
  where l.queue = p_queue and l.key = p_key and l.due_at is not null;
  if not found then
    return false;
  end if;
  insert into {audit} (actor, why, verb, queue, key) values (p_actor, p_why, 'release_key', p_queue, p_key);
  perform {signal}(array[p_queue]);
  return true;
end
$$;

-- Delivers archived messages once more, as `requeue` does with dead letters: out of the archive and into ready, under their own
-- ids. Not one function with `requeue`: a statement that may delete from either table would lock every partition of the archive for
-- each dead letter.
create function {replay}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_ordered boolean := (select q.ordered from {queue} q where q.id = p_queue);
  v_fair boolean := (select q.fair from {queue} q where q.id = p_queue);
  v_back uuid[];
begin
  with gone as (
    delete from {archive} a where a.message_id = any(p_ids) and a.queue + 0 = p_queue returning a.*),
  returned as materialized (select g.* from gone g order by g.archived_at, g.id),
  back as (
    insert into {ready} (id, staged_at, message_id, queue, ordered, fair, payload, event_type, content_type, key,
                         tenant, subject, headers)
    select case when v_ordered then l.id when pg_current_xact_id() is not null then nextval('{message_position}') end,
           l.staged_at, l.message_id, l.queue, v_ordered, v_fair, l.payload, l.event_type, l.content_type,
           case when v_ordered then coalesce(l.key, l.message_id::text) else l.key end, l.tenant, l.subject, l.headers
    from returned l on conflict (message_id, (queue::integer)) do nothing returning id, message_id, key),
  lanes as (
    insert into {lane} as l (queue, key, after)
    select p_queue, b.key, min(b.id) - 1 from back b where v_ordered group by b.key order by b.key
    on conflict (queue, key) do update set after = least(l.after, excluded.after))
  select coalesce(array_agg(b.message_id), '{}') into v_back from back b;
  if cardinality(v_back) = 0 then
    return v_back;
  end if;
  insert into {audit} (actor, why, verb, queue, message_ids) values (p_actor, p_why, 'replay', p_queue, v_back);
  perform {signal}(array[p_queue]);
  return v_back;
end
$$;

-- Copies of archived messages are staged, or sent elsewhere: writes the audit row that names the originals.
create function {audit_replay}(p_queue text, p_ids uuid[], p_actor text, p_why text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {audit} (actor, why, verb, queue, message_ids)
  select p_actor, p_why, 'replay', q.id, p_ids from {queue} q where q.name = p_queue;
end
$$;

-- Cancels a timer and writes the audit row.
create function {drop_timer}(p_queue smallint, p_timer text, p_actor text, p_why text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id uuid;
begin
  select t.message_id into v_id from {timer} t where t.queue = p_queue and t.name = p_timer for update;
  if not found or not {cancel_timer}((select q.name from {queue} q where q.id = p_queue), p_timer) then
    return false;
  end if;
  insert into {audit} (actor, why, verb, queue, message_ids, key)
  values (p_actor, p_why, 'cancel_timer', p_queue, array[v_id], p_timer);
  return true;
end
$$;

revoke all on function {requeue}, {discard}, {release_key}, {replay}, {audit_replay}, {drop_timer} from public;
