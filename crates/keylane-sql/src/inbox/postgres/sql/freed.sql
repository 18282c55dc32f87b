update {lanes} lanes
set worker = null, ready_at = clock_timestamp(), crashes = least(lanes.crashes + 1, 1000)
from (
    select orphan.ctid as place
    from dead cross join lateral (
        select ctid from {lanes} orphans where orphans.worker = dead.id
        limit $1 for update skip locked
    ) as orphan
    limit $1
) as orphaned
where lanes.ctid = orphaned.place
returning lanes.lane
