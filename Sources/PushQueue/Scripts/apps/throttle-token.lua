-- Adds a device token to those that APNs throttles, and announces it to the processes that keep a filter of tokens. Removes the tokens
-- whose pause has ended.
--
-- KEYS  1 throttled-tokens        ZSET token -> the end of its pause (ms since 1970); expires with the last pause
--       2 invalid-tokens:changes  STREAM of a bounded number of entries
-- ARGV  1 token                   lower-case hex
--       2 until                   the end of its pause, ms since 1970
-- Reply 1
--
-- Run twice, the second run changes nothing.
-- Needs: time base values invalid-tokens

local throttled, changes = unpack(KEYS)
local token, ends = ARGV[1], ARGV[2]

local wrong = wrong_type({ [throttled] = 'zset', [changes] = 'stream' })
if wrong then
    return wrong
end

local now = now_ms()
write_when_full(throttled)
redis.call('ZREMRANGEBYSCORE', throttled, '-inf', now)
-- GT: another lane may have set a later time.
if redis.call('ZADD', throttled, 'GT', ends, token) == 1 then
    announce_tokens(changes, 'throttled', token)
end
-- Another client may have written any score, such as infinity.
local last = redis.call('ZRANGE', throttled, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', throttled, string.format('%.0f', bounded(last)))
return 1
