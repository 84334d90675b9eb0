-- How many records there are in each state. ?1 now, ?2 this boot, ?3 whether leases outlive their
-- boot. Says in SQL what Record::is_leased, is_held, is_tombstone and is_expired say.
WITH
  leased AS (
    SELECT state, recover, recovery_point,
           expires_at BETWEEN 0 AND ?1 AS is_over,
           state IN (2, 5) AND (remember_ms < 0 OR expires_at + remember_ms > ?1) AS is_remembered,
           state = 1 AND (state_at < 0 OR state_at > ?1) AND (?3 OR boot = ?2) AS is_leased
    FROM keys
  ),
  held AS (
    SELECT state, is_over, is_remembered, is_leased,
           state = 4
           OR (state = 1 AND NOT is_leased
               AND (recover = 2 OR (recover = 3 AND recovery_point IS NULL))) AS is_held
    FROM leased
  )
SELECT iif(is_held, 4, iif(is_over AND is_remembered, 5, state)) AS shown, count(*)
FROM held
WHERE is_leased OR is_held OR is_remembered OR NOT is_over
GROUP BY shown
