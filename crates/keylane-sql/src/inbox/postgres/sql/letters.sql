select {columns}, attempts, kind, error,
    date_part('epoch', dead_lettered_at) as dead_lettered_at
from {letters} where sequence > $1 order by sequence limit $2
