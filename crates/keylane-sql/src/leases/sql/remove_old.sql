with page as (
    select id, runs_out from {leases} where id > $1 order by id limit 1000
), removed as (
    delete from {leases} leases
    using page
    where leases.id = page.id and page.runs_out < clock_timestamp() - interval '1 day'
      and leases.runs_out < clock_timestamp() - interval '1 day'
    returning leases.id
)
select (select id from page order by id desc limit 1) as last, (select count(*) from removed) as removed
