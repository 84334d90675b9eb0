-- Version 5: expired keys to which rows of other tables refer.

-- Removes keys one by one, those that are still as they were seen, and returns which. A key that
-- another table does not let go, by a foreign key or a trigger, stays and stops no other. No lock
-- is waited for.
create function selfsame.remove_each(ids bytea[], attempt_ids bytea[], versions integer[])
  returns setof bytea
  language plpgsql
  as $$
begin
  -- Else a deferred constraint would fail the commit, and with it all keys.
  set constraints all immediate;
  for at in 1 .. cardinality(ids) loop
    begin
      perform 1 from selfsame.keys
      where id = ids[at] and attempt_id = attempt_ids[at] and version = versions[at]
      for update skip locked;
      continue when not found;
      delete from selfsame.keys where id = ids[at];
      delete from selfsame.checkpoints where id = ids[at];
      delete from selfsame.journal where id = ids[at];
      return next ids[at];
    exception when integrity_constraint_violation or raise_exception then
      null;
    end;
  end loop;
end $$;
