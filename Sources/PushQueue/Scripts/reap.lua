-- Returns the claims of a worker whose lease has ended to the head of the list.
--
-- KEYS  1 workers         ZSET   worker -> lease end (ms)
--       2 claimed:<worker> HASH  claim number -> job
--       3 inbox:<worker>  LIST   a job that the worker had not yet claimed
--       4 jobs            LIST   fresh jobs
--       5 dead            ZSET   dead letters by time
--       6 stats:          prefix of the day's counters
--       7 next:<worker>   STRING where its claims' numbers had got to
--       8 results         STREAM what became of notifications
-- ARGV  1 worker          the name of the one whose lease ended
--       2 max reclaims    a job that was reclaimed more often is poison, and becomes a dead letter
--       3 max dead        how many dead letters are kept
--       4 max dead age    for how long, ms
--       5 head            which end of the jobs is their head, LEFT or RIGHT
--       6 max results     how many results are kept, about; 0 for none
-- Reply { reclaimed, poisoned, evicted }
--       reclaimed         how many jobs went back, -1 when the lease has not ended or somebody was faster
--       poisoned          how many became dead letters
--       evicted           dead letters that had to go because there were too many, or were too old
--
-- Run twice, the second run finds no lease and does nothing.

local now = now_ms()
local worker, max_reclaims = ARGV[1], tonumber(ARGV[2])
local wrong = wrong_type({
    [KEYS[1]] = 'zset', [KEYS[2]] = 'hash', [KEYS[3]] = 'list', [KEYS[4]] = 'list', [KEYS[5]] = 'zset',
    [stats_key(KEYS[6], now)] = 'hash', [KEYS[8]] = 'stream',
})
if wrong then
    return wrong
end

local lease = redis.call('ZSCORE', KEYS[1], worker)
if not lease or tonumber(lease) >= now then
    return { -1, 0, 0 }
end

local numbers = redis.call('HKEYS', KEYS[2])
table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)

-- What the worker had not seen yet was popped last, and goes back first, unchanged.
local inbox = redis.call('LRANGE', KEYS[3], 0, -1)
for i = #inbox, 1, -1 do
    redis.call(push_head(ARGV[5]), KEYS[4], inbox[i])
end

local reclaimed, poisoned, dead, evicted = #inbox, 0, 0, 0
for _, number in ipairs(numbers) do
    local body = redis.call('HGET', KEYS[2], number)
    local head, original, before = unwrap(body)
    local wrapped
    if head then
        -- From the comma behind the version on; a counter of before goes, wherever it stands.
        local rest = string.gsub(string.sub(head, 7), ',"reclaims":[^,]+', '', 1)
        wrapped = string.format('{"v":1,"reclaims":%d', before + 1) .. rest .. original .. '}'
    else
        -- A job without an id gets its id from its first claim, so that what is sent twice carries one apns-id.
        wrapped = string.format('{"v":1,"reclaims":1,"origin":"%s:%s","job":', worker, number) .. original .. '}'
    end
    if before + 1 > max_reclaims then
        local members, notifications = carried(head)
        bury(KEYS[5], now, worker .. ':' .. number, 'Poison',
            string.format(',"attempts":0,"detail":"reclaimed from a dead worker %d times"', before + 1) .. members,
            original)
        add_dead_results(KEYS[8], tonumber(ARGV[6]), now, head, 'Poison')
        poisoned = poisoned + 1
        dead = dead + notifications
    else
        redis.call(push_head(ARGV[5]), KEYS[4], wrapped)
        reclaimed = reclaimed + 1
    end
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[7])
redis.call('ZREM', KEYS[1], worker)
count(KEYS[6], now, 'reclaimed', reclaimed)
if poisoned > 0 then
    count(KEYS[6], now, 'dead', dead)
    count(KEYS[6], now, 'dead:Poison', dead)
    evicted = trim_dead(KEYS[5], KEYS[6], now, tonumber(ARGV[3]), tonumber(ARGV[4]))
end
return { reclaimed, poisoned, evicted }
