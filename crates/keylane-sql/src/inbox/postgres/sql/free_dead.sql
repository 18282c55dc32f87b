with dead as materialized (
    select id from {workers} where runs_out <= clock_timestamp()
), freed as ({freed}), gone as (
    delete from {workers} workers using dead
    where workers.id = dead.id
      and workers.runs_out < clock_timestamp() - interval '1 minute'
      and not exists (select from {lanes} lanes where lanes.worker = workers.id)
)
select count(*) as freed from freed
