-- Recurring messages: the last tick of each schedule that was staged, or the time at which the schedule was first seen. Messages
-- cannot show it: a delivered one leaves no trace.
create table {schedule} (
  name text not null,
  last_at timestamptz not null,
  constraint {#schedule_pkey} primary key (name)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
