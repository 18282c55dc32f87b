insert into {versions} as kept (lane, version) values ($1, $2::text::numeric)
on conflict (lane) do update set version = greatest(kept.version, excluded.version)
