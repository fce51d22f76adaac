-- Recurring messages: the last staged tick of each schedule, or the time at which the schedule was seen first. The messages do not
-- show it: a delivered one leaves no trace.
create table {schedule} (
  name text primary key,
  last_at integer not null
) strict, without rowid;

-- The pauses set by operators: no message of a paused queue is claimed, and relays send nothing to a paused destination.
create table {pause} (
  kind text not null check (kind in ('queue', 'destination')),
  name text not null,
  since integer not null,
  actor text not null,
  why text not null,
  primary key (kind, name)
) strict, without rowid;

-- The actions of operators.
create table {audit} (
  id integer primary key,
  at integer not null,
  actor text not null,
  why text not null,
  verb text not null,
  -- Null when the entry is about a destination or about the audit table itself.
  queue integer,
  message_ids text not null default '[]',
  key text,
  destination text
) strict;
