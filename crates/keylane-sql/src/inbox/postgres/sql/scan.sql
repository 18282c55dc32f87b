select {columns} from (
    select *, sum(bytes) over (order by sequence) - bytes as before
    from (
        select *, octet_length(payload) + octet_length(key) + 30 as bytes
        from {messages} where sequence >= $1 order by sequence limit $2
    ) as page
) as page
where before < $3 or before = 0
order by sequence
