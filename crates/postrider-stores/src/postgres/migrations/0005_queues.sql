-- Declares a queue. Its ordering can change only while nothing of it is stored.
create function {declare_queue}(
  p_name text, p_ordered boolean, p_on_failure text, p_keep_for interval, p_dead_letters boolean,
  p_fair boolean)
returns boolean
language plpgsql volatile as $$
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
                       dead_letters = p_dead_letters, fair = case when p_fair then true end
  where q.id = v_queue.id;
  perform {make_days}();
  return true;
end
$$;
