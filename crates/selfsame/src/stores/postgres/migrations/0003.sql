-- Version 3: what happened to keys, for auditors. Rows are inserted and never changed, and nothing here takes
-- them away: they outlive the keys.
create table selfsame.audit (
  entry   bytea       primary key,  -- random: one that was sent twice is there once
  at      timestamptz not null,
  event   text        not null,
  record  bytea       not null,     -- id of the key's row
  tenant  bytea,                    -- keyed hash
  route   text,
  key     text,                     -- only where log_keys is set
  attempt integer,
  fence   bigint,
  status  integer
);

create index audit_by_record on selfsame.audit (record, at);
