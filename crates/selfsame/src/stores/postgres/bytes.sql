select coalesce(sum(pg_total_relation_size(class.oid)), 0)::int8
from pg_class class
join pg_namespace namespace on namespace.oid = class.relnamespace
where namespace.nspname = 'selfsame' and class.relkind = 'r'
