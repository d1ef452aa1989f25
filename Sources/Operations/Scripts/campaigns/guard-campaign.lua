-- Sets or removes the guard of a campaign, which counts from now on. Works on a Redis whose memory is full.
--
-- KEYS  1 campaign:<name> HASH   the campaign's counters
-- ARGV  1 guard           JSON with `rules` and `min`; '' to remove it
-- Reply                   the guard before, '' if there was none
--
-- Run twice, the second run begins the count again.

local campaign = unpack(KEYS)
local text = unpack(ARGV)

local wrong = wrong_type({ [campaign] = 'hash' })
if wrong then
    return wrong
end

local facts = campaign_facts(campaign)
write_when_full(campaign)
if text == '' then
    redis.call('HDEL', campaign, 'guard')
else
    local guard = cjson.decode(text)
    rebase_guard(campaign, guard, guard_counters(campaign, guard.rules, ended_of(facts)))
end
redis.call('PEXPIRE', campaign, CAMPAIGN_LIFE)
return facts.guard or ''
