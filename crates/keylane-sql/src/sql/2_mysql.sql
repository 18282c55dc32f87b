-- In both databases the counter of sequences outlives its rows and a restart. The size
-- of a payload is in the index, so pages are measured without reading payloads.
create table if not exists {messages} (
    sequence bigint unsigned auto_increment primary key,
    lane binary(32) not null,
    `key` mediumblob not null,
    payload longblob not null,
    payload_bytes int unsigned not null,
    id varbinary(256),
    version bigint unsigned,
    headers mediumblob,
    attempts int unsigned not null default 0,
    accepted_at datetime(6) not null,
    index of_lane (lane, sequence, payload_bytes)
) engine = InnoDB;

create table if not exists {letters} (
    sequence bigint unsigned primary key,
    lane binary(32) not null,
    `key` mediumblob not null,
    payload longblob not null,
    payload_bytes int unsigned not null,
    id varbinary(256),
    version bigint unsigned,
    headers mediumblob,
    accepted_at datetime(6) not null,
    attempts int unsigned not null,
    kind tinyint unsigned not null,
    error blob not null,
    dead_lettered_at datetime(6) not null
) engine = InnoDB;

-- Producers lock these rows until they commit. `last` is 1 only in the transaction that
-- makes the row.
create table if not exists {keys} (
    lane binary(32) primary key,
    last bigint unsigned not null,
    redriven bigint unsigned not null
) engine = InnoDB;

-- Consumers change these rows. `worker` is 0 while no worker has the lane; `ready_at`
-- says since when.
create table if not exists {lanes} (
    lane binary(32) primary key,
    worker bigint unsigned not null default 0,
    token bigint unsigned not null default 0,
    ready_at datetime(6) not null,
    crashes smallint unsigned not null default 0,
    index of_worker (worker, ready_at)
) engine = InnoDB;

create table if not exists {workers} (
    id bigint unsigned auto_increment primary key,
    name blob not null,
    runs_out datetime(6) not null
) engine = InnoDB;

create table if not exists {known} (
    mark binary(32) primary key,
    sequence bigint unsigned not null,
    seen_at datetime(6) not null,
    index seen (seen_at)
) engine = InnoDB;

create table if not exists {versions} (
    lane binary(32) primary key,
    version bigint unsigned not null
) engine = InnoDB;
