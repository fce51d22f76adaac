-- A message is in exactly one room: ready, later, dead or archive. docs/ARCHITECTURE.md explains the layout.

create table {queue} (
  id smallint generated always as identity,
  name text collate "C" not null,
  ordered boolean not null default false,
  on_failure text not null default 'block',
  keep_for interval,
  dead_letters boolean not null default true,
  fair boolean,
  created_at timestamptz not null default clock_timestamp(),
  constraint {#queue_pkey} primary key (id),
  constraint {#queue_name} unique (name),
  constraint {#queue_on_failure} check (on_failure in ('block', 'park', 'skip')),
  constraint {#queue_keep_for} check (keep_for > interval '0'),
  constraint {#queue_fair} check (fair is null or (fair and not ordered))
);

-- CACHE 1 is a condition of correctness: a cached range would hand out places out of order, and a claimer that has
-- passed them would not look back far enough.
create sequence {place} as bigint cache 1;

-- What may run now. No index on a column that a claim changes, and room on every page for a second version of each row,
-- which is larger by the token: each claim is a HOT update.
create table {ready} (
  -- A place in the line, never shown to users. The transaction gets its xid before it draws a place, so that an open
  -- xid tells which places may still appear.
  id bigint not null default (case when pg_current_xact_id() is not null then nextval('{place}') end),
  staged_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null default clock_timestamp(),
  lease_until timestamptz not null default '-infinity',
  message_id uuid not null,
  token uuid,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  queue smallint not null,
  ordered boolean not null default false,
  -- Its tenant has a line of its own. True or nothing: what is null takes no room in a row, and no time when a claim has to find
  -- out whether it has changed an indexed column.
  fair boolean,
  payload bytea not null,
  event_type text,
  content_type text,
  key text collate "C",
  tenant text,
  subject text,
  timer text,
  headers jsonb,
  last_error text,
  constraint {#ready_pkey} primary key (queue, id),
  constraint {#ready_message} unique (message_id, queue),
  -- Leased until then; or free, and not before then.
  constraint {#ready_lease} check (token is null or lease_until > '-infinity'::timestamptz),
  constraint {#ready_line} check (not ordered or key is not null)
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);
create index {#ready_key} on {ready} (queue, key, id) where ordered;

-- What waits: timers, and retries of unordered queues.
create table {later} (
  id bigint not null default nextval('{place}'),
  staged_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null,
  message_id uuid not null,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  queue smallint not null,
  ordered boolean not null default false,
  payload bytea not null,
  event_type text,
  content_type text,
  key text collate "C",
  tenant text,
  subject text,
  timer text,
  headers jsonb,
  last_error text,
  constraint {#later_pkey} primary key (queue, due_at, id),
  constraint {#later_message} unique (message_id, queue)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

-- The names of living timers. A row lives as long as its message, in whatever room that is.
create table {timer} (
  queue smallint not null,
  name text collate "C" not null,
  message_id uuid not null,
  constraint {#timer_pkey} primary key (queue, name)
);

create table {dead} (
  id bigint not null,
  staged_at timestamptz not null,
  due_at timestamptz not null,
  failed_at timestamptz not null default clock_timestamp(),
  message_id uuid not null,
  attempts integer not null,
  deliveries integer not null,
  queue smallint not null,
  ordered boolean not null,
  payload bytea not null,
  reason text not null,
  event_type text,
  content_type text,
  key text collate "C",
  tenant text,
  subject text,
  timer text,
  headers jsonb,
  last_error text,
  constraint {#dead_pkey} primary key (queue, failed_at, id, message_id)
);
create index {#dead_message} on {dead} (message_id, queue);
create index {#dead_reason} on {dead} (queue, reason, failed_at, id);

-- Kept after success. Partitioned by the day on which a message may go, so that retention drops whole partitions,
-- whatever each queue keeps; the partition of the rest takes what has no day of its own.
create table {archive} (
  id bigint not null,
  staged_at timestamptz not null,
  due_at timestamptz not null,
  archived_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  message_id uuid not null,
  attempts integer not null,
  deliveries integer not null,
  queue smallint not null,
  ordered boolean not null,
  payload bytea not null,
  event_type text,
  content_type text,
  key text collate "C",
  tenant text,
  subject text,
  timer text,
  headers jsonb,
  last_error text
) partition by range (expires_at);
create index {#archive_page} on {archive} (queue, archived_at, id);
create index {#archive_message} on {archive} (message_id, queue);
create table {archive_rest} partition of {archive} default;
create index {#archive_rest_expires} on {archive_rest} (expires_at);

-- One row per living key of an ordered queue: the key is leased, not its messages.
create sequence {turn} as bigint cache 1;
create table {lane} (
  queue smallint not null,
  key text collate "C" not null,
  -- The place in the ring; renewed when a turn ends, so that turns are fair.
  seq bigint not null default nextval('{turn}'),
  -- Nothing of the key is left at or below this place, and no open transaction can still put something there.
  after bigint not null,
  token uuid,
  leased_until timestamptz not null default '-infinity',
  -- Null runs; a time waits for a retry; infinity is parked.
  due timestamptz,
  -- Leases lost on this head: they count as deliveries.
  lapses integer not null default 0,
  reason text,
  error text,
  constraint {#lane_pkey} primary key (queue, key),
  constraint {#lane_lease} check ((token is null) = (leased_until = '-infinity'::timestamptz))
) with (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
create index {#lane_ring} on {lane} (queue, seq) where due is null;
create index {#lane_due} on {lane} (queue, due) where due is not null;

-- Workers that sleep: producers signal only while one does.
create table {sleeper} (
  queue smallint not null,
  worker uuid not null,
  until timestamptz not null,
  constraint {#sleeper_pkey} primary key (queue, worker)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- What operators did.
create table {audit} (
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  why text not null,
  verb text not null,
  -- None when it is about a destination, or about the book itself.
  queue smallint,
  message_ids uuid[] not null default '{}',
  key text,
  destination text,
  constraint {#audit_pkey} primary key (id)
);
