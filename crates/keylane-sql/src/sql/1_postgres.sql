create sequence if not exists {tokens};

-- `runs_out` changes with each renewal and has no index, so the row stays on its page.
create table if not exists {leases} (
    id bytea primary key,
    key_start bytea not null,
    owner text not null,
    token bigint not null,
    runs_out timestamptz not null
) with (fillfactor = 50);
