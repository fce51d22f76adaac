-- Queues and destinations that operators have paused: no message of such a queue is claimed, and relays send nothing to such a
-- destination. A handful of rows at the most; claimers read the queues' rows together with the queues, once a second.
create table {pause} (
  since timestamptz not null default clock_timestamp(),
  kind text not null,
  name text not null,
  actor text not null,
  why text not null,
  constraint {#pause_pkey} primary key (kind, name),
  constraint {#pause_kind} check (kind in ('queue', 'destination'))
);

-- Writes the audit row of a pause or a resumption.
create function {audit_pause}(p_verb text, p_kind text, p_name text, p_actor text, p_why text) returns void
language sql volatile as $$
  insert into {audit} (actor, why, verb, queue, destination)
  values (p_actor, p_why, p_verb, case when p_kind = 'queue' then {queue_id}(p_name) end,
          case when p_kind = 'destination' then p_name end)
$$;

-- Pauses a queue or a destination. Returns false when it was paused already.
create function {pause_work}(p_kind text, p_name text, p_actor text, p_why text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {pause} (kind, name, actor, why) values (p_kind, p_name, p_actor, p_why) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform {audit_pause}('pause', p_kind, p_name, p_actor, p_why);
  return true;
end
$$;

-- Resumes a queue or a destination, and notifies the idle workers of the queue. Returns false when it was not paused.
create function {resume_work}(p_kind text, p_name text, p_actor text, p_why text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from {pause} p where p.kind = p_kind and p.name = p_name;
  if not found then
    return false;
  end if;
  perform {audit_pause}('resume', p_kind, p_name, p_actor, p_why);
  if p_kind = 'queue' then
    perform {signal}(array[{queue_id}(p_name)]);
  end if;
  return true;
end
$$;

revoke all on function {audit_pause}, {pause_work}, {resume_work} from public;
