-- The objects whose names begin with the prefix ?1: tables, their columns and indexes, views and triggers, by their names
-- without the prefix.
with ours as (
  select t.name, substr(t.name, length(?1) + 1) as bare, t.strict, t.wr
  from pragma_table_list t
  where t.schema = 'main' and t.type = 'table' and substr(t.name, 1, length(?1)) = ?1)
select 'table ' || bare,
  iif(strict, 'strict', 'not strict') || iif(wr, ', without rowid', '')
from ours
union all
select 'column ' || o.bare || '.' || c.name,
  lower(c.type) || iif(c."notnull", ' not null', '') || iif(c.pk > 0, ' primary key ' || c.pk, '')
    || coalesce(' default ' || c.dflt_value, '')
from ours o, pragma_table_xinfo(o.name) c
union all
select 'index ' || substr(s.name, length(?1) + 1), s.sql
from ours o join sqlite_schema s on s.tbl_name = o.name
where s.type = 'index' and s.sql is not null and substr(s.name, 1, length(?1)) = ?1
union all
select s.type || ' ' || substr(s.name, length(?1) + 1), s.sql
from sqlite_schema s
where s.type in ('view', 'trigger') and substr(s.name, 1, length(?1)) = ?1
