-- What a queue holds and who works on it, all in one moment, for people.
--
-- KEYS  1 jobs            LIST   fresh jobs
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 workers         ZSET   worker -> lease end (ms)
--       4 dead            ZSET   dead letters by time
--       5 paused          STRING why the queue is paused
--       6 worker-info     HASH   worker -> JSON: what it tells of itself
--       7 stats:          prefix of the day's counters
--       8 inbox           LIST   jobs that blocking waits moved
--       9 dead-bytes      STRING sum of the dead letters' lengths
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
--       2 workers         how many of them are looked at
--       3 letters         how many dead letters are looked at, the newest first
--       4 bytes           no more are looked at when they add up to this; a larger head of the list is not returned
--       5 head            the index of the list's head, 0 or -1
-- Reply { now, jobs, due, later, dead, overdue, paused, head, members, workers, counters, sampled, reasons,
--         dead_bytes }
--       overdue           for how long the first retry has been due, ms; -1 when none is
--       paused            what stands there; nil when the queue is not paused
--       head              the first job of the list, '' when there is none
--       members           how many workers there are
--       workers           for each: name, lease end, claims, what it tells of itself ('' for nothing)
--       counters          of the day: field, count...
--       sampled           how many dead letters were looked at
--       reasons           of these: reason, count...
--
-- Changes nothing. A million dead letters cost no more than the bounds allow. The workers' keys have the queue's hash tag,
-- so they are in the slot of KEYS.

local now = now_ms()
local wrong = wrong_type({
    [KEYS[1]] = 'list', [KEYS[2]] = 'zset', [KEYS[3]] = 'zset', [KEYS[4]] = 'zset', [stats_key(KEYS[7], now)] = 'hash',
    [KEYS[8]] = 'list',
})
if wrong then
    return wrong
end
local max_bytes = tonumber(ARGV[4])

local retries = redis.call('ZCARD', KEYS[2])
local due = redis.call('ZCOUNT', KEYS[2], '-inf', now)
local overdue = -1
if due > 0 then
    local first = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
    -- Written by hand, it may be any number.
    overdue = math.max(0, math.min(now - first, now))
end

local paused = false
local kind = redis.call('TYPE', KEYS[5]).ok
if kind == 'string' then
    paused = redis.call('GET', KEYS[5])
elseif kind ~= 'none' then
    paused = 'a ' .. kind .. ' instead of a reason'
end

local head = redis.call('LINDEX', KEYS[1], ARGV[5]) or ''
if #head > max_bytes then
    head = ''
end

local workers = {}
local members = redis.call('ZRANGE', KEYS[3], 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
    local info = redis.pcall('HGET', KEYS[6], members[i])
    workers[#workers + 1] = members[i]
    workers[#workers + 1] = members[i + 1]
    local claims = redis.pcall('HLEN', ARGV[1] .. members[i])
    workers[#workers + 1] = type(claims) == 'number' and claims or 0
    workers[#workers + 1] = type(info) == 'string' and #info <= 65536 and info or ''
end

local counters = {}
if redis.call('HLEN', stats_key(KEYS[7], now)) <= 2000 then
    counters = redis.call('HGETALL', stats_key(KEYS[7], now))
end

local sampled, bytes, by_reason = 0, 0, {}
while sampled < tonumber(ARGV[3]) and bytes < max_bytes do
    local letter = redis.call('ZREVRANGE', KEYS[4], sampled, sampled)[1]
    if not letter then
        break
    end
    sampled = sampled + 1
    bytes = bytes + #letter
    local reason = string.match(string.sub(letter, 1, 200), '^{"v":1,"reason":"([^"\\]*)"') or 'unreadable'
    by_reason[reason] = (by_reason[reason] or 0) + 1
end
local reasons = {}
for reason, n in pairs(by_reason) do
    reasons[#reasons + 1] = reason
    reasons[#reasons + 1] = n
end

return {
    now, redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[8]), due, retries - due, redis.call('ZCARD', KEYS[4]), overdue, paused, head,
    redis.call('ZCARD', KEYS[3]), workers, counters, sampled, reasons, dead_length(KEYS[9]),
}
