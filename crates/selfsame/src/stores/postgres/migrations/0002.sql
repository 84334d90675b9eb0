-- Version 2: the phases of runs that commit in their services' own transactions.

-- A row per finished phase. Rows of one life of a key: birth is as in keys, or the attempt_id that
-- stands for it there. They go where the key's checkpoint goes.
create table selfsame.journal (
  id      bytea   not null,
  birth   bytea   not null,
  ordinal integer not null,  -- counted from 1
  name    text    not null,  -- as body has it, for people
  body    bytea   not null,  -- with its output and a checksum
  primary key (id, birth, ordinal)
);
