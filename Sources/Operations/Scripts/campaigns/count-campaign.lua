-- Records the total of a campaign for a producer that learns the total only while it pushes the jobs. While the campaign is open, its total
-- can grow, and it does not finish.
--
-- KEYS  1 campaign:<name> HASH   the campaign's counters
--       2 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       3 results         STREAM outcomes of notifications; `results-marks` is beside it
-- ARGV  1 name            of the campaign
--       2 action          open   before the first job is pushed
--                         add    after some notifications were pushed
--                         grow   as `add`, and opens the campaign, because further jobs may follow
--                         close  after the last job was pushed
--                         remove after notifications were removed, which will never end
--       3 notifications   for add, grow and remove: their number
-- Reply                   the total, '' if it is not known
--
-- Run twice, `add`, `grow` and `remove` count twice, and the others change nothing.
-- Needs: time base results campaigns

local campaign, campaigns, results = unpack(KEYS)
local name, action, notifications = unpack(ARGV)

local wrong = wrong_type({ [campaign] = 'hash', [campaigns] = 'zset', [results] = 'stream' })
if wrong then
    return wrong
end

local now = now_ms()
if action == 'open' or action == 'grow' then
    redis.call('HSET', campaign, 'open', 1)
end
if action == 'add' or action == 'grow' then
    -- A total that is not a number, which another client has written, is not changed.
    redis.pcall('HINCRBY', campaign, 'total', notifications)
elseif action == 'close' or action == 'remove' then
    if action == 'close' then
        redis.call('HDEL', campaign, 'open')
    elseif redis.pcall('HEXISTS', campaign, 'total') == 1 then
        redis.pcall('HINCRBY', campaign, 'total', -notifications)
    end
    -- All notifications of the campaign may have ended already.
    finish_campaign(campaign, now, name, campaign_facts(campaign), results, UNLIMITED_RESULTS)
    write_results(results, UNLIMITED_RESULTS)
end
redis.call('PEXPIRE', campaign, CAMPAIGN_LIFE)
-- A campaign is listed from its first job on, even before its first settlement.
redis.call('ZADD', campaigns, now, name)
return redis.call('HGET', campaign, 'total') or ''
