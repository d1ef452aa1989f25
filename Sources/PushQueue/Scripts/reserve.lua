-- Reserves ids, so that of the jobs that ask for it and have one id, only the first is sent; the others end as duplicates.
--
-- KEYS  1 claimed:<worker> HASH  claim number -> job
--       2 stats:          prefix of the day's counters
--       3 results         STREAM what became of notifications
--       then one for each claim
--         unique:<id>     STRING the claim that has the reservation, '<worker>:<number>'; it expires with it
-- ARGV  1 worker          its name
--       2 max results     how many results are kept, about
--       then for each claim, in the order of their keys
--         number ttl head start length results
--                         the reservation is for `ttl` ms, and the job is replaced by the reserved one: `head`, the
--                         original, which is `length` bytes of the claimed job from `start` (from 0), and '}'; `results`
--                         (see add_results) are added if it is a duplicate, unless they are ''
-- Reply { result... }     of each claim:
--                          1  granted: the claim holds the reserved job now
--                          0  duplicate: the id is taken, and the claim is settled and counted
--                         -1  lost: the claim was taken over, or settled before, and is left alone
--
-- `head` says that the job is reserved. So the reservation goes with the job wherever it goes, and is not asked for again.
-- Run twice, the second run finds the reserved jobs, and the duplicates gone.

local now = now_ms()
local claimed, stats, worker = KEYS[1], KEYS[2], ARGV[1]

local expected = { [claimed] = 'hash', [stats_key(stats, now)] = 'hash', [KEYS[3]] = 'stream' }
for i = 4, #KEYS do
    expected[KEYS[i]] = 'string'
end
local wrong = wrong_type(expected)
if wrong then
    return wrong
end

local results, duplicates = {}, 0
for i = 1, #KEYS - 3 do
    local at = 6 * i - 3
    local number, head, start = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
    local length = tonumber(ARGV[at + 4])
    local body = redis.call('HGET', claimed, number)
    if not body then
        results[i] = -1
    elseif #body == #head + length + 1 and string.sub(body, 1, #head) == head then
        results[i] = 1
    elseif redis.call('SET', KEYS[i + 3], worker .. ':' .. number, 'NX', 'PX', ARGV[at + 1]) then
        redis.call('HSET', claimed, number, head .. string.sub(body, start + 1, start + length) .. '}')
        results[i] = 1
    else
        redis.call('HDEL', claimed, number)
        if ARGV[at + 5] ~= '' then
            add_results(KEYS[3], ARGV[2], now, ARGV[at + 5])
        end
        duplicates = duplicates + 1
        results[i] = 0
    end
end
count(stats, now, 'duplicate', duplicates)
return results
