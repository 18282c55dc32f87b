create table if not exists {history} (one smallint primary key, id text not null);

-- Existing rows keep 0: the table is not rewritten.
alter table {messages} add column if not exists nonce bigint not null default 0;

alter table {messages} alter column nonce set default (random() * 4503599627370496)::bigint;

delete from {workers};

update {lanes} set worker = null, ready_at = clock_timestamp() where worker is not null;

alter table {workers} add column if not exists history text,
        add column if not exists renewals bigint not null default 0,
        add constraint {.version_too_old} check (history is not null);
