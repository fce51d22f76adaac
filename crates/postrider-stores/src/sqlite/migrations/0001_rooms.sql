-- A message is in exactly one room: ready, later, dead or archive. Times are microseconds since 1970 by SQLite's clock;
-- payloads come last, so that whoever reads the other columns need not walk over them.

create table {queue} (
  id integer primary key,
  name text not null,
  ordered integer not null default 0 check (ordered in (0, 1)),
  on_failure text not null default 'block' check (on_failure in ('block', 'park', 'skip')),
  keep_for integer check (keep_for > 0),
  dead_letters integer not null default 1 check (dead_letters in (0, 1)),
  -- How often a commit has signalled. Listeners compare.
  signals integer not null default 0
) strict;
create unique index {queue_name} on {queue} (name);

-- Places are drawn here: for messages and for the turns of keys, so that both can be compared by who has waited longest. A
-- place is never drawn twice, and with one writer at a time places are the order of commits.
create table {line} (
  id integer primary key check (id = 1),
  last integer not null
) strict;
insert into {line} (id, last) values (1, 0);

-- What may run now.
create table {ready} (
  id integer primary key,
  queue integer not null,
  message_id blob not null check (length(message_id) = 16),
  ordered integer not null default 0 check (ordered in (0, 1)),
  -- It waited in later until it came due, and nobody has taken it since.
  ripe integer not null default 0,
  token blob,
  lease_until integer,
  staged_at integer not null,
  due_at integer not null,
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
  payload blob not null,
  check ((token is null) = (lease_until is null)),
  check (ordered = 0 or (key is not null and token is null))
) strict;
create unique index {ready_message} on {ready} (message_id, queue);
-- What is leased is in another index than what is free: neither stands in the other's way.
create index {ready_free} on {ready} (queue, id) where token is null;
create index {ready_leased} on {ready} (queue, lease_until, id) where token is not null;
create index {ready_key} on {ready} (queue, key, id) where ordered = 1;

-- What waits: timers, and retries of unordered queues.
create table {later} (
  id integer primary key,
  queue integer not null,
  message_id blob not null check (length(message_id) = 16),
  ordered integer not null default 0,
  staged_at integer not null,
  due_at integer not null,
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
create unique index {later_message} on {later} (message_id, queue);
create index {later_due} on {later} (queue, due_at, id);

-- The names of living timers. A row lives as long as its message, in whatever room that is.
create table {timer} (
  queue integer not null,
  name text not null,
  message_id blob not null,
  primary key (queue, name)
) strict, without rowid;

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

-- Kept after success.
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

-- One row per living key of an ordered queue: the key is leased, not its messages.
create table {lane} (
  queue integer not null,
  key text not null,
  -- The place in the ring; renewed when a turn ends, so that turns are fair.
  turn_at integer not null,
  token blob,
  lease_until integer,
  -- Null runs; a time waits for a retry; the greatest of all times is parked.
  due_at integer,
  -- Leases lost on this head: they count as deliveries.
  lapses integer not null default 0,
  reason text,
  error text,
  primary key (queue, key),
  check ((token is null) = (lease_until is null)),
  check (token is null or due_at is null)
) strict, without rowid;
create index {lane_free} on {lane} (queue, turn_at) where token is null and due_at is null;
create index {lane_leased} on {lane} (queue, lease_until) where token is not null;
create index {lane_due} on {lane} (queue, due_at) where due_at is not null;

-- Workers that sleep: producers signal only while one does.
create table {sleeper} (
  queue text not null,
  worker blob not null,
  until integer not null,
  primary key (queue, worker)
) strict, without rowid;

-- What operators did.
create table {audit} (
  id integer primary key,
  at integer not null,
  actor text not null,
  why text not null,
  verb text not null,
  -- None when it is about a destination, or about the book itself.
  queue integer,
  message_ids text not null default '[]',
  key text,
  destination text
) strict;
