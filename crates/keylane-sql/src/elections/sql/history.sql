select case when pg_is_in_recovery() then null else {here} end as here
