-- Recurring messages: the last tick of each schedule that was staged, or the moment when the schedule was seen first. Messages
-- cannot tell: one that was delivered leaves no trace.
create table {schedule} (
  name text primary key,
  last_at integer not null
) strict, without rowid;
