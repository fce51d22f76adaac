-- What operators have paused: queues, of which nothing is claimed, and destinations, to which relays send nothing.
create table {pause} (
  kind text not null check (kind in ('queue', 'destination')),
  name text not null,
  since integer not null,
  actor text not null,
  why text not null,
  primary key (kind, name)
) strict, without rowid;
