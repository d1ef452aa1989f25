-- Adds a device token to those that APNs throttles, and removes those whose time has passed.
--
-- KEYS  1 throttled-tokens  ZSET token -> the end of its pause (ms since 1970)
-- ARGV  1 token             lower-case hex
--       2 until             the end of its pause, ms since 1970
-- Reply 1
--
-- Run twice, the second run changes nothing.

local key, token, ends = KEYS[1], ARGV[1], ARGV[2]
local wrong = wrong_type({ [key] = 'zset' })
if wrong then
    return wrong
end

local now = now_ms()
write_when_full(key)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
-- Never to an earlier time: two workers may have learned of it.
redis.call('ZADD', key, 'GT', ends, token)
return 1
