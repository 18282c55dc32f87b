insert into {known} (mark, sequence)
select mark, 0 from unnest($1::bytea[]) as m (mark) order by mark
on conflict (mark) do nothing
returning mark
