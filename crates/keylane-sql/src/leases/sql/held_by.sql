select owner, token,
       (extract(epoch from runs_out - clock_timestamp()) * 1000000)::bigint as remaining
from {leases}
where id = $1 and owner <> '' and runs_out > clock_timestamp()
