-- Sets or removes the guard of a campaign, which counts from now on. Works on a Redis whose memory is full.
--
-- KEYS  1 campaign:<name> HASH   the campaign's counters
-- ARGV  1 guard           JSON with `rules` and `min`; '' to remove it
-- Reply { before, known }
--       before            the former guard, '' if there was none
--       known             1 if KEYS[1] existed
--
-- Run twice, the second run begins the count again.
-- Needs: base campaigns

local campaign = unpack(KEYS)
local text = unpack(ARGV)

local wrong = wrong_type({ [campaign] = 'hash' })
if wrong then
    return wrong
end

local known = redis.call('EXISTS', campaign)
local facts = campaign_facts(campaign)
local guard = text ~= '' and counting_guard(campaign, cjson.decode(text), facts)
write_when_full(campaign)
if guard then
    redis.call('HSET', campaign, 'guard', guard)
else
    redis.call('HDEL', campaign, 'guard')
end
redis.call('PEXPIRE', campaign, CAMPAIGN_LIFE)
return { facts.guard or '', known }
