-- Sets a key for an operator: a pause, or a command to a worker. Works on a Redis whose memory is full, which is when an
-- operator may need it.
--
-- KEYS  1 key             any type; its value is replaced
-- ARGV  1 value           the new value
--       2 life            ms until it expires, 0 for never
-- Reply 1
--
-- Run twice, the second run changes nothing except when the key expires.

local key, value, life = KEYS[1], ARGV[1], tonumber(ARGV[2])

write_when_full(key)
if life > 0 then
    redis.call('SET', key, value, 'PX', life)
else
    redis.call('SET', key, value)
end
return 1
