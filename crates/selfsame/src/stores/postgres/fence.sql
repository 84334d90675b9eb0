-- Whether a claim still stands; its row is locked until the transaction ends. A commit that is
-- acknowledged is durable, whatever the session's own setting is.
select 1::bigint
from selfsame.keys k,
     set_config('synchronous_commit',
                case current_setting('synchronous_commit') when 'off' then 'on'
                     else current_setting('synchronous_commit') end, true)
where k.id = $1::bytea and k.attempt_id = $2::bytea and k.fence = $3::bigint
  and k.state in (1, 4)
for no key update of k
