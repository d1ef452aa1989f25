-- Reserves ids, so that of the jobs that ask for it and have one id, only the first is sent; the others end as duplicates.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       2 stats:          prefix of the day's counters
--       3 results         STREAM outcomes of notifications
--       then one for each claim
--         unique:<id>     STRING the claim that has the reservation, `<lane>:<number>.<stamp>`; it expires with it
-- ARGV  1 lane            its name
--       2 max results     how many results are kept, about
--       then for each claim, in the order of their keys
--         claim reserved ttl head start length results
--                         the reservation is for `ttl` ms, and the claim is replaced by the claim `reserved` of the reserved
--                         job: `head`, the original, which is `length` bytes of the claimed job from `start` (from 0), and
--                         '}'; `results` (see add_results) are added if it is a duplicate, unless they are ''
-- Reply { result... }     of each claim:
--                          1  granted: the lane has the claim `reserved`
--                          0  duplicate: the id is taken, and the claim is settled and counted
--                         -1  lost: the claim was reclaimed, or settled before, and is left alone
--
-- The reserved job is another claim, because offsets into one are wrong for the other: a settlement that meets a Redis from
-- before the reservation finds no claim. `head` says that the job is reserved, so the reservation goes with the job wherever
-- it goes, and is not asked for again. Run twice, the second run finds the reserved claims, and the duplicates settled.

local now = now_ms()
local claimed, stats, lane = KEYS[1], KEYS[2], ARGV[1]

local expected = { [claimed] = 'hash', [stats_key(stats, now)] = 'hash', [KEYS[3]] = 'stream' }
for i = 4, #KEYS do
    expected[KEYS[i]] = 'string'
end
local wrong = wrong_type(expected)
if wrong then
    return wrong
end
write_when_full(claimed)

local results, duplicates = {}, 0
for i = 1, #KEYS - 3 do
    local claim, reserved, ttl, head, start, length, packed = unpack(ARGV, 7 * i - 4, 7 * i + 2)
    local body = redis.call('HGET', claimed, claim)
    if not body then
        results[i] = redis.call('HEXISTS', claimed, reserved) == 1 and 1 or -1
    elseif redis.call('SET', KEYS[i + 3], lane .. ':' .. claim, 'NX', 'PX', ttl) then
        redis.call('HDEL', claimed, claim)
        redis.call('HSET', claimed, reserved, head .. string.sub(body, start + 1, start + length) .. '}')
        results[i] = 1
    else
        redis.call('HDEL', claimed, claim)
        if packed ~= '' then
            add_results(KEYS[3], ARGV[2], now, packed)
        end
        duplicates = duplicates + 1
        results[i] = 0
    end
end
count(stats, now, 'dropped', duplicates)
count(stats, now, 'dropped:Duplicate', duplicates)
return results
