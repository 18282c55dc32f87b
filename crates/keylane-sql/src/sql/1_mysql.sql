create table if not exists {counters} (
    name varchar(16) character set ascii collate ascii_bin primary key,
    value bigint unsigned not null
) engine = InnoDB;

insert ignore into {counters} (name, value) values ('tokens', 0);

create table if not exists {leases} (
    id binary(32) primary key,
    key_start varbinary(64) not null,
    owner varchar(64) character set ascii collate ascii_bin not null,
    token bigint unsigned not null,
    runs_out datetime(6) not null
) engine = InnoDB;
