-- Stages what is new, due at once and for one queue. A driver that keeps no prepared statements would have the server parse and
-- plan the INSERT for every call; here the session keeps the plan. An array that is empty stands for a column that nobody
-- uses. Answers how many messages were staged: none when the queue does not exist yet.
create function {stage_new}(
  p_queue text, p_id uuid[], p_payload bytea[], p_event_type text[], p_content_type text[], p_key text[], p_tenant text[],
  p_subject text[], p_headers text[])
returns bigint
language plpgsql volatile as $$
declare
  v_staged bigint;
begin
  -- OFFSET keeps the look-up of sleepers out of the rows.
  insert into {ready} (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject, headers)
  select k.id, k.ordered, k.fair, case when k.ordered then coalesce(u.key, u.message_id::text) else u.key end,
         u.message_id, u.payload, u.event_type, u.content_type, u.tenant, u.subject, u.headers::jsonb
  from (select q.id, q.ordered, q.fair,
               (select count(pg_notify('{#signal}', p_queue)) from {sleeper} s
                where s.queue = q.id and s.until > clock_timestamp()) as signalled
        from {queue} q where q.name = p_queue offset 0) k,
       unnest(p_id, p_payload, p_event_type, p_content_type, p_key, p_tenant, p_subject, p_headers)
         u(message_id, payload, event_type, content_type, key, tenant, subject, headers)
  where k.signalled >= 0;
  get diagnostics v_staged = row_count;
  return v_staged;
end
$$;

revoke all on function {stage_new} from public;
