-- A follow-up has succeeded and its claim has ended, just before in the same transaction, which holds the lock of the group: erases
-- the archived payload, and returns whether the follow-up was the last of its group. Each statement of a volatile function sees the
-- transactions that committed before it, so that of two transactions that end the last two follow-ups, the second sees the result
-- of the first. With the owner's privileges, because workers may not update the archive; and with planner settings of its own,
-- because it runs on the application's connections.
create function {finish_follow_up}(p_queue smallint, p_id uuid, p_kept boolean, p_tenant text, p_subject text, p_operation text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
begin
  if p_kept then
    update {archive} a set payload = '', content_type = coalesce(a.content_type, 'application/json')
    where a.message_id = p_id and a.queue + 0 = p_queue and a.subject = p_subject and a.payload <> '';
  end if;
  -- The queue is compared as an expression, so that the planner considers no other index.
  return not (
    exists (select from {ready} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
              and r.tenant is not distinct from p_tenant)
    or exists (select from {scheduled} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
                 and r.tenant is not distinct from p_tenant)
    or exists (select from {dead} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
                 and r.tenant is not distinct from p_tenant));
end
$$;

-- Erases the messages of a subject in every queue, except those in flight and follow-ups that have not succeeded.
create function {erase_subject}(
  p_tenant text, p_subject text, p_actor text, p_why text,
  out waiting bigint, out dead bigint, out archived bigint, out in_flight bigint, out follow_ups bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  v_queues smallint[];
  v_ids uuid[];
  v_timers text[];
begin
  -- Messages of leased keys stay: the lock on a lane keeps its key from being claimed meanwhile.
  perform 1 from (
    select distinct r.queue, r.key from {ready} r
    where r.subject = p_subject and r.tenant is not distinct from p_tenant and r.ordered
    order by r.queue, r.key) k, lateral (
    select l.key from {lane} l where l.queue = k.queue and l.key = k.key for update) l;
  with ready as (
    delete from {ready} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
      and (r.headers ? 'followup-resolver') is not true
      and (r.token is null or r.lease_until <= clock_timestamp())
      and not (r.ordered and exists (
        select from {lane} l where l.queue = r.queue and l.key = r.key and l.lease_until > clock_timestamp() offset 0))
    returning 'waiting'::text, r.queue, r.message_id, r.timer),
  scheduled as (
    delete from {scheduled} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
      and (r.headers ? 'followup-resolver') is not true
    returning 'waiting'::text, r.queue, r.message_id, r.timer),
  dead as (
    delete from {dead} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
      and (r.headers ? 'followup-resolver') is not true
    returning 'dead'::text, r.queue, r.message_id, null::text),
  archived as (
    delete from {archive} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
    returning 'archived'::text, r.queue, r.message_id, null::text),
  gone(state, queue, id, timer) as (table ready union all table scheduled union all table dead union all table archived)
  select count(*) filter (where g.state = 'waiting'), count(*) filter (where g.state = 'dead'),
         count(*) filter (where g.state = 'archived'), array_agg(g.queue), array_agg(g.id), array_agg(g.timer)
  into waiting, dead, archived, v_queues, v_ids, v_timers from gone g;
  delete from {timer} t where t.ctid = any(array(
    select (select m.ctid from {timer} m where m.queue = u.queue and m.name = u.timer and m.message_id = u.id)
    from unnest(v_queues, v_ids, v_timers) u(queue, id, timer) where u.timer is not null));
  -- The audit does not name the subject, which is to be erased.
  insert into {audit} (actor, why, verb, queue, message_ids)
  select p_actor, p_why, 'erase_subject', u.queue, array_agg(u.id) from unnest(v_queues, v_ids) u(queue, id)
  group by u.queue order by u.queue;
  -- Counted afterwards, so that rows which were claimed, moved or staged meanwhile count as left, and the caller erases again.
  select count(*) filter (where l.unfinished is not true), count(*) filter (where l.unfinished) into in_flight, follow_ups
  from (select r.headers ? 'followup-resolver' as unfinished from {ready} r
        where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select r.headers ? 'followup-resolver' from {scheduled} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select r.headers ? 'followup-resolver' from {dead} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select false from {archive} r where r.subject = p_subject and r.tenant is not distinct from p_tenant) l;
end
$$;

revoke all on function {finish_follow_up}, {erase_subject} from public;
