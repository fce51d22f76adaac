-- Staging for every language: contract 1, which docs/guides/plain-sql.md explains. A function, a view to INSERT into, and a
-- trigger function, all of which stage in the caller's own transaction.
--
-- Functions that act for roles which may not write the tables run with the owner's privileges, on a pinned search path, and never
-- build a statement from their arguments. Only the owner may call any function until `grants` gives the privilege.

-- The first three have no search path of their own, because only functions that pin it call them, once for each field.

-- A character as the errors of the Rust API print it.
create function {quote_char}(p_char text) returns text
language sql immutable as $$
  select '''' || case
    when p_char = chr(9) then E'\\t' when p_char = chr(10) then E'\\n' when p_char = chr(13) then E'\\r'
    when p_char in ('''', E'\\') then E'\\' || p_char
    when p_char ~ E'[\\u0001-\\u001f\\u007f-\\u00a0\\u1680\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff]'
      then E'\\u{' || to_hex(ascii(p_char)) || '}'
    else p_char end || ''''
$$;

-- The rules and the texts are those of `limits.rs`. A missing value breaks no rule.
create function {check_text}(p_field text, p_limit integer, p_word boolean, p_value text) returns void
language plpgsql immutable as $$
declare
  v_bytes integer := octet_length(convert_to(p_value, 'UTF8'));
  v_good text;
begin
  if p_value is null then
    return;
  elsif v_bytes = 0 then
    raise exception using errcode = '22023', message = p_field || ': must not be empty';
  elsif v_bytes > p_limit then
    raise exception using errcode = '22023',
      message = format('%s: is %s bytes long; at most %s bytes are allowed', p_field, v_bytes, p_limit);
  end if;
  -- The longest prefix without a forbidden character. E'' means the same whatever the session's settings.
  v_good := substring(p_value collate "C" from case when p_word
    then E'^[^\\u0001-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]*'
    else E'^[^\\u0001-\\u001f\\u007f-\\u009f]*' end);
  if length(v_good) < length(p_value) then
    raise exception using errcode = '22023', message = format('%s: contains %s at byte %s; %s', p_field,
      {quote_char}(substr(p_value, length(v_good) + 1, 1)), octet_length(convert_to(v_good, 'UTF8')),
      case when p_word then 'neither white space nor control characters are allowed'
           else 'control characters are not allowed' end);
  end if;
end
$$;

-- Headers as they are stored: names in lower case.
create function {check_headers}(p_headers jsonb) returns jsonb
language plpgsql immutable as $$
declare
  v_headers jsonb := '{}';
  v_count integer := 0;
  v_name text;
  v_value jsonb;
  v_good text;
  v_quoted text;
begin
  if p_headers is null or jsonb_typeof(p_headers) = 'null' then
    return v_headers;
  elsif jsonb_typeof(p_headers) <> 'object' then
    raise exception using errcode = '22023', message = 'headers: must be a JSON object of strings';
  end if;
  for v_name, v_value in select lower(h.key collate "C"), h.value from jsonb_each(p_headers) h loop
    v_quoted := '"' || replace(replace(v_name, E'\\', E'\\\\'), '"', E'\\"') || '"';
    perform {check_text}('header name', 128, true, v_name);
    v_good := substring(v_name collate "C" from '^[-a-z0-9_.]*');
    if length(v_good) < length(v_name) then
      raise exception using errcode = '22023', message = format(
        'header name %s: contains %s at byte %s; letters, digits, ''-'', ''_'' and ''.'' are allowed', v_quoted,
        {quote_char}(substr(v_name, length(v_good) + 1, 1)), octet_length(v_good));
    elsif v_name in ('content-type', 'correlation-id', 'causation-id', 'traceparent', 'tracestate', 'hlc')
       or v_name ~ '^(ce-|ce_|postrider-)' then
      raise exception using errcode = '22023',
        message = format('header %s: is reserved: set the message''s own field, or choose another name', v_quoted);
    elsif jsonb_typeof(v_value) <> 'string' then
      raise exception using errcode = '22023', message = format('header %s: must be a string', v_quoted);
    elsif v_value <> '""' then
      perform {check_text}('header ' || v_quoted, 8192, false, v_value #>> '{}');
    end if;
    v_count := v_count + (not v_headers ? v_name)::integer;
    if v_count > 64 then
      raise exception using errcode = '22023',
        message = format('headers: has %s entries; at most 64 are allowed', v_count);
    end if;
    v_headers := v_headers || jsonb_build_object(v_name, v_value);
  end loop;
  return v_headers;
end
$$;

-- Stages one message and returns its id; the id of the pending timer when that was extended, and null when a pending timer of the
-- same name was left as it is. The checks come in the order of `MessageBuilder::build`.
create function {stage}(
  queue text, payload bytea, type text default null, key text default null, tenant text default null,
  subject text default null, content_type text default null, headers jsonb default null, id uuid default null,
  due_at timestamptz default null, due_after interval default null, timer text default null,
  on_conflict text default 'ignore', correlation_id text default null, causation_id text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  -- The arguments, under names that no column has.
  v_queue text := coalesce($1, '');
  v_payload bytea := $2;
  v_type text := $3;
  v_key text := $4;
  v_tenant text := $5;
  v_subject text := $6;
  v_content_type text := nullif($7, 'application/json');
  v_headers jsonb := $8;
  -- Default id: a UUID of version 7, so that new rows are close together in the index.
  v_id uuid := coalesce($9, encode(set_bit(set_bit(overlay(
    uuid_send(gen_random_uuid())
    placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    from 1 for 6), 52, 1), 53, 1), 'hex')::uuid);
  v_at timestamptz := $10;
  v_after double precision := extract(epoch from $11)::double precision;
  v_timer text := $12;
  v_on_conflict text := coalesce($13, 'ignore');
  v_correlation_id text := $14;
  v_causation_id text := $15;
  v_traceparent text := $16;
  v_outcome text;
  v_holder uuid;
begin
  perform {check_text}('queue', 255, true, v_queue);
  if v_at is not null and v_after is not null then
    raise exception using errcode = '22023',
      message = 'due_at: cannot be combined with due_after: give one of the two';
  elsif v_after < 0 then
    raise exception using errcode = '22023', message = 'due_after: must not be negative';
  elsif v_after > 36600 * 86400::double precision then
    raise exception using errcode = '22023', message = 'due_after: lies more than 100 years ahead';
  elsif v_at < to_timestamp(0) then
    raise exception using errcode = '22023',
      message = 'due_at: lies before 1970; leave it out for a message that is due now';
  elsif v_at > to_timestamp(2 * 36600 * 86400::double precision) then
    raise exception using errcode = '22023', message = 'due_at: lies after the year 2170';
  end if;
  perform {check_text}('timer', 255, false, v_timer);
  if v_on_conflict not in ('ignore', 'extend') then
    raise exception using errcode = '22023', message = 'on_conflict: must be ignore or extend';
  end if;
  perform {check_text}('type', 255, true, v_type);
  perform {check_text}('key', 255, false, v_key);
  perform {check_text}('tenant', 255, false, v_tenant);
  perform {check_text}('subject', 255, false, v_subject);
  perform {check_text}('content_type', 255, false, v_content_type);
  perform {check_text}('correlation_id', 255, false, v_correlation_id);
  perform {check_text}('causation_id', 255, false, v_causation_id);
  if v_traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' or v_traceparent ~ '^ff'
     or v_traceparent ~ '^..-0{32}' or v_traceparent ~ '-0{16}-..$' then
    raise exception using errcode = '22023', message = 'traceparent: is not a W3C trace context such as '
      || '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  end if;
  v_headers := {check_headers}(v_headers) || jsonb_strip_nulls(jsonb_build_object(
    'correlation-id', v_correlation_id, 'causation-id', v_causation_id, 'traceparent', v_traceparent));
  if v_payload is null then
    raise exception using errcode = '22023', message = 'payload: is missing';
  elsif octet_length(v_payload) > 16777216 then
    raise exception using errcode = '22023', message = format(
      'payload: is %s bytes long; at most 16777216 bytes are allowed', octet_length(v_payload));
  end if;

  -- Due now, with neither an id nor a timer, in a queue that exists: the insert cannot conflict.
  if $9 is null and v_timer is null and v_at is null and coalesce(v_after, 0) = 0 then
    insert into {ready} (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject,
                         headers)
    select k.id, k.ordered, k.fair, case when k.ordered then coalesce(v_key, v_id::text) else v_key end, v_id, v_payload, v_type,
           v_content_type, v_tenant, v_subject, nullif(v_headers, '{}')
    from {queue} k where k.name = v_queue;
    if found then
      -- As the function `signal` does it; inline, because a function of language sql is planned anew for each message.
      perform pg_notify('{#signal}', k.name) from {queue} k
      where k.name = v_queue and current_setting('{#notify}', true) is distinct from 'off'
        and exists (select from {idle} s where s.queue = k.id and s.until > clock_timestamp());
      return v_id;
    end if;
  end if;
  select s.outcome, s.id into v_outcome, v_holder from {stage_many}(
    array[v_queue], array[1::smallint], array[v_id], array[$9 is not null], array[nullif(v_after, 0)], array[v_at],
    array[v_timer], array[v_on_conflict = 'extend'], array[v_payload], array[v_type], array[v_content_type],
    array[v_key], array[v_tenant], array[v_subject], array[nullif(v_headers, '{}')::text]) s;
  return case when v_outcome is null then v_id when v_outcome <> 'ignored' then v_holder end;
end
$$;

-- Text is stored as it is, in UTF-8. A literal without a type is text. In plpgsql, which keeps its plans.
create function {stage}(
  queue text, payload text, type text default null, key text default null, tenant text default null,
  subject text default null, content_type text default null, headers jsonb default null, id uuid default null,
  due_at timestamptz default null, due_after interval default null, timer text default null,
  on_conflict text default 'ignore', correlation_id text default null, causation_id text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return {stage}($1, convert_to($2, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
end
$$;

create function {stage}(
  queue text, payload jsonb, type text default null, key text default null, tenant text default null,
  subject text default null, content_type text default null, headers jsonb default null, id uuid default null,
  due_at timestamptz default null, due_after interval default null, timer text default null,
  on_conflict text default 'ignore', correlation_id text default null, causation_id text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return {stage}($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
end
$$;

-- Cancels a named timer that is not in flight.
create function {cancel_timer}(queue text, timer text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  v_timer text := coalesce($2, '');
  v_queue smallint;
  v_id uuid;
begin
  perform {check_text}('queue', 255, true, coalesce($1, ''));
  perform {check_text}('timer', 255, false, v_timer);
  select k.id into v_queue from {queue} k where k.name = $1;
  -- The name itself is not locked: the settlement of the message needs it, and its batch would wait for this transaction.
  select t.message_id into v_id from {timer} t where t.queue = v_queue and t.name = v_timer;
  if not found then
    return false;
  end if;
  delete from {scheduled} l where l.message_id = v_id and l.queue + 0 = v_queue;
  if not found then
    delete from {ready} r where r.message_id = v_id and r.queue + 0 = v_queue
      and {is_free}(r.queue, r.key, r.ordered, r.token, r.lease_until);
    if not found then
      return false;
    end if;
  end if;
  delete from {timer} t where t.queue = v_queue and t.name = v_timer and t.message_id = v_id;
  return true;
end
$$;

-- The contract as a table: a row inserted here is staged. The view has no rows, so that reading it discloses nothing.
create view {outbox} as
select null::text as queue, null::bytea as payload, null::jsonb as payload_json, null::text as type, null::text as key,
       null::text as tenant, null::text as subject, null::text as content_type, null::jsonb as headers, null::uuid as id,
       null::timestamptz as due_at, null::interval as due_after, null::text as timer, null::text as on_conflict,
       null::text as correlation_id, null::text as causation_id, null::text as traceparent
where false;
comment on view {outbox} is 'Postrider, plain SQL contract 1: a row inserted here is staged in the inserting transaction';

create function {stage_row}() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if new.payload is not null and new.payload_json is not null then
    raise exception using errcode = '22023',
      message = 'payload: cannot be combined with payload_json: give one of the two';
  end if;
  new.id := {stage}(
    new.queue, coalesce(new.payload, convert_to(new.payload_json::text, 'UTF8')), new.type, new.key, new.tenant,
    new.subject, new.content_type, new.headers, new.id, new.due_at, new.due_after, new.timer, new.on_conflict,
    new.correlation_id, new.causation_id, new.traceparent);
  return new;
end
$$;
create trigger outbox_insert instead of insert on {outbox} for each row execute function {stage_row}();

-- Turns the changes of a table into messages. Arguments: the queue, and the columns that hold the key, the tenant and the
-- subject, each of which may be left out or empty. The function runs with the privileges of the role that changes the row, because
-- making JSON of a row may call casts that the table's owner wrote; that role needs the privileges of a producer.
create function {stage_changes}() returns trigger
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_old jsonb;
  v_new jsonb;
  v_row jsonb;
  v_column text;
begin
  if tg_when <> 'AFTER' or tg_level <> 'ROW' or tg_nargs not between 1 and 4 then
    raise exception using errcode = '22023', message = 'stage_changes: write it as create trigger … after insert or '
      || 'update or delete on … for each row execute function … (queue [, key column [, tenant column [, subject column]]])';
  end if;
  if tg_op <> 'INSERT' then
    v_old := to_jsonb(old);
  end if;
  if tg_op <> 'DELETE' then
    v_new := to_jsonb(new);
  end if;
  v_row := coalesce(v_new, v_old);
  foreach v_column in array array[nullif(tg_argv[1], ''), nullif(tg_argv[2], ''), nullif(tg_argv[3], '')] loop
    if not v_row ? v_column then
      raise exception using errcode = '22023',
        message = format('stage_changes: table %I has no column %I', tg_table_name, v_column);
    end if;
  end loop;
  perform {stage}(
    tg_argv[0],
    convert_to(jsonb_build_object('op', lower(tg_op), 'table', tg_table_name, 'old', v_old, 'new', v_new)::text, 'UTF8'),
    tg_table_name || '.' || lower(tg_op),
    v_row ->> nullif(tg_argv[1], ''), v_row ->> nullif(tg_argv[2], ''), v_row ->> nullif(tg_argv[3], ''));
  return null;
end
$$;

-- The version of the contract. A client reads it before it relies on an addition of a later version.
create function {contract}() returns integer language sql immutable set search_path = pg_catalog, pg_temp as 'select 1';

revoke all on function
  {quote_char}, {check_text}, {check_headers}, {cancel_timer}, {stage_row}, {stage_changes}, {contract},
  {stage}(text, bytea, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text),
  {stage}(text, text, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text),
  {stage}(text, jsonb, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
from public;
