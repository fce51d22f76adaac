-- Follow-ups are messages; what is theirs alone is that all of one subject belong together. Messages without a subject have nothing in these
-- indexes, and no claim changes a column of them, so claims stay HOT updates. While an index is made, writers wait: with many messages, migrate when
-- they may.
create index {#ready_subject} on {ready} (subject) where subject is not null;
create index {#later_subject} on {later} (subject) where subject is not null;
create index {#dead_subject} on {dead} (subject) where subject is not null;
create index {#archive_subject} on {archive} (subject) where subject is not null;

-- A follow-up has succeeded and its claim has ended, a moment ago in this very transaction, which holds the lock of the group: forgets what
-- is kept of its payload, and tells whether anything of its group is left. Each statement of a volatile function sees what has committed
-- before it, so that of two that land the last ones, the second sees what the first has done. With the owner's rights, since workers
-- change nothing in the archive; and with settings of its own, since it runs on the application's connections.
create function {is_last}(p_queue smallint, p_id uuid, p_kept boolean, p_tenant text, p_subject text, p_operation text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
begin
  if p_kept then
    update {archive} a set payload = '', content_type = coalesce(a.content_type, 'application/json')
    where a.message_id = p_id and a.queue + 0 = p_queue and a.subject = p_subject and a.payload <> '';
  end if;
  -- The queue is compared as an expression, so that the planner sees no other index in it.
  return not (
    exists (select from {ready} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
              and r.tenant is not distinct from p_tenant)
    or exists (select from {later} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
                 and r.tenant is not distinct from p_tenant)
    or exists (select from {dead} r where r.subject = p_subject and r.queue + 0 = p_queue and r.event_type = p_operation
                 and r.tenant is not distinct from p_tenant));
end
$$;

-- Removes what is kept about a subject, in every queue, but for what is in hand and for follow-ups that have not succeeded.
create function {erase_subject}(
  p_tenant text, p_subject text, p_actor text, p_why text,
  out waiting bigint, out dead bigint, out archived bigint, out in_hand bigint, out follow_ups bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  v_queues smallint[];
  v_ids uuid[];
  v_timers text[];
begin
  -- Keys in hand are not touched: locking their lanes keeps them from being claimed meanwhile.
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
        select from {lane} l where l.queue = r.queue and l.key = r.key and l.leased_until > clock_timestamp() offset 0))
    returning 'waiting'::text, r.queue, r.message_id, r.timer),
  later as (
    delete from {later} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
      and (r.headers ? 'followup-resolver') is not true
    returning 'waiting'::text, r.queue, r.message_id, r.timer),
  dead as (
    delete from {dead} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
      and (r.headers ? 'followup-resolver') is not true
    returning 'dead'::text, r.queue, r.message_id, null::text),
  archived as (
    delete from {archive} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
    returning 'archived'::text, r.queue, r.message_id, null::text),
  gone(room, queue, id, timer) as (table ready union all table later union all table dead union all table archived)
  select count(*) filter (where g.room = 'waiting'), count(*) filter (where g.room = 'dead'),
         count(*) filter (where g.room = 'archived'), array_agg(g.queue), array_agg(g.id), array_agg(g.timer)
  into waiting, dead, archived, v_queues, v_ids, v_timers from gone g;
  delete from {timer} t where t.ctid = any(array(
    select (select m.ctid from {timer} m where m.queue = u.queue and m.name = u.timer and m.message_id = u.id)
    from unnest(v_queues, v_ids, v_timers) u(queue, id, timer) where u.timer is not null));
  -- Without the subject, which is to be forgotten.
  insert into {audit} (actor, why, verb, queue, message_ids)
  select p_actor, p_why, 'erase_subject', u.queue, array_agg(u.id) from unnest(v_queues, v_ids) u(queue, id)
  group by u.queue order by u.queue;
  -- Counted afterwards: also what somebody claimed, moved or staged meanwhile is still there, and to be asked for again.
  select count(*) filter (where l.unfinished is not true), count(*) filter (where l.unfinished) into in_hand, follow_ups
  from (select r.headers ? 'followup-resolver' as unfinished from {ready} r
        where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select r.headers ? 'followup-resolver' from {later} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select r.headers ? 'followup-resolver' from {dead} r where r.subject = p_subject and r.tenant is not distinct from p_tenant
        union all
        select false from {archive} r where r.subject = p_subject and r.tenant is not distinct from p_tenant) l;
end
$$;

revoke all on function {is_last}, {erase_subject} from public;
