-- Adds a device token to those that APNs throttles, and removes those whose pause has ended.
--
-- KEYS  1 throttled-tokens  ZSET token -> the end of its pause (ms since 1970)
-- ARGV  1 token             lower-case hex
--       2 until             the end of its pause, ms since 1970
-- Reply 1
--
-- Run twice, the second run changes nothing.

local throttled, token, ends = KEYS[1], ARGV[1], ARGV[2]

local wrong = wrong_type({ [throttled] = 'zset' })
if wrong then
    return wrong
end

local now = now_ms()
write_when_full(throttled)
redis.call('ZREMRANGEBYSCORE', throttled, '-inf', now)
-- Never to an earlier time: another lane may have set a later one.
redis.call('ZADD', throttled, 'GT', ends, token)
return 1
