-- Staging for every language: contract 1, documented in docs/guides/plain-sql.md. A row inserted into the view `outbox`
-- is staged in the caller's own transaction.
--
-- Triggers have no variables. So each step inserts its results into the next view, whose trigger reads them from `new`, computed
-- once: outbox (validation) → staging (position and queue) → new_message (outcome) → the tables.
--
-- Every program that opens the file parses the whole schema, perhaps with a SQLite far older than ours: nothing here needs more
-- than 3.38. So RAISE takes no values, and there is no unhex and no unixepoch('subsec'). The caller's OR IGNORE or OR REPLACE
-- applies to these statements, too, so none of them relies on a conflict: they check first.

-- The version of this contract. A client reads it before it relies on additions of a later version.
create view {contract} as select 1 as version;

-- It has no rows, so that a read reveals nothing.
create view {outbox} as
select null as queue, null as payload, null as payload_json, null as type, null as key, null as tenant, null as subject,
       null as content_type, null as headers, null as id, null as due_at, null as due_after, null as timer,
       null as on_conflict, null as correlation_id, null as causation_id, null as traceparent
where false;

create view {cancel_timer} as select null as queue, null as timer where false;

-- The characters that are not allowed in a line and in a word, as patterns; and every byte, in order.
create view {alphabet} as
select '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*' as line,
       '*[' || char(1) || '-' || char(32) || char(127) || '-' || char(160) || char(5760) || char(8192) || '-' || char(8202)
         || char(8232) || char(8233) || char(8239) || char(8287) || char(12288) || ']*' as word,
       x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff' as octets;

create view {number} as
with recursive p(n) as (select 1 union all select n + 1 from p limit 255) select n from p;

create view {staging} as
select null as id, null as queue, null as staged_at, null as due_at, null as due_after, null as key, null as timer,
       null as extends, null as event_type, null as content_type, null as tenant, null as subject, null as headers,
       null as payload
where false;

create view {new_message} as
select null as outcome, null as id, null as position, null as queue, null as ordered, null as has_idle_worker, null as staged_at,
       null as due_at, null as key, null as timer, null as event_type, null as content_type, null as tenant, null as subject,
       null as headers, null as payload
where false;

create view {removal} as select null as queue, null as position, null as key where false;

create view {cancellation} as select null as queue, null as timer, null as id, null as key, null as at where false;

-- The rules are those of `limits.rs`, and so are the error texts, except for the values in them.
create trigger {outbox_insert} instead of insert on {outbox} begin
  select raise(abort, 'outbox: this file is not in UTF-8; stage through the Rust API') where length(cast('a' as blob)) <> 1;
  select case (
      select problem from (
        select t.field || case
            when typeof(t.value) = 'blob' then ' is no text'
            when length(cast(t.value as blob)) = 0 then ' is empty'
            when length(cast(t.value as blob)) > 255 then ' is long'
            when t.value glob iif(t.word, a.word, a.line) or instr(t.value, char(0)) > 0 then ' holds a bad character'
            -- SQLite decodes a character and encodes it again to the same bytes, unless they were not UTF-8.
            when t.value glob '*[^ -~]*' and exists (
              select 1 from {number} p where p.n <= length(t.value)
                and char(unicode(substr(t.value, p.n, 1))) <> substr(t.value, p.n, 1)) then ' is no text'
          end as problem
        from (select 'queue' as field, 1 as word, coalesce(new.queue, '') as value
          union all select 'timer', 0, new.timer union all select 'type', 1, new.type union all select 'key', 0, new.key
          union all select 'tenant', 0, new.tenant union all select 'subject', 0, new.subject
          union all select 'content_type', 0, new.content_type
          union all select 'correlation_id', 0, new.correlation_id
          union all select 'causation_id', 0, new.causation_id) t, {alphabet} a
        where t.value is not null)
      where problem is not null limit 1)
    when 'queue is no text' then raise(abort, 'queue: must be text in UTF-8')
    when 'queue is empty' then raise(abort, 'queue: must not be empty')
    when 'queue is long' then raise(abort, 'queue: is too long; at most 255 bytes are allowed')
    when 'queue holds a bad character' then raise(abort, 'queue: neither white space nor control characters are allowed')
    when 'timer is no text' then raise(abort, 'timer: must be text in UTF-8')
    when 'timer is empty' then raise(abort, 'timer: must not be empty')
    when 'timer is long' then raise(abort, 'timer: is too long; at most 255 bytes are allowed')
    when 'timer holds a bad character' then raise(abort, 'timer: control characters are not allowed')
    when 'type is no text' then raise(abort, 'type: must be text in UTF-8')
    when 'type is empty' then raise(abort, 'type: must not be empty')
    when 'type is long' then raise(abort, 'type: is too long; at most 255 bytes are allowed')
    when 'type holds a bad character' then raise(abort, 'type: neither white space nor control characters are allowed')
    when 'key is no text' then raise(abort, 'key: must be text in UTF-8')
    when 'key is empty' then raise(abort, 'key: must not be empty')
    when 'key is long' then raise(abort, 'key: is too long; at most 255 bytes are allowed')
    when 'key holds a bad character' then raise(abort, 'key: control characters are not allowed')
    when 'tenant is no text' then raise(abort, 'tenant: must be text in UTF-8')
    when 'tenant is empty' then raise(abort, 'tenant: must not be empty')
    when 'tenant is long' then raise(abort, 'tenant: is too long; at most 255 bytes are allowed')
    when 'tenant holds a bad character' then raise(abort, 'tenant: control characters are not allowed')
    when 'subject is no text' then raise(abort, 'subject: must be text in UTF-8')
    when 'subject is empty' then raise(abort, 'subject: must not be empty')
    when 'subject is long' then raise(abort, 'subject: is too long; at most 255 bytes are allowed')
    when 'subject holds a bad character' then raise(abort, 'subject: control characters are not allowed')
    when 'content_type is no text' then raise(abort, 'content_type: must be text in UTF-8')
    when 'content_type is empty' then raise(abort, 'content_type: must not be empty')
    when 'content_type is long' then raise(abort, 'content_type: is too long; at most 255 bytes are allowed')
    when 'content_type holds a bad character' then raise(abort, 'content_type: control characters are not allowed')
    when 'correlation_id is no text' then raise(abort, 'correlation_id: must be text in UTF-8')
    when 'correlation_id is empty' then raise(abort, 'correlation_id: must not be empty')
    when 'correlation_id is long' then raise(abort, 'correlation_id: is too long; at most 255 bytes are allowed')
    when 'correlation_id holds a bad character' then raise(abort, 'correlation_id: control characters are not allowed')
    when 'causation_id is no text' then raise(abort, 'causation_id: must be text in UTF-8')
    when 'causation_id is empty' then raise(abort, 'causation_id: must not be empty')
    when 'causation_id is long' then raise(abort, 'causation_id: is too long; at most 255 bytes are allowed')
    when 'causation_id holds a bad character' then raise(abort, 'causation_id: control characters are not allowed')
  end;
  select case
    when new.due_at is not null and new.due_after is not null
      then raise(abort, 'due_at: cannot be combined with due_after: give one of the two')
    when typeof(new.due_after) = 'blob' or (typeof(new.due_after) = 'text' and (new.due_after not glob '*[0-9]*'
        or ltrim(new.due_after, '-') glob '*[^0-9.]*' or new.due_after glob '*.*.*' or new.due_after glob '--*'))
      then raise(abort, 'due_after: is not a number of seconds')
    when typeof(new.due_at) = 'blob' or (typeof(new.due_at) = 'text' and (julianday(new.due_at) is null
        or new.due_at not glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'))
      then raise(abort, 'due_at: is neither a time such as 2030-01-31T12:00:00Z nor a number of seconds since 1970')
    when new.on_conflict not in ('ignore', 'extend') then raise(abort, 'on_conflict: must be ignore or extend')
    when new.id is not null and not (typeof(new.id) = 'blob' and length(new.id) = 16) and (typeof(new.id) <> 'text'
        or length(cast(replace(new.id, '-', '') as blob)) <> 32 or replace(new.id, '-', '') glob '*[^0-9a-fA-F]*')
      then raise(abort, 'id: is not a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057')
    when new.traceparent is not null and (typeof(new.traceparent) <> 'text'
        or length(cast(new.traceparent as blob)) <> 55
        or substr(new.traceparent, 3, 1) || substr(new.traceparent, 36, 1) || substr(new.traceparent, 53, 1) <> '---'
        or substr(new.traceparent, 1, 2) || substr(new.traceparent, 4, 32) || substr(new.traceparent, 37, 16)
          || substr(new.traceparent, 54) glob '*[^0-9a-f]*'
        or new.traceparent glob 'ff*' or substr(new.traceparent, 4, 32) not glob '*[^0]*'
        or substr(new.traceparent, 37, 16) not glob '*[^0]*')
      then raise(abort, 'traceparent: is not a W3C trace context such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')
    when new.headers is not null and (typeof(new.headers) <> 'text' or not json_valid(new.headers)
        or json_type(new.headers) not in ('object', 'null'))
      then raise(abort, 'headers: must be a JSON object of strings')
    when new.payload is not null and new.payload_json is not null
      then raise(abort, 'payload: cannot be combined with payload_json: give one of the two')
    when new.payload is null and new.payload_json is null then raise(abort, 'payload: is missing')
    when new.payload_json is not null and (typeof(new.payload_json) = 'blob' or not json_valid(new.payload_json))
      then raise(abort, 'payload_json: is not JSON')
    when length(cast(coalesce(new.payload, new.payload_json) as blob)) > 16777216
      then raise(abort, 'payload: is too long; at most 16777216 bytes are allowed')
  end;
  select case
    when length(cast(h.name as blob)) = 0 then raise(abort, 'header name: must not be empty')
    when length(cast(h.name as blob)) > 128 then raise(abort, 'header name: is too long; at most 128 bytes are allowed')
    when h.name glob '*[^-a-z0-9_.]*' or instr(h.name, char(0)) > 0
      then raise(abort, 'header name: letters, digits, ''-'', ''_'' and ''.'' are allowed')
    when h.name in ('content-type', 'correlation-id', 'causation-id', 'traceparent', 'tracestate', 'hlc')
        or h.name glob 'ce[-_]*' or h.name glob 'postrider-*'
      then raise(abort, 'header: is reserved: set the message''s own field, or choose another name')
    when h.type <> 'text' then raise(abort, 'header: must be a string')
    when length(cast(h.value as blob)) > 8192 then raise(abort, 'header: is too long; at most 8192 bytes are allowed')
    -- SQLite ends a text at \u0000 in JSON, so the check comes before the value is decoded.
    when h.value glob a.line or replace(new.headers, '\\', '') glob '*\u0000*'
      then raise(abort, 'header: control characters are not allowed')
    when (select count(distinct lower(j.key)) from json_each(new.headers) j) > 64
      then raise(abort, 'headers: has too many entries; at most 64 are allowed')
    end
  from (select lower(j.key) as name, j.value, j.type from json_each(new.headers) j where j.key is not null) h, {alphabet} a;

  insert into {staging} (id, queue, staged_at, due_at, due_after, key, timer, extends, event_type, content_type, tenant,
    subject, headers, payload)
  select
    case typeof(new.id)
      when 'blob' then new.id
      -- Decoded byte by byte, from two digits each.
      when 'text' then cast((
        select group_concat(substr(a.octets, 16 * instr('123456789abcdef', substr(lower(replace(new.id, '-', '')), j.value, 1))
          + instr('0123456789abcdef', substr(lower(replace(new.id, '-', '')), j.value + 1, 1)), 1), '')
        from json_each('[1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31]') j) as blob)
      -- Without an id: a UUID of version 7, so that new rows are neighbours in the index.
      else cast(substr(a.octets, 1 + (now.micros / 1000 >> 40 & 255), 1) || substr(a.octets, 1 + (now.micros / 1000 >> 32 & 255), 1)
        || substr(a.octets, 1 + (now.micros / 1000 >> 24 & 255), 1) || substr(a.octets, 1 + (now.micros / 1000 >> 16 & 255), 1)
        || substr(a.octets, 1 + (now.micros / 1000 >> 8 & 255), 1) || substr(a.octets, 1 + (now.micros / 1000 & 255), 1)
        || substr(a.octets, 113 + (random() & 15), 1) || randomblob(1)
        || substr(a.octets, 129 + (random() & 63), 1) || randomblob(7) as blob)
    end,
    cast(new.queue as text), now.micros,
    case typeof(new.due_at)
      when 'null' then null
      when 'text' then cast(round((julianday(new.due_at) - 2440587.5) * 86400000.0) as integer) * 1000
      else cast(round(new.due_at * 1000000.0) as integer)
    end,
    cast(round(new.due_after * 1000000.0) as integer),
    cast(new.key as text), cast(new.timer as text), coalesce(new.on_conflict, 'ignore') = 'extend', cast(new.type as text),
    nullif(cast(new.content_type as text), 'application/json'), cast(new.tenant as text), cast(new.subject as text),
    -- As the Rust API writes them: names in lower case and sorted. The last value of a repeated name wins.
    (select nullif(json_group_object(h.name, h.value), '{}') from (
      select g.name, g.value from (
        select lower(j.key) as name, j.value as value, max(j.id) from json_each(new.headers) j where j.key is not null
        group by lower(j.key)) g
      union all select 'correlation-id', cast(new.correlation_id as text) where new.correlation_id is not null
      union all select 'causation-id', cast(new.causation_id as text) where new.causation_id is not null
      union all select 'traceparent', new.traceparent where new.traceparent is not null
      order by 1) h),
    cast(coalesce(new.payload, json(new.payload_json)) as blob)
  from {alphabet} a, (select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000 as micros) now;
end;

-- Draws the position, creates the queue if it is missing, and determines the outcome of staging.
create trigger {staging_insert} instead of insert on {staging} begin
  select case
    when new.due_after < 0 then raise(abort, 'due_after: must not be negative')
    when new.due_after > 36600 * 86400 * 1000000 then raise(abort, 'due_after: lies more than 100 years ahead')
    when new.due_at < 0 then raise(abort, 'due_at: lies before 1970; leave it out for a message that is due now')
    when new.due_at > 2 * 36600 * 86400 * 1000000 then raise(abort, 'due_at: lies after the year 2170')
  end;
  update {position} set last = last + 1;
  insert into {queue} (name) select new.queue where not exists (select 1 from {queue} q where q.name = new.queue);
  insert into {new_message} (outcome, id, position, queue, ordered, has_idle_worker, staged_at, due_at, key, timer, event_type, content_type,
    tenant, subject, headers, payload)
  select
    case
      when exists (select 1 from {ready} m where m.message_id = new.id and m.queue = q.id)
        or exists (select 1 from {scheduled} m where m.message_id = new.id and m.queue = q.id)
        or exists (select 1 from {dead} m where m.message_id = new.id and m.queue = q.id)
        or exists (select 1 from {archive} m where m.message_id = new.id and m.queue = q.id) then 'duplicate'
      when new.timer is null then iif(q.due_at <= new.staged_at, 'ready', 'scheduled')
      when not exists (select 1 from {timer} t where t.queue = q.id and t.name = new.timer) then 'scheduled'
      -- An active timer that is scheduled, or is due and free.
      when new.extends and q.due_at > (
        select w.due_at from {timer} t cross join {scheduled} w on w.message_id = t.message_id and w.queue = t.queue
        where t.queue = q.id and t.name = new.timer
        union all
        select r.due_at from {timer} t cross join {ready} r on r.message_id = t.message_id and r.queue = t.queue
        where t.queue = q.id and t.name = new.timer 
          and (r.promoted = 1 or (r.ordered = 0 and coalesce(r.lease_until, 0) <= new.staged_at))) then 'extended'
      else 'ignored'
    end,
    new.id, q.position, q.id, q.ordered,
    exists (select 1 from {idle} s where s.queue = new.queue and s.until > new.staged_at),
    new.staged_at, q.due_at,
    -- On an ordered queue, a message without a key has a lane of its own, named by its id: that of the active timer, if there
    -- is one, because an extension keeps the id.
    coalesce(new.key, iif(q.ordered, (
      select substr(h.hex, 1, 8) || '-' || substr(h.hex, 9, 4) || '-' || substr(h.hex, 13, 4) || '-' || substr(h.hex, 17, 4)
        || '-' || substr(h.hex, 21)
      from (select lower(hex(coalesce(
        (select t.message_id from {timer} t where t.queue = q.id and t.name = new.timer), new.id))) as hex) h), null)),
    new.timer, new.event_type, new.content_type, new.tenant, new.subject, new.headers,
    new.payload
  from (
    select k.id, k.ordered, l.last as position,
      max(new.staged_at, coalesce(new.due_at, new.staged_at + coalesce(new.due_after, 0))) as due_at
    from {queue} k, {position} l where k.name = new.queue) q;
end;

create trigger {new_message_ready} instead of insert on {new_message} when new.outcome = 'ready' begin
  insert into {ready} (id, queue, message_id, ordered, fair, staged_at, due_at, key, event_type, content_type, tenant, subject,
    headers, payload)
  values (new.position, new.queue, new.id, new.ordered, (select q.fair from {queue} q where q.id = new.queue), new.staged_at,
    new.due_at, new.key, new.event_type, new.content_type, new.tenant, new.subject, new.headers, new.payload);
  insert into {lane} (queue, key, turn)
  select new.queue, new.key, new.position
  where new.ordered and not exists (select 1 from {lane} l where l.queue = new.queue and l.key = new.key);
  update {queue} set signals = signals + 1 where id = new.queue and new.has_idle_worker;
end;

-- A timer is scheduled even when it is due now: it can be extended and cancelled until it is claimed.
create trigger {new_message_scheduled} instead of insert on {new_message} when new.outcome = 'scheduled' begin
  insert into {timer} (queue, name, message_id) select new.queue, new.timer, new.id where new.timer is not null;
  insert into {scheduled} (id, queue, message_id, ordered, staged_at, due_at, key, timer, event_type, content_type, tenant,
    subject, headers, payload)
  values (new.position, new.queue, new.id, new.ordered, new.staged_at, new.due_at, new.key, new.timer, new.event_type,
    new.content_type, new.tenant, new.subject, new.headers, new.payload);
  update {queue} set signals = signals + 1 where id = new.queue and new.has_idle_worker and new.due_at <= new.staged_at;
end;

-- The active timer takes the later due time and the new content. It keeps its id and its position.
create trigger {new_message_extended} instead of insert on {new_message} when new.outcome = 'extended' begin
  -- It may have come due already: then it goes back from ready.
  insert into {scheduled} (id, due_at, queue, message_id, ordered, staged_at, attempts, deliveries, key, timer, event_type,
    content_type, tenant, subject, headers, last_error, payload)
  select r.id, r.due_at, r.queue, r.message_id, r.ordered, r.staged_at, r.attempts, r.deliveries, r.key, r.timer, r.event_type,
    r.content_type, r.tenant, r.subject, r.headers, r.last_error, r.payload
  from {timer} t cross join {ready} r on r.message_id = t.message_id and r.queue = t.queue
  where t.queue = new.queue and t.name = new.timer;
  insert into {removal} (queue, position, key)
  select r.queue, r.id, r.key from {timer} t cross join {ready} r on r.message_id = t.message_id and r.queue = t.queue
  where t.queue = new.queue and t.name = new.timer;
  update {scheduled} set
    due_at = new.due_at, key = new.key, event_type = new.event_type, content_type = new.content_type, tenant = new.tenant,
    subject = new.subject, headers = new.headers, payload = new.payload, attempts = 0, deliveries = 0, first_failed_at = null, last_error = null
  where message_id = (select t.message_id from {timer} t where t.queue = new.queue and t.name = new.timer)
    and queue = new.queue;
end;

-- Removes a message from `ready` and from its lane. Expired leases (`expired_leases`) count for the head and are cleared with it; a lane
-- without messages is deleted.
create trigger {removal_insert} instead of insert on {removal} begin
  update {lane} set expired_leases = 0
  where queue = new.queue and key = new.key and expired_leases > 0 and not exists (
    select 1 from {ready} r where r.queue = new.queue and r.key = new.key and r.ordered = 1 and r.id < new.position);
  delete from {ready} where id = new.position;
  delete from {lane}
  where queue = new.queue and key = new.key and not exists (
    select 1 from {ready} r where r.queue = new.queue and r.key = new.key and r.ordered = 1);
end;

-- Cancels a timer, unless it is in flight: leased, or of a leased key.
create trigger {cancel_timer_insert} instead of insert on {cancel_timer} begin
  insert into {cancellation} (queue, timer, id, key, at)
  select t.queue, t.name, t.message_id,
    (select r.key from {ready} r where r.message_id = t.message_id and r.queue = t.queue), t.now
  from (
    select t.queue, t.name, t.message_id, cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000 as now
    from {queue} q cross join {timer} t on t.queue = q.id
    where q.name = cast(new.queue as text) and t.name = cast(new.timer as text)) t
  where exists (select 1 from {scheduled} w where w.message_id = t.message_id and w.queue = t.queue)
    or exists (
      select 1 from {ready} r
      where r.message_id = t.message_id and r.queue = t.queue and coalesce(r.lease_until, 0) <= t.now
        and not (r.ordered = 1 and exists (
          select 1 from {lane} l where l.queue = r.queue and l.key = r.key and l.lease_until > t.now)));
end;

create trigger {cancellation_insert} instead of insert on {cancellation} begin
  delete from {scheduled} where message_id = new.id and queue = new.queue;
  insert into {removal} (queue, position, key)
  select r.queue, r.id, r.key from {ready} r where r.message_id = new.id and r.queue = new.queue;
  -- An expired lease on its key is cleared, so that it does not count against the next message.
  update {lane} set token = null, lease_until = null where queue = new.queue and key = new.key and lease_until <= new.at;
  delete from {timer} where queue = new.queue and name = new.timer;
end;
