-- Adds to the total of a campaign, for a producer that has pushed this number of notifications. A campaign is known from its
-- first job on, before its first settlement.
--
-- KEYS  1 campaign        HASH   the campaign's counters, and `total`
--       2 campaigns       ZSET   campaigns by the time of their last change (ms)
-- ARGV  1 name            the campaign
--       2 notifications   the number to add
--       3 lifetime        of the counters after their last change, in ms
-- Reply the total
--
-- Run twice, it adds twice.

local campaign, campaigns = KEYS[1], KEYS[2]
local name, notifications, lifetime = unpack(ARGV, 1, 3)

local wrong = wrong_type({ [campaign] = 'hash', [campaigns] = 'zset' })
if wrong then
    return wrong
end

-- The only write that can fail, if the total is not a number, is the first.
local total = redis.call('HINCRBY', campaign, 'total', notifications)
redis.call('PEXPIRE', campaign, lifetime)
redis.call('ZADD', campaigns, now_ms(), name)
return total
