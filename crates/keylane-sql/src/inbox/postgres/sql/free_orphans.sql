with recursive holders (id) as (
    select min(worker) from {lanes}
    union all
    select (select min(worker) from {lanes} lanes where lanes.worker > holders.id)
    from holders where holders.id is not null
), dead as materialized (
    select id from holders
    where id is not null
      and not exists (select from {workers} workers where workers.id = holders.id)
), freed as ({freed})
select count(*) as freed from freed
