-- A message is in exactly one of four tables: ready, scheduled, dead or archive. docs/ARCHITECTURE.md explains the layout.
create sequence {queue_number} as smallint cycle;
create table {queue} (
  id smallint not null,
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

-- CACHE 1 is a condition of correctness: a cached range would hand out positions out of order, and a claimer that has
-- passed them would not read back far enough.
create sequence {message_position} as bigint cache 1;

-- Messages that may be claimed now, and leased ones. No index on a column that a claim changes, and free space on every page for
-- a second version of each row, which is larger by the token: each claim is a HOT update.
create table {ready} (
  -- The position of the row in its queue, never shown to users. The default assigns the transaction's xid before it draws a
  -- position, so that the open xids bound the positions that may still appear.
  id bigint not null default (case when pg_current_xact_id() is not null then nextval('{message_position}') end),
  staged_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null default clock_timestamp(),
  lease_until timestamptz not null default '-infinity',
  message_id uuid not null,
  token uuid,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  queue smallint not null,
  -- Deliveries that began in isolation since the last failure, and never ended. Almost always null, which takes no space.
  isolated smallint,
  -- When the first attempt failed. Null until then.
  first_failed_at timestamptz,
  ordered boolean not null default false,
  -- Tenants take turns in this queue, so the row is in the index by tenant. True or null: a null takes no space in the row, and
  -- no time when an update checks whether it has changed an indexed column.
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
  -- With a token: leased until lease_until. Without: free to claim from lease_until on.
  constraint {#ready_lease} check (token is null or lease_until > '-infinity'::timestamptz),
  constraint {#ready_ordered_key} check (not ordered or key is not null)
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

-- A message is in a queue once. The queue is an expression, so that no look-up fits both this index and the primary key: with the
-- statistics of an empty table every index costs the same, and the planner might read a whole queue through the wrong one.
-- Positions are found by `queue = …`, which fits the primary key, and messages by `message_id = … and queue + 0 = …`.
create unique index {#ready_message} on {ready} (message_id, (queue::integer));

create index {#ready_key} on {ready} (queue, key, id) where ordered;

-- The index of queues whose tenants take turns: each tenant's rows in order, those without a tenant under the empty name. Other
-- queues have no row in it. A claim changes no column of it, so claims stay HOT updates.
create index {#ready_tenant} on {ready} (queue, (coalesce(tenant, '') collate "C"), id) where fair;

-- The messages of one subject, for follow-ups and erasure. Messages without a subject have no entry, and no claim changes a column
-- of these indexes, so claims stay HOT updates.
create index {#ready_subject} on {ready} (subject) where subject is not null;

-- Messages that are not due yet: timers, and retries of unordered queues.
create table {scheduled} (
  id bigint not null default nextval('{message_position}'),
  staged_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null,
  message_id uuid not null,
  attempts integer not null default 0,
  deliveries integer not null default 0,
  queue smallint not null,
  first_failed_at timestamptz,
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
  constraint {#scheduled_pkey} primary key (queue, due_at, id),
  constraint {#scheduled_message} unique (message_id, queue)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);
create index {#scheduled_subject} on {scheduled} (subject) where subject is not null;

-- The names of pending timers. A row lives as long as its message, in whichever table that is.
create table {timer} (
  queue smallint not null,
  name text collate "C" not null,
  message_id uuid not null,
  constraint {#timer_pkey} primary key (queue, name)
);

-- Dead letters: messages that failed permanently.
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
create index {#dead_subject} on {dead} (subject) where subject is not null;

-- Bulk operations return dead letters in the order of their positions, so that an earlier message of a key is never behind a later
-- one, wherever a batch ends.
create index {#dead_position} on {dead} (queue, id);

-- Messages kept after success. Partitioned by the day on which a message expires, so that retention drops whole partitions,
-- however long each queue keeps its messages; the default partition takes messages whose day has no partition.
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
create index {#archive_subject} on {archive} (subject) where subject is not null;

create table {archive_rest} partition of {archive} default;
create index {#archive_rest_expires} on {archive_rest} (expires_at);

-- One row per key of an ordered queue that has messages: the key is leased, not its messages.
create sequence {turn} as bigint cache 1;

create table {lane} (
  queue smallint not null,
  key text collate "C" not null,
  -- The position in the ring of lanes. A lane draws a new one when its turn ends, so that keys take fair turns.
  turn bigint not null default nextval('{turn}'),
  -- The key has no message at or below this position, and no open transaction can still insert one there.
  after bigint not null,
  token uuid,
  lease_until timestamptz not null default '-infinity',
  -- Null: may run. A time: waits for a retry. Infinity: parked.
  due_at timestamptz,
  -- Leases that expired on the head of this lane: each counts as a delivery.
  expired_leases integer not null default 0,
  reason text,
  error text,
  constraint {#lane_pkey} primary key (queue, key),
  constraint {#lane_lease} check ((token is null) = (lease_until = '-infinity'::timestamptz))
) with (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
create index {#lane_ring} on {lane} (queue, turn) where due_at is null;
create index {#lane_due} on {lane} (queue, due_at) where due_at is not null;

-- Idle workers: producers notify only while a worker is idle.
create table {idle} (
  queue smallint not null,
  worker uuid not null,
  until timestamptz not null,
  constraint {#idle_pkey} primary key (queue, worker)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The actions of operators.
create table {audit} (
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  why text not null,
  verb text not null,
  -- Null when the entry is about a destination or about the audit table itself.
  queue smallint,
  message_ids uuid[] not null default '{}',
  key text,
  destination text,
  constraint {#audit_pkey} primary key (id)
);
