-- The logs of running sagas: appended to, read whole, and deleted at the end of their saga.
create table {saga_log} (
  at timestamptz not null default clock_timestamp(),
  saga uuid not null,
  n integer not null,
  body text not null,
  constraint {#saga_log_pkey} primary key (saga, n)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
