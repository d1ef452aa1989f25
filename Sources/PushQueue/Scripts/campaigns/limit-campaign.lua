-- Assigns send times to the notifications of a campaign with a rate limit, for all workers together.
--
-- KEYS  1 campaign:<name> HASH   the campaign's counters; its field `next_us` is the time up to which the rate is used,
--                             and `reserved_us` the time of the last reservation
-- ARGV  1 per second      the maximum number of notifications per second
--       2 since           the time of the limit's last change, ms: the rate that was used before it does not count
--       then any number of amounts: the notifications of each job
-- Reply { wait... }       ms from now until each job can be sent
--
-- Run twice, the times of the first run are wasted.

local campaign = KEYS[1]
local per_second, since = tonumber(ARGV[1]), tonumber(ARGV[2])
local FIRST_AMOUNT = 3

local wrong = wrong_type({ [campaign] = 'hash' })
if wrong then
    return wrong
end

local now = now_us()
local known = redis.call('HMGET', campaign, 'next_us', 'limited_at', 'reserved_us')
local used = tonumber(known[2] or 0) == since and tonumber(known[1] or 0) or 0
-- A clock that was set back must not delay the campaign.
used = used - math.max(0, (tonumber(known[3] or 0) or 0) - now)
local start = math.max(used, now)
local reply = {}
for i = FIRST_AMOUNT, #ARGV do
    reply[#reply + 1] = math.floor((start - now) / 1000)
    start = start + ARGV[i] * 1000000 / per_second
end
write_when_full(campaign)
redis.call('HSET', campaign, 'next_us', string.format('%.0f', start), 'limited_at', string.format('%.0f', since),
    'reserved_us', string.format('%.0f', now))
redis.call('PEXPIRE', campaign, 90 * 86400000)
return reply
