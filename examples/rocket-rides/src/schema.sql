create table if not exists rides (
  id     bigserial primary key,
  -- The request it was ordered by, for as long as its key is known.
  record bytea  references selfsame.keys (id) on delete set null,
  rider  text   not null,
  fare   bigint not null,
  state  text   not null default 'created',
  charge bigint
);

create index if not exists rides_record on rides (record);
