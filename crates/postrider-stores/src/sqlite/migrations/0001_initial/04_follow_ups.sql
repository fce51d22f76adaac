-- The ledger of follow-ups: a hash chain, in which each link is hashed together with its predecessor. SQLite has no hash function,
-- so the program that appends supplies the hash; the triggers allow appends and nothing else.
create table {ledger} (
  position integer primary key check (position > 0),
  at integer not null,
  body text not null,
  previous blob not null check (length(previous) = 32),
  hash blob not null check (length(hash) = 32),
  event_id text not null generated always as (json_extract(body, '$.id')) virtual,
  subject text generated always as (json_extract(body, '$.subject')) virtual
) strict;
create unique index {ledger_event} on {ledger} (event_id);
create index {ledger_subject} on {ledger} (subject, position) where subject is not null;
create index {ledger_at} on {ledger} (at, position);

-- The end of the chain: without it, a removal of the last links would not be noticed.
create table {ledger_head} (
  id integer primary key check (id = 1),
  position integer not null,
  hash blob not null check (length(hash) = 32)
) strict;
insert into {ledger_head} (id, position, hash) values (1, 0, zeroblob(32));

-- OR REPLACE deletes conflicting rows without running the delete trigger, so this trigger rejects every conflict.
create trigger {ledger_append} before insert on {ledger}
when not exists (select 1 from {ledger_head} h where h.position + 1 = new.position and h.hash = new.previous)
  or exists (select 1 from {ledger} l where l.event_id = json_extract(new.body, '$.id'))
begin
  select raise(abort, 'postrider: an event must be appended to the end of the ledger, once');
end;
create trigger {ledger_appended} after insert on {ledger} begin
  update {ledger_head} set position = new.position, hash = new.hash;
end;
create trigger {ledger_update} before update on {ledger} begin
  select raise(abort, 'postrider: the ledger is append-only: its rows cannot be updated');
end;
create trigger {ledger_delete} before delete on {ledger} begin
  select raise(abort, 'postrider: the ledger is append-only: its rows cannot be deleted');
end;
create trigger {ledger_head_update} before update on {ledger_head}
when not exists (select 1 from {ledger} l where l.position = old.position + 1 and l.position = new.position and l.hash = new.hash)
begin
  select raise(abort, 'postrider: the head of the ledger moves only with an append');
end;
create trigger {ledger_head_insert} before insert on {ledger_head} begin
  select raise(abort, 'postrider: the ledger has one head');
end;
create trigger {ledger_head_delete} before delete on {ledger_head} begin
  select raise(abort, 'postrider: the head of the ledger cannot be deleted');
end;

-- The logs of running sagas: append-only, read as a whole, deleted when the saga ends.
create table {saga_log} (
  saga blob not null,
  n integer not null,
  at integer not null,
  body text not null,
  primary key (saga, n)
) strict, without rowid;
