-- Reserves ids: of several jobs with `unique_for` and the same id, only the first is sent; the others end as
-- duplicates.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       2 stats:          prefix of the day's counters
--       3 results         STREAM outcomes of notifications; `results-marks` is beside it
--       4 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       5 campaign:       prefix of the campaigns' counters
--       then one for each claim
--         unique:<id>     STRING the claim that has the reservation, `<lane>:<number>.<stamp>`; it expires with it
-- ARGV  1 lane            its name
--       2 max results     the approximate number of results that are kept
--       then for each claim, in the order of their keys
--         claim reserved ttl head start length results n notifications campaign
--                         the reservation lasts for `ttl` ms, and the claim is replaced by the claim `reserved` of the
--                         reserved job: `head`, the original, which is the `length` bytes of the claimed job from
--                         `start` (from 0), and '}'; for a duplicate its `results`, an array of groups with n results,
--                         are added, and its `notifications` are counted, also for its `campaign`, '' for none
-- Reply { result... }     for each claim:
--                          1  granted: the lane has the claim `reserved`
--                          0  duplicate: the id is taken, and the claim is settled and counted
--                         -1  lost: the claim was reclaimed, or settled before, and is left alone
--
-- The reserved job is another claim, because offsets into the one are wrong for the other: after a failover to an older
-- state, a settlement finds no claim. `head` marks the job as reserved, so the reservation stays with the job wherever
-- it moves, and is not made again. Run twice, the second run finds the reserved claims, and the duplicates settled.

local claimed, stats, results, campaigns, campaign_prefix = unpack(KEYS, 1, 5)
local lane, max_results = ARGV[1], ARGV[2]
-- The keys and arguments that come before those of the claims.
local COMMON_KEYS, COMMON_ARGUMENTS = 5, 2
-- Those of each claim.
local ARGUMENTS = 10
local now = now_ms()

local expected = { [claimed] = 'hash', [stats_key(stats, now)] = 'hash', [results] = 'stream' }
for i = COMMON_KEYS + 1, #KEYS do
    expected[KEYS[i]] = 'string'
end
local wrong = wrong_type(expected)
if wrong then
    return wrong
end
write_when_full(claimed)

local reply, duplicates, by_campaign = {}, 0, {}
for i = 1, #KEYS - COMMON_KEYS do
    local unique, place = KEYS[COMMON_KEYS + i], COMMON_ARGUMENTS + ARGUMENTS * i
    local claim, reserved, ttl, head, start, length, array, n, notifications, campaign =
        unpack(ARGV, place - ARGUMENTS + 1, place)
    local body = redis.call('HGET', claimed, claim)
    if not body then
        reply[i] = redis.call('HEXISTS', claimed, reserved) == 1 and 1 or -1
    elseif redis.call('SET', unique, lane .. ':' .. claim, 'NX', 'PX', ttl) then
        redis.call('HDEL', claimed, claim)
        redis.call('HSET', claimed, reserved, head .. string.sub(body, start + 1, start + length) .. '}')
        reply[i] = 1
    else
        redis.call('HDEL', claimed, claim)
        if tonumber(n) > 0 then
            add_results(results, max_results, array, n)
        end
        duplicates = duplicates + notifications
        if campaign ~= '' then
            by_campaign[campaign] = (by_campaign[campaign] or 0) + notifications
        end
        reply[i] = 0
    end
end
-- A guard applies with the next settlement.
for name, number in pairs(by_campaign) do
    add_to_campaign(campaigns, campaign_prefix, now, name, { dropped = number, ['dropped:Duplicate'] = number }, results,
        max_results)
end
write_results(results, max_results)
count(stats, now, 'dropped', duplicates)
count(stats, now, 'dropped:Duplicate', duplicates)
return reply
