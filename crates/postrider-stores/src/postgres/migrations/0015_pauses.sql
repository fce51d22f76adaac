-- What operators have paused: queues, of which nothing is claimed, and destinations, to which relays send nothing. A handful of
-- rows at the most; claimers read the queues' with the queues themselves, once a second.
create table {pause} (
  since timestamptz not null default clock_timestamp(),
  kind text not null,
  name text not null,
  actor text not null,
  why text not null,
  constraint {#pause_pkey} primary key (kind, name),
  constraint {#pause_kind} check (kind in ('queue', 'destination'))
);

create function {note_pause}(p_verb text, p_kind text, p_name text, p_actor text, p_why text) returns void
language sql volatile as $$
  insert into {audit} (actor, why, verb, queue, destination)
  values (p_actor, p_why, p_verb, case when p_kind = 'queue' then {queue_id}(p_name) end,
          case when p_kind = 'destination' then p_name end)
$$;

create function {pause_work}(p_kind text, p_name text, p_actor text, p_why text) returns boolean
language plpgsql volatile as $$
begin
  insert into {pause} (kind, name, actor, why) values (p_kind, p_name, p_actor, p_why) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform {note_pause}('pause', p_kind, p_name, p_actor, p_why);
  return true;
end
$$;

-- Whoever sleeps for the queue hears of it, as of a message.
create function {resume_work}(p_kind text, p_name text, p_actor text, p_why text) returns boolean
language plpgsql volatile as $$
begin
  delete from {pause} p where p.kind = p_kind and p.name = p_name;
  if not found then
    return false;
  end if;
  perform {note_pause}('resume', p_kind, p_name, p_actor, p_why);
  if p_kind = 'queue' then
    perform {signal}(array[{queue_id}(p_name)]);
  end if;
  return true;
end
$$;

alter function {pause_work} security definer set search_path = pg_catalog, pg_temp;
alter function {resume_work} security definer set search_path = pg_catalog, pg_temp;
revoke all on function {note_pause}, {pause_work}, {resume_work} from public;
