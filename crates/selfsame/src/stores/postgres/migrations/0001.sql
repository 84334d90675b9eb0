-- Version 1. All times are milliseconds since 1970 by clock(). `selfsame.` stands for the schema
-- that was chosen when the store was opened.

create table selfsame.migrations (
  version    integer     primary key,
  applied_at timestamptz not null default now()
);

-- The only clock: no statement reads another one.
create function selfsame.clock() returns bigint
  language sql volatile
  as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- One narrow row per key, updated in place: what fits beside it on its page needs no new index
-- entry. Rows that were inserted together are completed together, in one transaction, so each page
-- has room for all of its rows twice. Not partitioned, because only one index can keep a key unique.
create table selfsame.keys (
  id             bytea    primary key,  -- keyed hash of tenant, scope and key
  fingerprint    bytea    not null,     -- which request the key stands for
  state          smallint not null,     -- 1 claimed, 2 completed, 3 failed, 4 held, 5 tombstone
  state_at       bigint   not null,     -- end of the lease, time of the answer, held since
  fence          bigint   not null,     -- grows with each claim
  attempt        integer  not null,     -- runs that may have been sent
  attempt_id     bytea    not null,     -- random, one per claim
  birth          bytea,                 -- attempt_id of the first claim, where it is another
  recover        smallint not null,     -- 1 resume, 2 hold, 3 resume from a recovery point only
  created_at     bigint   not null,
  expires_at     bigint   not null,
  retention_ms   bigint   not null,
  remember_ms    bigint   not null,     -- how long a completed key is known after it expired
  tenant         bytea    not null,     -- keyed hash
  tenant_name    text,
  key            text     not null,
  route          text     not null,
  recovery_point text,                  -- its data is in checkpoints
  answer_bucket  integer,               -- the answer is in answers, in the bucket of this day
  answer_row     bigint,                -- at this row
  version        integer  not null,     -- grows with each change
  sum            bigint   not null      -- checksum of all columns
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.05,
  -- An empty table that is known to be empty would be read whole, by plans that outlive its
  -- emptiness.
  vacuum_truncate = off
);

-- Inserted once, never changed, and dropped with the day on which they expire: bucket is the day
-- of expiry, counted from 1970. Each day is a table of its own, answers_<bucket>.
create table selfsame.answers (
  bucket integer not null,
  row    bigint  not null,
  body   bytea   not null,
  primary key (bucket, row)
) partition by range (bucket);

create sequence selfsame.answer_rows cache 64;

create table selfsame.checkpoints (
  id   bytea primary key,
  body bytea not null
);

create table selfsame.facts (
  name  text  primary key,
  value bytea not null
);

create function selfsame.turn(value bigint, bits integer) returns bigint
  language sql immutable
  as $$ select (value << bits) | ((value >> (64 - bits)) & ((1::bigint << bits) - 1)) $$;

-- The part of a row's checksum that statements here can change. Each column can be taken out of
-- the sum and put in again, so that a change neither needs the other columns nor mends them.
create function selfsame.moving(
  state smallint, state_at bigint, created_at bigint, expires_at bigint,
  version integer, answer_bucket integer, answer_row bigint
) returns bigint
  language sql immutable
  as $$ select selfsame.turn(state::bigint, 58) # selfsame.turn(state_at, 41)
             # selfsame.turn(created_at, 7) # selfsame.turn(expires_at, 23)
             # selfsame.turn(version::bigint, 13)
             # selfsame.turn(coalesce(answer_bucket::bigint + 1, 0), 33)
             # selfsame.turn(coalesce(answer_row + 1, 0), 50) $$;

-- Makes the tables of these days, where they are missing. Attached and not made as a partition,
-- which would stop all who read and write answers. By right of the owner, so that who runs the
-- store need not be it.
create function selfsame.make_answers(buckets integer[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  wanted integer;
begin
  -- What is there is asked of the catalogue, in a statement that begins behind the lock:
  -- to_regclass may tell what was so before it was waited for.
  perform pg_advisory_xact_lock(hashtext('selfsame. answers'));
  for wanted in
    select distinct b from unnest(buckets) b
    where not exists (
      select 1 from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'selfsame.answers'::regclass and c.relname = format('answers_%s', b))
    order by b
  loop
    execute format('create table selfsame.answers_%s (like selfsame.answers including all)', wanted);
    execute format(
      'alter table selfsame.answers attach partition selfsame.answers_%s for values from (%s) to (%s)',
      wanted, wanted, wanted + 1);
  end loop;
end $$;

-- Drops the tables whose day was over an hour ago. Whoever reads for long is not waited for: what
-- cannot be dropped now is dropped another time.
create function selfsame.drop_answers() returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set lock_timeout = '50ms'
  as $$
declare
  past text;
  dropped integer := 0;
begin
  for past in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'selfsame.answers'::regclass
      and substr(c.relname, 9)::bigint < (selfsame.clock() - 3600000) / 86400000
  loop
    execute format('drop table selfsame.%I', past);
    dropped := dropped + 1;
  end loop;
  return dropped;
exception when lock_not_available then
  return 0;
end $$;

revoke execute on function selfsame.make_answers(integer[]), selfsame.drop_answers() from public;
