-- Tenants that take turns, where a queue asks for it. What is free stands in a line for each of its tenants; a message without
-- one is in the line without a name. Queues that do not ask have nothing in the index.

alter table {queue} add column fair integer not null default 0 check (fair in (0, 1));

-- The last column, behind the payload, but nobody walks there: SQLite keeps a 0 and a 1 in the head of the row.
alter table {ready} add column fair integer not null default 0 check (fair in (0, 1));
create index {ready_tenant} on {ready} (queue, coalesce(tenant, ''), id) where token is null and fair = 1;

drop trigger {fresh_ready};
create trigger {fresh_ready} instead of insert on {fresh} when new.fate = 'ready' begin
  insert into {ready} (id, queue, message_id, ordered, fair, staged_at, due_at, key, event_type, content_type, tenant, subject,
    headers, payload)
  values (new.place, new.queue, new.id, new.ordered, (select q.fair from {queue} q where q.id = new.queue), new.staged_at,
    new.due_at, new.key, new.event_type, new.content_type, new.tenant, new.subject, new.headers, new.payload);
  insert into {lane} (queue, key, turn_at)
  select new.queue, new.key, new.place
  where new.ordered and not exists (select 1 from {lane} l where l.queue = new.queue and l.key = new.key);
  update {queue} set signals = signals + 1 where id = new.queue and new.slept_on;
end;
