create table if not exists {history} (
    one tinyint primary key,
    id varchar(512) character set utf8mb4 collate utf8mb4_bin not null
) engine = InnoDB;

alter table {messages} add column nonce bigint unsigned not null default 0;

alter table {messages} alter column nonce set default (
        cast(rand() * 1073741824 as unsigned) * 1073741824 + cast(rand() * 1073741824 as unsigned)
    );

drop table if exists {workers};

update {lanes} set worker = 0, ready_at = utc_timestamp(6) where worker <> 0;

create table if not exists {workers} (
    id bigint unsigned default 0 primary key,
    name blob not null,
    runs_out datetime(6) not null,
    history varchar(512) character set utf8mb4 collate utf8mb4_bin,
    renewals bigint unsigned not null default 0,
    constraint {.version_too_old} check (history is not null)
) engine = InnoDB;
