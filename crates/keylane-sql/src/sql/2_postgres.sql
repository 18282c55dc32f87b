create sequence if not exists {sequence};

create table if not exists {messages} (
    sequence bigint primary key,
    lane bytea not null,
    key bytea not null,
    payload bytea not null,
    id bytea,
    version numeric(20),
    headers bytea,
    attempts integer not null default 0,
    accepted_at timestamptz not null default clock_timestamp()
);

create index if not exists {.messages_lane} on {messages} (lane, sequence);

create table if not exists {letters} (
    sequence bigint primary key,
    lane bytea not null,
    key bytea not null,
    payload bytea not null,
    id bytea,
    version numeric(20),
    headers bytea,
    accepted_at timestamptz not null,
    attempts integer not null,
    kind smallint not null,
    error bytea not null,
    dead_lettered_at timestamptz not null default clock_timestamp()
);

-- Producers lock these rows until they commit. Each accept adds to `last`; it is 1 in
-- the transaction that makes the row.
create table if not exists {keys} (
    lane bytea primary key,
    last bigint not null,
    redriven bigint not null default 0
) with (fillfactor = 70);

-- Consumers change these rows. Each key has one, which comes and goes with the key, and
-- no index has to enforce that. `of_key` is the place of the key's row, and
-- `only_message` the place of the message if the key came with one; both may have
-- moved. Half of a page is for claims of the other half.
create table if not exists {lanes} (
    lane bytea not null,
    of_key tid,
    only_message tid,
    worker bigint,
    token bigint not null default 0,
    ready_at timestamptz not null,
    crashes smallint not null default 0
) with (fillfactor = 50);

-- Without a primary key, a publication of all tables would stop all claims.
alter table {lanes} replica identity full;

create index if not exists {.lanes_ready} on {lanes} (ready_at) where worker is null;

create index if not exists {.lanes_worker} on {lanes} (worker, token) where worker is not null;

create table if not exists {workers} (
    id bigint primary key default nextval('{tokens}'),
    name text not null,
    runs_out timestamptz not null
);

create table if not exists {known} (
    mark bytea primary key,
    sequence bigint not null,
    seen_at timestamptz not null default clock_timestamp()
);

create index if not exists {.known_seen} on {known} (seen_at);

create table if not exists {versions} (
    lane bytea primary key,
    version numeric(20) not null
);
