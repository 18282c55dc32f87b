insert into {workers} (id, name, runs_out, history)
values ($3, $1, clock_timestamp() + $2 * interval '1 microsecond', {here})
