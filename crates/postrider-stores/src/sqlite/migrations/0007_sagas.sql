-- The logs of sagas that are under way: appended to, read whole, and gone with the end of their saga.
create table {saga_log} (
  saga blob not null,
  n integer not null,
  at integer not null,
  body text not null,
  primary key (saga, n)
) strict, without rowid;
