-- Reserves a portion of an app's rate, which all workers share.
--
-- KEYS  1 apps:<app>:rate STRING up to when the rate is used up, us
-- ARGV  1 per second      notifications a second
--       2 count           how many are wanted
-- Reply { wait }          ms until they may be sent
--
-- Who asks first is served first: each portion begins where the one before it ends. What nobody reserved in time is lost,
-- but for a tenth of a second's worth. Run twice, a portion is wasted.

local wrong = wrong_type({ [KEYS[1]] = 'string' })
if wrong then
    return wrong
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rate, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local used = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local start = math.max(used, now - 100000)
-- A clock that was set back, or a rate that was raised, must not hold the app up for long.
if start > now + 60000000 then
    start = now
end
local stop = start + math.floor(count * 1000000 / rate)
write_when_full(KEYS[1])
redis.call('SET', KEYS[1], string.format('%.0f', stop), 'PX', 120000)
return { math.max(0, math.ceil((start - now) / 1000)) }
