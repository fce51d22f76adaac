-- Many dead letters at once. They go back in the order of their places, so that an earlier message of a key is never behind a later one,
-- wherever a chunk ends; the index finds the next of them.
create index {#dead_place} on {dead} (queue, id);

-- What is kept is delivered once more, as a dead letter is put back: out of the archive and into the line, under its own identity. Not in one
-- function with that: a statement that may take from either room would lock every day of the archive for each dead letter.
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
  line as materialized (select g.* from gone g order by g.archived_at, g.id),
  back as (
    insert into {ready} (id, staged_at, message_id, queue, ordered, fair, payload, event_type, content_type, key,
                         tenant, subject, headers)
    select case when v_ordered then l.id when pg_current_xact_id() is not null then nextval('{place}') end,
           l.staged_at, l.message_id, l.queue, v_ordered, v_fair, l.payload, l.event_type, l.content_type,
           case when v_ordered then coalesce(l.key, l.message_id::text) else l.key end, l.tenant, l.subject, l.headers
    from line l on conflict do nothing returning id, message_id, key),
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

-- Copies of what is kept are staged, or sent elsewhere: writes down of which messages.
create function {note_replay}(p_queue text, p_ids uuid[], p_actor text, p_why text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {audit} (actor, why, verb, queue, message_ids)
  select p_actor, p_why, 'replay', q.id, p_ids from {queue} q where q.name = p_queue;
end
$$;

-- Cancels a timer, and writes that down.
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

revoke all on function {replay}, {note_replay}, {drop_timer} from public;
