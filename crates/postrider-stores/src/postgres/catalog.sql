-- The existing objects, one line each: kind and name, and definition. $1 is the schema, $2 the prefix. Objects that depend on the
-- day or on the tool are left out: the daily partitions of the archive, and the record of the migrations.
with tables as (
  select c.oid, substr(c.relname, length($2) + 1) as name, c.relkind, c.relpersistence, c.reloptions
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1 and c.relkind in ('r', 'p', 'v') and starts_with(c.relname, $2)
    and substr(c.relname, length($2) + 1) !~ '^(migration|archive_[0-9]+)$')
select 'table ' || t.name,
       case t.relkind when 'p' then 'partitioned' when 'v' then 'view' else 'plain' end || case t.relpersistence when 'p' then '' else ', not logged' end
from tables t
union all
select 'column ' || t.name || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod)
       || coalesce(' collate ' || (select l.collname from pg_catalog.pg_collation l where l.oid = a.attcollation and l.collname <> 'default'), '')
       || case when a.attnotnull then ' not null' else '' end
       || case a.attidentity when 'a' then ' generated always as identity' else '' end
       || coalesce(case a.attgenerated when '' then ' default ' else ' generated as ' end || pg_get_expr(d.adbin, d.adrelid), '')
from tables t join pg_catalog.pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
union all
select 'index ' || substr(i.relname, length($2) + 1),
       case when x.indisunique then 'unique ' else '' end || m.amname || ' on ' || t.name || ' ('
       || (select string_agg(pg_get_indexdef(x.indexrelid, k, true), ', ' order by k) from generate_series(1, x.indnatts) k) || ')'
       || coalesce(' where ' || pg_get_expr(x.indpred, x.indrelid), '')
       || case when x.indisvalid then '' else ', invalid' end
from tables t join pg_catalog.pg_index x on x.indrelid = t.oid join pg_catalog.pg_class i on i.oid = x.indexrelid and not i.relispartition
join pg_catalog.pg_am m on m.oid = i.relam
union all
select 'constraint ' || substr(c.conname, length($2) + 1), 'on ' || t.name || ' ' || pg_get_constraintdef(c.oid)
from tables t join pg_catalog.pg_constraint c on c.conrelid = t.oid and c.contype in ('c', 'p', 'u')
union all
select 'option ' || t.name || '.' || split_part(o, '=', 1), split_part(o, '=', 2)
from tables t, unnest(t.reloptions) o
union all
select 'sequence ' || substr(c.relname, length($2) + 1), format_type(s.seqtypid, null) || ' cache ' || s.seqcache || ' increment ' || s.seqincrement
from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and starts_with(c.relname, $2)
union all
select 'function ' || substr(p.proname, length($2) + 1) || '(' || pg_get_function_identity_arguments(p.oid) || ')',
       l.lanname || case when p.prosecdef then ' security definer ' else ' ' end || coalesce(array_to_string(p.proconfig, ' ') || ' ', '') || md5(replace(replace(replace(replace(replace(
         p.prosrc, '"' || $1 || '"."' || $2, '"'), '"' || $2, '"'), $1 || '.' || $2, ''), '''' || $1 || '''', ''''''), '''' || $2 || '''', ''''''))
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
join pg_catalog.pg_language l on l.oid = p.prolang
where n.nspname = $1 and starts_with(p.proname, $2)
union all
select 'trigger ' || g.tgname,
       pg_get_triggerdef(g.oid) || case g.tgenabled when 'O' then '' when 'A' then ', always' when 'D' then ', disabled' else ', on replicas only' end
from tables t join pg_catalog.pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
