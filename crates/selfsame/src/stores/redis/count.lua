-- Something was written beside this guard since it was last counted.
return redis.call('HINCRBY', KEYS[1], 'beats', 1)
