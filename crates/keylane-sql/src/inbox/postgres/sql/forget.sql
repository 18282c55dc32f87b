delete from {known} where mark in (
    select mark from {known} where seen_at < clock_timestamp() - $1 * interval '1 microsecond'
    order by seen_at limit $2 for update skip locked
)
