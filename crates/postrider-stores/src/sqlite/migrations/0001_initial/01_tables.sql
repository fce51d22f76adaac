-- A message is in exactly one of four tables: ready, scheduled, dead or archive. Times are microseconds since 1970 by SQLite's
-- clock. Payloads come last, so that a read of the other columns does not pass over them.

create table {queue} (
  id integer primary key,
  name text not null,
  ordered integer not null default 0 check (ordered in (0, 1)),
  on_failure text not null default 'block' check (on_failure in ('block', 'park', 'skip')),
  keep_for integer check (keep_for > 0),
  dead_letters integer not null default 1 check (dead_letters in (0, 1)),
  -- The tenants of the queue take turns.
  fair integer not null default 0 check (fair in (0, 1)),
  -- Counts the notifications that were committed. Listeners compare it with the number that they read last.
  signals integer not null default 0
) strict;
create unique index {queue_name} on {queue} (name);

-- The sequence of positions, for messages and for the turns of keys: so both can be compared by how long they have waited. A
-- position is never drawn twice, and with one writer at a time positions follow the order of commits.
create table {position} (
  id integer primary key check (id = 1),
  last integer not null
) strict;
insert into {position} (id, last) values (1, 0);

-- Messages that may be claimed now, and leased ones.
create table {ready} (
  id integer primary key,
  queue integer not null,
  message_id blob not null check (length(message_id) = 16),
  ordered integer not null default 0 check (ordered in (0, 1)),
  -- The tenants of its queue take turns, so the row is in the index by tenant.
  fair integer not null default 0 check (fair in (0, 1)),
  -- It was in scheduled until it came due, and has not been claimed since.
  promoted integer not null default 0,
  token blob,
  lease_until integer,
  staged_at integer not null,
  due_at integer not null,
  first_failed_at integer,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  -- Deliveries that began in isolation since the last failure, and never ended.
  isolated integer not null default 0,
  key text,
  timer text,
  event_type text,
  content_type text,
  tenant text,
  subject text,
  headers text,
  last_error text,
  payload blob not null,
  check ((token is null) = (lease_until is null)),
  check (ordered = 0 or (key is not null and token is null))
) strict;
create unique index {ready_message} on {ready} (message_id, queue);
-- Leased rows are in another index than free ones, so that a scan of one does not pass over the other.
create index {ready_free} on {ready} (queue, id) where token is null;
create index {ready_leased} on {ready} (queue, lease_until, id) where token is not null;
create index {ready_key} on {ready} (queue, key, id) where ordered = 1;
-- The free rows of each tenant, in order; rows without a tenant have the empty name. Queues whose tenants do not take turns have no
-- row in it.
create index {ready_tenant} on {ready} (queue, coalesce(tenant, ''), id) where token is null and fair = 1;
-- The messages of one subject, for follow-ups and erasure, here and in the other tables. Messages without a subject have no entry.
create index {ready_subject} on {ready} (subject, queue) where subject is not null;

-- Messages that are not due yet: timers, and retries of unordered queues.
create table {scheduled} (
  id integer primary key,
  queue integer not null,
  message_id blob not null check (length(message_id) = 16),
  ordered integer not null default 0,
  staged_at integer not null,
  due_at integer not null,
  first_failed_at integer,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  key text,
  timer text,
  event_type text,
  content_type text,
  tenant text,
  subject text,
  headers text,
  last_error text,
  payload blob not null
) strict;
create unique index {scheduled_message} on {scheduled} (message_id, queue);
create index {scheduled_due} on {scheduled} (queue, due_at, id);
create index {scheduled_subject} on {scheduled} (subject, queue) where subject is not null;

-- The names of active timers. A row lives as long as its message is in ready or scheduled.
create table {timer} (
  queue integer not null,
  name text not null,
  message_id blob not null,
  primary key (queue, name)
) strict, without rowid;

-- Dead letters: messages that failed permanently.
create table {dead} (
  id integer primary key,
  queue integer not null,
  message_id blob not null,
  ordered integer not null default 0,
  staged_at integer not null,
  due_at integer not null,
  failed_at integer not null,
  reason text not null,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  key text,
  timer text,
  event_type text,
  content_type text,
  tenant text,
  subject text,
  headers text,
  last_error text,
  payload blob not null
) strict;
create unique index {dead_message} on {dead} (message_id, queue);
create index {dead_failed} on {dead} (queue, failed_at, id);
-- The order of positions, for bulk operations: a rowid table keeps the row's position at the end of every index.
create index {dead_position} on {dead} (queue);
create index {dead_subject} on {dead} (subject, queue) where subject is not null;

-- Messages kept after success.
create table {archive} (
  id integer primary key,
  queue integer not null,
  message_id blob not null,
  ordered integer not null default 0,
  staged_at integer not null,
  due_at integer not null,
  archived_at integer not null,
  expires_at integer not null,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  key text,
  timer text,
  event_type text,
  content_type text,
  tenant text,
  subject text,
  headers text,
  last_error text,
  payload blob not null
) strict;
create unique index {archive_message} on {archive} (message_id, queue);
create index {archive_page} on {archive} (queue, archived_at, id);
create index {archive_expires} on {archive} (expires_at);
create index {archive_subject} on {archive} (subject, queue) where subject is not null;

-- One row per key of an ordered queue that has messages in ready: the key is leased, not its messages.
create table {lane} (
  queue integer not null,
  key text not null,
  -- The position in the ring of lanes. A lane draws a new one when its turn ends, so that keys take fair turns.
  turn integer not null,
  token blob,
  lease_until integer,
  -- Null: may run. A time: waits for a retry. The greatest integer: parked.
  due_at integer,
  -- Leases that expired on the head of this lane: each counts as a delivery.
  expired_leases integer not null default 0,
  reason text,
  error text,
  primary key (queue, key),
  check ((token is null) = (lease_until is null)),
  check (token is null or due_at is null)
) strict, without rowid;
create index {lane_free} on {lane} (queue, turn) where token is null and due_at is null;
create index {lane_leased} on {lane} (queue, lease_until) where token is not null;
create index {lane_due} on {lane} (queue, due_at) where due_at is not null;

-- Idle workers: producers notify only while a worker is idle.
create table {idle} (
  queue text not null,
  worker blob not null,
  until integer not null,
  primary key (queue, worker)
) strict, without rowid;
