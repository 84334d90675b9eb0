-- Version 4: what is kept of the request that claimed a key first. Each is a frame with a checksum of
-- its own, and null where nothing is kept.

alter table selfsame.keys
  add column outline bytea,  -- by which it is told in what another request differs
  add column request bytea;  -- the request, until there is an outcome

-- A change of columns that are not named here needs no new entry in an index, so none of the columns
-- that change with each claim and answer is.
create index kept_requests on selfsame.keys (id) where request is not null;
