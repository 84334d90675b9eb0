-- How many records there are in each state. ?1 now, ?2 this boot, ?3 whether leases outlive their
-- boot. Says in SQL what Record::is_leased, is_held and is_expired say.
WITH
  leased AS (
    SELECT state, recover, recovery_point, expires_at,
           state = 1 AND (state_at < 0 OR state_at > ?1) AND (?3 OR boot = ?2) AS is_leased
    FROM keys
  ),
  held AS (
    SELECT state, expires_at, is_leased,
           state = 4
           OR (state = 1 AND NOT is_leased
               AND (recover = 2 OR (recover = 3 AND recovery_point IS NULL))) AS is_held
    FROM leased
  )
SELECT iif(is_held, 4, state) AS shown, count(*)
FROM held
WHERE is_leased OR is_held OR expires_at < 0 OR expires_at > ?1
GROUP BY shown
