-- Pauses the part of a campaign in this queue, because its guard has paused it in another queue.
--
-- KEYS  1 job-commands    HASH   commands about jobs, and their `version`
--       2 campaign:<name> HASH   the campaign's counters, with its guard
-- ARGV  1 name            of the campaign
--       2 reason          for people
-- Reply                   1 if the campaign was running here and has a guard, else 0
--
-- Run twice, the second run finds the campaign paused, and changes nothing.
-- Needs: time base values campaigns

local job_commands, campaign = unpack(KEYS)
local name, reason = unpack(ARGV)

local wrong = wrong_type({ [job_commands] = 'hash', [campaign] = 'hash' })
if wrong then
    return wrong
end

local guard = decoded_object(campaign_facts(campaign).guard)
if type(guard.rules) ~= 'table' then
    return 0
end
local is_json, stopped = pcall(stopped_guard, guard, now_ms(), reason)
if not is_json or is_stopped(job_commands, name) then
    return 0
end
write_when_full(job_commands)
pause_campaign(job_commands, name, 'guard', reason)
redis.pcall('HSET', campaign, 'guard', stopped)
return 1
