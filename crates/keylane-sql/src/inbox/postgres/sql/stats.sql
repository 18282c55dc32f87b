select
    (select count(*) from {messages}) as waiting,
    (select coalesce(sum(octet_length(payload) + octet_length(key)
        + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0) + 30), 0)::bigint
        from {messages}) as waiting_bytes,
    (select min(sequence) from {messages}) as oldest,
    (select count(*) from {letters}) as letters,
    (select coalesce(sum(octet_length(payload) + octet_length(key)
        + coalesce(octet_length(id), 0) + coalesce(octet_length(headers), 0)
        + octet_length(error) + 50), 0)::bigint from {letters}) as letters_bytes,
    (select count(*) from {known}) as known,
    (select count(*) from {versions}) as versions,
    (select case when is_called then last_value else 0 end from {sequence}) as tail,
    (select sum(pg_total_relation_size(name::regclass))::bigint
        from unnest(array['{messages}', '{letters}', '{keys}', '{lanes}', '{known}', '{versions}'])
        as t (name)) as file_bytes
