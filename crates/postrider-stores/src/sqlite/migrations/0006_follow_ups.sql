-- Follow-ups: what is left of a subject is found by its name, in every room. Messages about nobody have nothing in these indexes.
create index {ready_subject} on {ready} (subject, queue) where subject is not null;
create index {later_subject} on {later} (subject, queue) where subject is not null;
create index {dead_subject} on {dead} (subject, queue) where subject is not null;
create index {archive_subject} on {archive} (subject, queue) where subject is not null;

-- What became of follow-ups: a chain, in which each link is hashed together with the one before it. SQLite cannot hash, so whoever
-- appends brings the hash along; the triggers see to it that it is appended, and nothing else.
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

-- Where the chain ends: without it nobody would miss the last links.
create table {ledger_head} (
  id integer primary key check (id = 1),
  position integer not null,
  hash blob not null check (length(hash) = 32)
) strict;
insert into {ledger_head} (id, position, hash) values (1, 0, zeroblob(32));

-- OR REPLACE removes what stands in its way without asking the trigger of deletes: nothing may stand in its way.
create trigger {ledger_append} before insert on {ledger}
when not exists (select 1 from {ledger_head} h where h.position + 1 = new.position and h.hash = new.previous)
  or exists (select 1 from {ledger} l where l.event_id = json_extract(new.body, '$.id'))
begin
  select raise(abort, 'postrider: an event is appended to the end of the ledger, once');
end;
create trigger {ledger_appended} after insert on {ledger} begin
  update {ledger_head} set position = new.position, hash = new.hash;
end;
create trigger {ledger_update} before update on {ledger} begin
  select raise(abort, 'postrider: the ledger is appended to, and never changed');
end;
create trigger {ledger_delete} before delete on {ledger} begin
  select raise(abort, 'postrider: the ledger is appended to, and nothing is removed from it');
end;
create trigger {ledger_head_update} before update on {ledger_head}
when not exists (select 1 from {ledger} l where l.position = old.position + 1 and l.position = new.position and l.hash = new.hash)
begin
  select raise(abort, 'postrider: the head of the ledger moves with what is appended, and not otherwise');
end;
create trigger {ledger_head_insert} before insert on {ledger_head} begin
  select raise(abort, 'postrider: the ledger has one head');
end;
create trigger {ledger_head_delete} before delete on {ledger_head} begin
  select raise(abort, 'postrider: the head of the ledger is never removed');
end;
