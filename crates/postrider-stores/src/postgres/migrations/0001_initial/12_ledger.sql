-- The ledger: the outcomes of follow-ups. Events form a hash chain; each is hashed together with the hash before it:
--
--   hash(n) = sha256(hash(n-1) || n || microseconds since 1970 || body)      numbers as 8 bytes, big-endian; hash(0) is 32 zero bytes
--
-- The ledger is append-only. Positions come from the head and not from a sequence, which would leave gaps after a rollback: one
-- transaction appends at a time.
create table {ledger} (
  position bigint not null,
  at timestamptz not null,
  event_id uuid not null generated always as ((body::jsonb ->> 'id')::uuid) stored,
  subject text generated always as (body::jsonb ->> 'subject') stored,
  -- Text and not jsonb, which would change the bytes: the body is hashed byte for byte.
  body text not null,
  previous bytea not null,
  hash bytea not null,
  constraint {#ledger_pkey} primary key (position),
  constraint {#ledger_event} unique (event_id)
);
create index {#ledger_subject} on {ledger} (subject, position) where subject is not null;
create index {#ledger_at} on {ledger} (at, position);

-- The end of the chain, which shows when the last events are missing. A transaction that appends locks this row.
create table {ledger_head} (
  single boolean not null default true,
  position bigint not null,
  at timestamptz not null,
  hash bytea not null,
  constraint {#ledger_head_pkey} primary key (single),
  constraint {#ledger_head_single} check (single)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
insert into {ledger_head} (position, at, hash) values (0, '-infinity', decode(repeat('00', 32), 'hex'));

create function {refuse_change}() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = '23001',
    message = format('%s on %I.%I is refused: the ledger is append-only', lower(tg_op), tg_table_schema, tg_table_name),
    hint = 'Append an event that records the correction.';
end
$$;
create trigger ledger_append_only before update or delete or truncate on {ledger} for each statement execute function {refuse_change}();
create trigger ledger_head_permanent before delete or truncate on {ledger_head} for each statement execute function {refuse_change}();

-- Enabled also for sessions that disable ordinary triggers with session_replication_role = replica.
alter table {ledger} enable always trigger ledger_append_only;
alter table {ledger_head} enable always trigger ledger_head_permanent;

-- Appends events in their order. Returns null, or, having appended nothing, the id of an event that exists already. The search for
-- it comes after the lock and so sees every event appended before. No event is older than the one before it, whatever the clock
-- does.
create function {append_ledger}(p_bodies text[]) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_position bigint;
  v_at timestamptz;
  v_micros bigint;
  v_previous bytea;
  v_hash bytea;
  v_body text;
  v_known uuid;
begin
  select h.position, greatest(h.at, clock_timestamp()), h.hash into v_position, v_at, v_hash from {ledger_head} h for update;
  if not found then
    raise exception using errcode = '55000', message = 'the head of the ledger is missing; verify the ledger';
  end if;
  select l.event_id into v_known from {ledger} l
  where l.event_id = any(array(select (b.body::jsonb ->> 'id')::uuid from unnest(p_bodies) b(body))) limit 1;
  if found then
    return v_known;
  end if;
  v_micros := extract(epoch from v_at) * 1000000;
  foreach v_body in array p_bodies loop
    v_position := v_position + 1;
    v_previous := v_hash;
    v_hash := sha256(v_previous || int8send(v_position) || int8send(v_micros) || convert_to(v_body, 'UTF8'));
    insert into {ledger} (position, at, body, previous, hash) values (v_position, v_at, v_body, v_previous, v_hash);
  end loop;
  update {ledger_head} h set position = v_position, at = v_at, hash = v_hash;
  return null;
end
$$;

revoke all on function {refuse_change}, {append_ledger} from public;
