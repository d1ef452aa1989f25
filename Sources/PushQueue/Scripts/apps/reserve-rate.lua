-- Reserves a portion of an app's rate, which all workers share.
--
-- KEYS  1 apps:<app>:rate STRING the time up to which the rate is used up, us since 1970
-- ARGV  1 per second      notifications per second
--       2 amount          the number of notifications to send
-- Reply { wait }          ms until they may be sent
--
-- Portions are reserved in the order of the requests: each begins where the one before it ends. Rate that was not
-- reserved in time is lost, except for the last tenth of a second. Run twice, a portion is wasted.

local key, per_second, amount = KEYS[1], ARGV[1], ARGV[2]

local wrong = wrong_type({ [key] = 'string' })
if wrong then
    return wrong
end

local now = now_us()
local used = tonumber(redis.call('GET', key) or 0) or 0
local start = math.max(used, now - 100000)
-- A clock that was set back, or a rate that was raised, must not delay the app for long.
if start > now + 60000000 then
    start = now
end
local stop = start + math.floor(amount * 1000000 / per_second)
write_when_full(key)
redis.call('SET', key, string.format('%.0f', stop), 'PX', 120000)
return { math.max(0, math.ceil((start - now) / 1000)) }
