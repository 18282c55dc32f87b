-- Who waits for the term of an election. `place` is the order of entering.
create table if not exists {candidates} (
    id binary(32) not null,
    candidate varchar(100) character set ascii collate ascii_bin not null,
    `rank` smallint unsigned not null,
    place bigint unsigned not null auto_increment,
    runs_out datetime(6) not null,
    primary key (id, candidate),
    index of_place (place)
) engine = InnoDB;

-- The last term of each election. A row stays for ever. `stage` is 0 for a term that began, 1 while
-- its leader is leaving, and 2 when it has ended. Without a leader there was no term.
create table if not exists {terms} (
    id binary(32) primary key,
    key_start varbinary(64) not null,
    token bigint unsigned not null,
    leader varchar(100) character set ascii collate ascii_bin not null,
    stage tinyint unsigned not null,
    chosen varchar(100) character set ascii collate ascii_bin,
    history varchar(512) character set utf8mb4 collate utf8mb4_bin not null
) engine = InnoDB;
