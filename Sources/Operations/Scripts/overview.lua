-- Reads a queue's contents and its lanes atomically, for `apns-worker status`.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 retry           ZSET   scheduled and deferred jobs by due time (ms)
--       3 workers         ZSET   lane -> lease end (ms)
--       4 dead            ZSET   dead letters by time (ms)
--       5 paused          STRING why the queue is paused
--       6 worker-info     HASH   lane -> JSON: its heartbeat
--       7 stats:          prefix of the day's counters
--       8 inbox           LIST   jobs that blocking waits moved
--       9 dead-bytes      STRING sum of the dead letters' lengths
--      10 cancelled       ZSET   cancelled jobs
--      11 sorted          ZSET   jobs that wait, in the order in which they are sent
--      12 shares          HASH   the shares of the keys in `sorted`
--      13 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
--       2 max workers     the maximum number of lanes that are read
--       3 max letters     the maximum number of dead letters that are read, the newest first
--       4 max bytes       the size at which reading dead letters ends; a larger head is not returned
--       5 head            the index of the list's head, 0 or -1
-- Reply { now, jobs, due, later, retrying, dead, overdue, paused, head, members, workers, counters, sampled, reasons, dead_bytes,
--         latest, cancelled, shares }
--       jobs              including sorted jobs and those of the inbox
--       due, later        the numbers of jobs of `retry` and `failed` that are due, and of the others
--       retrying          the number of jobs of `failed`
--       overdue           for how long the first of these jobs has been due, ms; -1 when none is due
--       latest            when the last of them is due, ms; -1 when there is none
--       paused            the value of the key; nil when the queue is not paused
--       head              the job that has probably waited longest: the first of the list, or among the sorted jobs; '' when
--                         there is none
--       cancelled         the number of cancelled jobs that are kept
--       members           the number of lanes
--       workers           for each lane: name, lease end, claims, heartbeat ('' for none)
--       counters          of the day: field, count...
--       sampled           the number of dead letters that were read
--       reasons           of these: reason, count...
--       shares            {} if the queue does not sort its jobs; else the number of shares that have waiting jobs, the bytes of
--                         these jobs, and of at most five shares, the largest first: field, bytes... The field is `by:<key>`, or
--                         `common:<n>` for several keys
--
-- Changes nothing. A million dead letters cost no more than the bounds allow. The lanes' keys have the queue's hash
-- tag, so they are in the slot of KEYS.
-- Needs: time base values counters dead-letters readings

local jobs, retry, workers, dead, paused, worker_info, stats, inbox, dead_bytes, cancelled, sorted, shares, failed =
    unpack(KEYS)
local claimed_prefix, max_workers, max_letters, max_bytes, head_index = unpack(ARGV)
max_workers, max_letters, max_bytes = tonumber(max_workers), tonumber(max_letters), tonumber(max_bytes)
local now = now_ms()
local today = stats_key(stats, now)

local wrong = wrong_type({
    [jobs] = 'list', [retry] = 'zset', [workers] = 'zset', [dead] = 'zset', [today] = 'hash', [inbox] = 'list',
    [cancelled] = 'zset', [sorted] = 'zset', [shares] = 'hash', [failed] = 'zset',
})
if wrong then
    return wrong
end

local postponed, due, overdue, latest = 0, 0, -1, -1
for _, set in ipairs({ retry, failed }) do
    local first = tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
    if first then
        postponed, due = postponed + redis.call('ZCARD', set), due + redis.call('ZCOUNT', set, '-inf', now)
        -- Another client may have written any number as due time.
        if first <= now then
            overdue = math.max(overdue, math.min(now - first, now))
        end
        local last = tonumber(redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2])
        latest = math.max(latest, 0, math.min(last, 253402300799999))
    end
end

local reason = false
local kind = redis.call('TYPE', paused).ok
if kind == 'string' then
    reason = redis.call('GET', paused)
elseif kind ~= 'none' then
    reason = 'a ' .. kind .. ' instead of a reason'
end

local lanes = read_lanes(workers, worker_info, claimed_prefix, max_workers)

local counters = {}
if redis.call('HLEN', today) <= 2000 then
    counters = redis.call('HGETALL', today)
end

-- The maximum number of shares that are read, and that are returned.
local MOST_SHARES, LARGEST_SHARES = 2000, 5

-- Returns the shares with the most waiting bytes. A share is a position in the order of sending, in bytes: the end of its jobs. `time` is
-- the position of the job that was claimed last.
local function largest_shares()
    if redis.call('EXISTS', shares, sorted) == 0 then
        return {}
    end
    local is_waiting = redis.call('EXISTS', sorted) == 1
    local fields = is_waiting and redis.call('HLEN', shares) <= MOST_SHARES and redis.call('HGETALL', shares) or {}
    local time, found, all = bounded(redis.call('HGET', shares, 'time')), {}, 0
    for i = 1, #fields, 2 do
        local field, last = fields[i], bounded(fields[i + 1])
        local is_share = string.find(field, '^by:') or string.find(field, '^common:')
        -- Another client may have written any number as position.
        if is_share and last > time and last < 2 ^ 53 then
            found[#found + 1] = { field, last - time }
            all = all + last - time
        end
    end
    table.sort(found, function(a, b)
        return a[2] > b[2] or a[2] == b[2] and a[1] < b[1]
    end)
    local largest = { #found, string.format('%.0f', all) }
    for i = 1, math.min(LARGEST_SHARES, #found) do
        largest[#largest + 1] = found[i][1]
        largest[#largest + 1] = string.format('%.0f', found[i][2])
    end
    return largest
end

local sampled, bytes, by_reason = 0, 0, {}
while sampled < max_letters and bytes < max_bytes do
    local letter = redis.call('ZREVRANGE', dead, sampled, sampled)[1]
    if not letter then
        break
    end
    sampled = sampled + 1
    bytes = bytes + #letter
    local name = string.match(string.sub(letter, 1, 200), '^{"v":1,"reason":"([^"\\]*)"') or 'unreadable'
    by_reason[name] = (by_reason[name] or 0) + 1
end
local reasons = {}
for name, n in pairs(by_reason) do
    reasons[#reasons + 1] = name
    reasons[#reasons + 1] = n
end

return {
    now, redis.call('LLEN', jobs) + redis.call('ZCARD', sorted) + redis.call('LLEN', inbox), due, postponed - due,
    redis.call('ZCARD', failed), redis.call('ZCARD', dead), overdue, reason, longest_waiting(jobs, head_index, sorted, max_bytes), redis.call('ZCARD', workers), lanes, counters, sampled, reasons, dead_length(dead_bytes),
    latest, redis.call('ZCARD', cancelled), largest_shares(),
}
