update {known} known set sequence = named.sequence
from unnest($1::bytea[], $2::bigint[]) as named (mark, sequence)
where known.mark = named.mark
