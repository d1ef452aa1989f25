-- Claims jobs for a worker and renews its lease.
--
-- KEYS  1 jobs            LIST   fresh jobs
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 claimed:<worker> HASH  claim number -> job
--       4 inbox:<worker>  LIST   at most one job, moved there by the blocking wait
--       5 workers         ZSET   worker -> lease end (ms)
--       6 paused          STRING why the queue is paused
--       7 dead            ZSET   dead letters by time
--       8 stats:          prefix of the day's counters
--       9 next:<worker>   STRING the number after the last that a claim of the worker asked for
--      10 results         STREAM what became of notifications
-- ARGV  1 worker          its name
--       2 join            1 when the worker has no lease yet, else 0
--       3 lease           ms from now to the lease's end
--       4 count           how many jobs at most; 0 only renews
--       5 first           the number of the first claim; the others follow
--       6 max job bytes   larger jobs become dead letters here and never travel
--       7 max bytes       stop when the bodies add up to this; at least one is returned
--       8 max dead        how many dead letters are kept
--       9 max dead age    for how long, ms
--      10 head            which end of the jobs is their head, LEFT or RIGHT
--      11 max results     how many results are kept, about; 0 for none
-- Reply { status, now, due, expired, evicted, body... }
--       status            0 claimed, 1 paused, 2 the lease was lost: the claims were returned, take a new name
--       now               Redis' time, ms
--       due               ms until the next retry is due, 0 when some are, -1 when there is none
--       expired           the name of a worker whose lease has ended, or ''
--       evicted           dead letters that had to go because there were too many, or were too old
--       body...           the jobs, under the numbers first, first + 1, ...
--
-- Run twice with the same `first`, it returns what the first run claimed, as long as that is not settled; after that, and
-- after a later claim, it claims nothing. A claim whose connection broke is repeated over the next one, and the network may
-- pass the first on long after the second was answered: nobody would know of what it claims.

local now = now_ms()
local worker, first, limit = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[4])
local max_job, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])

local wrong = wrong_type({ [KEYS[2]] = 'zset', [KEYS[3]] = 'hash', [KEYS[5]] = 'zset', [KEYS[9]] = 'string' })
if wrong then
    return wrong
end

if ARGV[2] == '0' and not redis.call('ZSCORE', KEYS[5], worker) then
    return { 2, now, -1, '', 0 }
end
redis.call('ZADD', KEYS[5], now + ARGV[3], worker)

local expired = ''
local oldest = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
if oldest[2] and tonumber(oldest[2]) < now then
    expired = oldest[1]
end

local reply = { 0, now, -1, expired, 0 }

local function next_due()
    local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if not head[2] then
        return -1
    end
    return math.max(0, tonumber(head[2]) - now)
end

if limit == 0 then
    reply[3] = next_due()
    return reply
end

if redis.call('HEXISTS', KEYS[3], first) == 1 then
    for number = first, first + limit - 1 do
        local body = redis.call('HGET', KEYS[3], number)
        if not body then
            break
        end
        reply[#reply + 1] = body
    end
    reply[3] = next_due()
    return reply
end

local next_number = tonumber(redis.call('GET', KEYS[9]) or 0)
if first < next_number then
    reply[3] = next_due()
    return reply
end

if redis.call('EXISTS', KEYS[6]) == 1 then
    reply[1] = 1
    return reply
end

wrong = wrong_type({
    [KEYS[1]] = 'list', [KEYS[4]] = 'list', [KEYS[7]] = 'zset', [stats_key(KEYS[8], now)] = 'hash', [KEYS[10]] = 'stream',
})
if wrong then
    return wrong
end

-- Kept for longer than any network keeps a command.
redis.call('SET', KEYS[9], first + limit, 'PX', 3600000)

local taken = redis.call('LRANGE', KEYS[4], 0, -1)
if #taken > 0 then
    redis.call('DEL', KEYS[4])
end
local room = math.max(0, limit - #taken)

-- Half of the room is for due retries and half for fresh jobs while both wait, so that neither starves. They alternate,
-- so that this holds for the bytes too, and chance says who is first, for a claim that only one of them fits in.
local turn = now % 2
local due = next_due()
local retried = {}
if due == 0 and room > 0 then
    local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', now)
    local fresh = redis.call('LLEN', KEYS[1])
    local share = math.min(waiting, math.max(math.floor((room + turn) / 2), room - fresh))
    if share > 0 then
        retried = redis.call('ZPOPMIN', KEYS[2], share)
    end
    room = room - #retried / 2
    due = next_due()
end
local fresh = room > 0 and redis.call(ARGV[10] == 'RIGHT' and 'RPOP' or 'LPOP', KEYS[1], room) or {}
local scores = {}
for i = 1, math.max(#retried / 2, #fresh) do
    if turn == 0 then
        taken[#taken + 1] = fresh[i]
    end
    if retried[2 * i] then
        taken[#taken + 1] = retried[2 * i - 1]
        scores[#taken] = retried[2 * i]
    end
    if turn == 1 then
        taken[#taken + 1] = fresh[i]
    end
end
reply[3] = due

local claims, bytes, kept, buried = {}, 0, 0, 0
for i = 1, #taken do
    local body = taken[i]
    if #body > max_job then
        local head, original = unwrap(body)
        local members, notifications = carried(head)
        bury(KEYS[7], now, worker .. ':' .. (first + i - 1) .. ':big', 'JobTooLarge',
            string.format(',"attempts":0,"detail":"the job has %d bytes, more than max_job_bytes (%d)"', #body, max_job)
                .. members,
            original)
        add_dead_results(KEYS[10], tonumber(ARGV[11]), now, head, 'JobTooLarge')
        buried = buried + notifications
    elseif kept > 0 and bytes + #body > max_bytes then
        -- The rest goes back where it was, in its order.
        for j = #taken, i, -1 do
            if scores[j] then
                redis.call('ZADD', KEYS[2], scores[j], taken[j])
                reply[3] = 0
            else
                redis.call(push_head(ARGV[10]), KEYS[1], taken[j])
            end
        end
        break
    else
        claims[#claims + 1] = first + kept
        claims[#claims + 1] = body
        kept = kept + 1
        bytes = bytes + #body
        reply[#reply + 1] = body
    end
end
for i = 1, #claims, CHUNK do
    redis.call('HSET', KEYS[3], unpack(claims, i, math.min(i + CHUNK - 1, #claims)))
end
if buried > 0 then
    count(KEYS[8], now, 'dead', buried)
    count(KEYS[8], now, 'dead:JobTooLarge', buried)
    reply[5] = trim_dead(KEYS[7], KEYS[8], now, tonumber(ARGV[8]), tonumber(ARGV[9]))
end
return reply
