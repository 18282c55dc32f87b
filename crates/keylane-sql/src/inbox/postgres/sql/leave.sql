with freed as (
    update {lanes} set worker = null, ready_at = clock_timestamp() where worker = $1
)
delete from {workers} where id = $1
