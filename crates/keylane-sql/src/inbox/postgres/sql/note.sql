insert into {history} as known (one, id) values (1, {here})
on conflict (one) do update set id = excluded.id where known.id <> excluded.id
returning id
