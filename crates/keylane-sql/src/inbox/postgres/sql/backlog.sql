select
    (select count(*) from (select from {messages} order by sequence limit $1) as looked_at) as waiting,
    (select count(*) from (select from {letters} order by sequence limit $1) as looked_at) as letters,
    (select coalesce(extract(epoch from clock_timestamp() - accepted_at) * 1000000, 0)::bigint
        from {messages} order by sequence limit 1) as age,
    (select (reltuples / greatest(relpages, 1)
        * (pg_relation_size(oid) / current_setting('block_size')::bigint))::bigint
        from pg_class where oid = '{messages}'::regclass) as estimated
