select 1 where case when pg_is_in_recovery() then false
    else exists (select from {history} where id = {here}) end
