-- Creates a queue unless it exists. Each statement of a volatile function sees the transactions that committed before it, so the
-- loser of a race finds the winner's row. Numbers that rolled-back transactions drew are drawn again, after a cycle.
create function {create_queue}(p_name text, p_ordered boolean) returns smallint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id smallint;
  v_left integer := 32767;
begin
  loop
    select q.id into v_id from {queue} q where q.name = p_name;
    exit when found;
    v_id := nextval('{queue_number}');
    if exists (select from {queue} q where q.id = v_id) then
      v_left := v_left - 1;
      if v_left = 0 then
        raise exception using errcode = '54000', message = 'queue: the database has 32,767 queues, and no more are possible';
      end if;
    else
      insert into {queue} (id, name, ordered) values (v_id, p_name, p_ordered) on conflict (name) do nothing;
      exit when found;
    end if;
  end loop;
  return v_id;
end
$$;

-- A queue is created when it is first used.
create function {queue_id}(p_name text) returns smallint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id smallint;
begin
  select q.id into v_id from {queue} q where q.name = p_name;
  if not found then
    v_id := {create_queue}(p_name, false);
  end if;
  return v_id;
end
$$;

-- Declares a queue. Its ordering can change only while none of its messages is stored. That takes a lock for which producers wait
-- behind this transaction: the short timeout bounds their wait, and the caller tries again.
create function {declare_queue}(
  p_name text, p_ordered boolean, p_on_failure text, p_keep_for interval, p_dead_letters boolean,
  p_fair boolean)
returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  v_queue record;
begin
  -- A new queue is created with its ordering, and changes nothing below.
  perform {create_queue}(p_name, p_ordered);
  select * into v_queue from {queue} q where q.name = p_name for update;
  if v_queue.ordered <> p_ordered then
    -- Transactions that are staging now finish first, and their rows are visible below.
    lock table {ready}, {scheduled} in share row exclusive mode;
    if exists (select from {ready} r where r.queue = v_queue.id order by r.queue, r.id limit 1)
       or exists (select from {scheduled} r where r.queue = v_queue.id order by r.queue, r.due_at, r.id limit 1) then
      return false;
    end if;
  end if;
  update {queue} q set ordered = p_ordered, on_failure = p_on_failure, keep_for = p_keep_for,
                       dead_letters = p_dead_letters, fair = case when p_fair then true end
  where q.id = v_queue.id;
  return true;
end
$$;

revoke all on function {create_queue}, {queue_id}, {declare_queue} from public;
