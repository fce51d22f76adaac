-- What operators do. Each writes what it did in the same transaction, or does nothing.

-- Dead letters go back under their identity, counted from zero. On an ordered queue each goes to its old place, and the
-- cursor of its key back with it, so that it runs before what came later; elsewhere it gets a new place, so that claimers
-- that have passed the old one find it.
create function {requeue}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_ordered boolean := (select q.ordered from {queue} q where q.id = p_queue);
  v_fair boolean := (select q.fair from {queue} q where q.id = p_queue);
  v_back uuid[];
begin
  with gone as (
    delete from {dead} d where d.ctid = any(array(
      select s.ctid from unnest(p_ids) u(id), lateral (
        select m.ctid from {dead} m where m.message_id = u.id and m.queue = p_queue offset 0) s))
    returning d.*),
  line as materialized (select g.* from gone g order by g.id),
  back as (
    insert into {ready} (id, staged_at, message_id, queue, ordered, fair, payload, event_type, content_type, key,
                         tenant, subject, headers)
    select case when v_ordered then l.id when pg_current_xact_id() is not null then nextval('{place}') end,
           l.staged_at, l.message_id, l.queue, v_ordered, v_fair, l.payload, l.event_type, l.content_type,
           case when v_ordered then coalesce(l.key, l.message_id::text) else l.key end, l.tenant, l.subject, l.headers
    from line l on conflict do nothing returning id, message_id, key),
  -- In the order of keys, so that two who put back the same keys wait for each other and do not deadlock.
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

-- Removes messages that nobody has in hand.
create function {discard}(p_queue smallint, p_ids uuid[], p_actor text, p_why text) returns uuid[]
language plpgsql volatile set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_gone uuid[];
  v_timers text[];
begin
  -- Keys in hand are not touched: locking their lanes keeps them from being claimed meanwhile.
  perform 1 from (
    select distinct r.key from unnest(p_ids) u(id), lateral (
      select m.key from {ready} m where m.message_id = u.id and m.queue = p_queue and m.ordered offset 0) r
    order by r.key) k, lateral (
    select l.key from {lane} l where l.queue = p_queue and l.key = k.key for update) l;
  with ready as (
    delete from {ready} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue
      and (r.token is null or r.lease_until <= clock_timestamp())
      and not (r.ordered and exists (
        select from {lane} l where l.queue = r.queue and l.key = r.key and l.leased_until > clock_timestamp() offset 0))
    returning r.message_id, r.timer),
  later as (
    delete from {later} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, r.timer),
  dead as (
    delete from {dead} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, null::text),
  archived as (
    delete from {archive} r where r.message_id = any(p_ids) and r.queue + 0 = p_queue returning r.message_id, null::text),
  gone as (table ready union all table later union all table dead union all table archived)
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

-- Lets a blocked key run again.
create function {release_key}(p_queue smallint, p_key text, p_actor text, p_why text) returns boolean
language plpgsql volatile as $$
begin
  update {lane} l set due = null, seq = nextval('{turn}'), reason = null, error = null
  where l.queue = p_queue and l.key = p_key and l.due is not null;
  if not found then
    return false;
  end if;
  insert into {audit} (actor, why, verb, queue, key) values (p_actor, p_why, 'release_key', p_queue, p_key);
  perform {signal}(array[p_queue]);
  return true;
end
$$;
