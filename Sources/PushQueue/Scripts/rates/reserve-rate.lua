-- Reserves portions of an app's rate, which all workers share.
--
-- KEYS  1 apps:<app>:rate HASH   `next_us` is the time up to which the rate is used up, us since 1970; `per_second` and
--                                `reserved_us` are the rate and the time of the last reservation
-- ARGV  1 per second      notifications per second
--       2 lifetime        the time for which the key is kept, ms; nothing is reserved further ahead
--       then any number of amounts: notifications that are sent together
-- Reply { wait... }       ms from now until each amount can be sent
--
-- Portions are reserved in the order of the requests: each begins where the one before it ends. Rate that was not
-- reserved in time is lost, except for the last tenth of a second. Run twice, the portions of the first run are wasted.
-- Needs: time base

local key = KEYS[1]
local per_second, lifetime = unpack(ARGV, 1, 2)
local FIRST_AMOUNT = 3
local LATE_US = 100000

local wrong = wrong_type({ [key] = 'hash' })
if wrong then
    return wrong
end

local now = now_us()
local known = redis.call('HMGET', key, 'next_us', 'per_second', 'reserved_us')
local used = tonumber(known[1] or 0) or 0
-- A clock that was set back must not delay anything.
used = used - math.max(0, (tonumber(known[3] or 0) or 0) - now)
local before = tonumber(known[2] or 0) or 0
if used > now and before > 0 then
    -- The notifications that are already reserved are sent first, at the current rate.
    used = now + (used - now) * before / per_second
end
local start = now
if used > now - LATE_US and used <= now + lifetime * 1000 then
    start = used
end
local reply = {}
for i = FIRST_AMOUNT, #ARGV do
    reply[#reply + 1] = math.max(0, math.ceil((start - now) / 1000))
    start = start + ARGV[i] * 1000000 / per_second
end
write_when_full(key)
redis.call('HSET', key, 'next_us', string.format('%.0f', start), 'per_second', per_second,
    'reserved_us', string.format('%.0f', now))
redis.call('PEXPIRE', key, lifetime)
return reply
