-- Claims jobs for a lane and renews its lease.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       4 inbox           LIST   jobs that blocking waits moved; every claim takes from it first
--       5 workers         ZSET   lane -> lease end (ms)
--       6 paused          STRING why the queue is paused
--       7 dead            ZSET   dead letters by time (ms)
--       8 dead-bytes      STRING sum of their lengths
--       9 stats:          prefix of the day's counters
--      10 next:<lane>     STRING `<next> <first> <stamp>` of the last claim that took jobs
--      11 results         STREAM outcomes of notifications
--      12 worker-info     HASH   lane -> JSON: its heartbeat
--      13 order:<process> STRING the command of an operator for the lane's process
--                         The last two only with a heartbeat.
-- ARGV  1 lane            its name
--       2 join            1 when the lane has no lease yet, else 0
--       3 lease           ms from now to the lease's end
--       4 count           how many jobs at most; 0 only renews the lease
--       5 first           the number of the first claim; the others follow
--       6 nonce           four random characters
--       7 max job bytes   larger jobs become dead letters here and never travel
--       8 max bytes       the bodies add up to at most this, unless the first alone is larger
--       9 max dead        how many dead letters are kept
--      10 max dead age    for how long, ms
--      11 max dead bytes  up to which total length
--      12 head            which end of the jobs is their head, LEFT or RIGHT
--      13 max results     how many results are kept, about; 0 for none
--      14 idle lease      the lease of a lane that has no claims and only renews, ms: it protects nothing, so it is long
--      15 uptime          with a heartbeat: how long the worker has run, ms
--      16 members         with a heartbeat: the members of the JSON object, and its closing brace
-- Reply { status, now, due, expired, evicted, order, stamp, held, body... }
--       status            0 claimed, 1 paused, 2 the lease was lost: the claims were reclaimed, take a new name
--       now               Redis' time, ms
--       due               ms until more jobs can be claimed: 0 when some wait, -1 when none do
--       expired           a lane whose lease has expired, or ''
--       evicted           dead letters evicted to keep within the bounds
--       order             the value of order:<process>, '' where there is none or it was not asked for
--       stamp             of this claim, '' without jobs
--       held              how many claims the lane had before this one; -1 where their key is no hash
--       body...           the jobs, under the fields `<first>.<stamp>`, `<first + 1>.<stamp>`, ...
--
-- A claim is bound to its execution: the same command, executed again on another state of Redis, takes other jobs, and the
-- stamp tells the two apart. Run twice on the same state with the same `first`, it returns what the first run claimed; after a
-- later claim it returns nothing. So a claim whose connection broke is repeated, and one that the network delivers late
-- takes nothing, or takes what its lane finds among its claims.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local jobs, retry, claimed, inbox, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, dead_bytes, stats, next_key, results = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local lane, limit, first = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local max_job, max_bytes, head_end = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[12]

-- The lease is renewed even if another key is not what it should be. Few commands are called up to the end of an idle poll:
-- a large fleet makes hundreds per second.
local score = redis.pcall('ZSCORE', workers, lane)
if type(score) == 'table' then
    return wrong_type({ [workers] = 'zset' }) or score
elseif ARGV[2] == '0' and not score then
    return { 2, now, -1, '', 0, '', '', 0 }
end
write_when_full(workers)
local held = redis.pcall('HLEN', claimed)
held = type(held) == 'number' and held or -1
redis.call('ZADD', workers, now + (limit == 0 and held == 0 and ARGV[14] or ARGV[3]), lane)

-- One of those that expired first, by chance: one that can't be reclaimed must not keep the others from being.
local expired = redis.call('ZRANGEBYSCORE', workers, '-inf', '(' .. now, 'LIMIT', 0, 10)
expired = expired[1 + time[2] % math.max(1, #expired)] or ''

-- The heartbeat is for people: whatever is wrong with these keys must not keep jobs from being claimed.
local order = ''
if KEYS[12] then
    redis.pcall('HSET', KEYS[12], lane,
        string.format('{"v":1,"updated_at":%d,"started_at":%d,', now, now - ARGV[15]) .. ARGV[16])
    local wanted = redis.pcall('GET', KEYS[13])
    order = type(wanted) == 'string' and wanted or ''
end

local reply = { 0, now, -1, expired, 0, order, '', held }

local function until_next()
    for _, list in ipairs({ jobs, inbox }) do
        local length = redis.pcall('LLEN', list)
        -- A key of another type: the next claim reports it.
        if type(length) ~= 'number' or length > 0 then
            return 0
        end
    end
    local head = redis.pcall('ZRANGE', retry, 0, 0, 'WITHSCORES')
    if head.err then
        return 0
    end
    return head[2] and math.max(0, math.min(tonumber(head[2]) - now, 2 ^ 31)) or -1
end

if redis.call('EXISTS', KEYS[6]) == 1 then
    reply[1] = 1
else
    reply[3] = until_next()
end
if limit == 0 then
    return reply
end

local known = redis.pcall('GET', next_key)
if type(known) == 'table' or (known and held < 0) then
    return wrong_type({ [next_key] = 'string', [claimed] = 'hash' }) or known
elseif known then
    local next_number, last_first, stamp = string.match(known, '^(%d+) (%d+) (%w+)$')
    if tonumber(last_first) == first then
        reply[1], reply[7] = 0, stamp
        for number = first, first + limit - 1 do
            local body = redis.call('HGET', claimed, number .. '.' .. stamp)
            if not body then
                break
            end
            reply[#reply + 1] = body
        end
        return reply
    elseif next_number and first < tonumber(next_number) then
        return reply
    end
end

-- Paused, or nothing to claim: most polls of an idle fleet end here.
if reply[1] == 1 or reply[3] ~= 0 then
    return reply
end

local wrong = wrong_type({
    [retry] = 'zset', [claimed] = 'hash',
    [jobs] = 'list', [inbox] = 'list', [dead] = 'zset', [stats_key(stats, now)] = 'hash', [results] = 'stream',
})
if wrong then
    return wrong
end

-- Jobs are popped in portions that grow, and that would fit into `max_bytes` even if all their jobs were as large as the last
-- of the portion, or as the largest so far. So large jobs are not popped only to be pushed back.
local LARGEST_PORTION = 16
local taken, from, bytes, largest = {}, {}, 0, 1

-- A place that jobs are taken from.
--   name   'inbox', 'jobs' or 'retry'
--   size   returns the length of the n-th job from the head
--   pop    pops n jobs; appends them, and for retries their due times, by calling `take`
--   left   how many jobs it may give
local function take(place, body, score)
    taken[#taken + 1], from[#from + 1] = body, { place, score }
    bytes, largest = bytes + #body, math.max(largest, #body)
end

local function list_place(key, is_right, left)
    local place = { left = left, portion = 4, key = key, push = is_right and 'RPUSH' or 'LPUSH' }
    function place.size(n)
        return #(redis.call('LINDEX', key, is_right and -n or n - 1) or '')
    end
    function place.pop(n)
        for _, body in ipairs(redis.call(is_right and 'RPOP' or 'LPOP', key, n) or {}) do
            take(place, body)
        end
    end
    return place
end

local function retry_place(left)
    local place = { left = left, portion = 4, key = retry }
    function place.size(n)
        return #(redis.call('ZRANGE', retry, n - 1, n - 1)[1] or '')
    end
    function place.pop(n)
        local popped = redis.call('ZPOPMIN', retry, n)
        for i = 1, #popped, 2 do
            take(place, popped[i], popped[i + 1])
        end
    end
    return place
end

-- Takes a portion of at most `space` bytes from a place, but at least one job for the claim; returns false when there is no
-- job, or no room for it.
local function take_portion(place, space)
    local n = math.min(place.left, place.portion, limit - #taken)
    if n > 1 then
        n = math.max(1, math.min(n, math.floor(space / largest)))
    end
    while n > 1 and n * place.size(n) > space do
        n = math.floor(n / 2)
    end
    if n < 1 or (n == 1 and #taken > 0 and place.size(1) > space) then
        return false
    end
    place.pop(n)
    place.left = place.left - n
    place.portion = math.min(2 * place.portion, LARGEST_PORTION)
    return true
end

local waits = list_place(inbox, false, redis.call('LLEN', inbox))
while take_portion(waits, max_bytes - bytes) do end

-- While fresh jobs and due retries both wait, each has half of the room, so that neither starves. They alternate, so that this
-- holds for the bytes too; chance says which is first, for a claim that only one job fits into.
local room, turn = limit - #taken, now % 2
local fresh_waiting, due_waiting = redis.call('LLEN', jobs), redis.call('ZCOUNT', retry, '-inf', now)
local due_share = math.min(due_waiting, math.max(math.floor((room + turn) / 2), room - fresh_waiting))
local fresh, due = list_place(jobs, head_end == 'RIGHT', room - due_share), retry_place(due_share)
fresh.left = math.min(fresh.left, fresh_waiting)
local one, other = fresh, due
if turn == 1 then
    one, other = due, fresh
end
repeat
    local space = max_bytes - bytes
    local took_one = take_portion(one, other.left > 0 and math.floor(space / 2) or space)
    local took_other = take_portion(other, max_bytes - bytes)
until not took_one and not took_other

-- A portion with a few jobs much larger than its last: they go back, in their order.
local kept = #taken
while kept > 1 and bytes > max_bytes do
    bytes = bytes - #taken[kept]
    kept = kept - 1
end
for i = #taken, kept + 1, -1 do
    local place, score = from[i][1], from[i][2]
    if score then
        redis.call('ZADD', place.key, score, taken[i])
    else
        redis.call(place.push, place.key, taken[i])
    end
end

local digits = '0123456789abcdefghijklmnopqrstuvwxyz'
local stamp, rest = ARGV[6], time[1] * 1000000 + time[2]
while rest > 0 do
    local digit = rest % 36
    stamp, rest = string.sub(digits, digit + 1, digit + 1) .. stamp, (rest - digit) / 36
end

local claims, number, buried = {}, first, 0
for i = 1, kept do
    local body = taken[i]
    if #body > max_job then
        local _, original, members = unwrap(body)
        local text, notifications = carried(members)
        bury(dead, dead_bytes, now, string.format('%s:%d.%s:%d', lane, first, stamp, i), 'JobTooLarge',
            string.format(',"attempts":0,"detail":"the job has %d bytes, more than max_job_bytes (%d)"', #body, max_job)
                .. text,
            original)
        add_dead_results(results, tonumber(ARGV[13]), now, members, 'JobTooLarge')
        buried = buried + notifications
    else
        claims[#claims + 1] = number .. '.' .. stamp
        claims[#claims + 1] = body
        number = number + 1
        reply[#reply + 1] = body
    end
end
if #claims > 0 then
    for i = 1, #claims, CHUNK do
        redis.call('HSET', claimed, unpack(claims, i, math.min(i + CHUNK - 1, #claims)))
    end
    -- Kept for longer than any network keeps a command.
    redis.call('SET', next_key, string.format('%d %d %s', number, first, stamp), 'PX', 3600000)
    reply[7] = stamp
end
if buried > 0 then
    count(stats, now, 'dead', buried)
    count(stats, now, 'dead:JobTooLarge', buried)
    reply[5] = trim_dead(dead, dead_bytes, stats, now,
        { count = tonumber(ARGV[9]), age = tonumber(ARGV[10]), bytes = tonumber(ARGV[11]) })
end
reply[3] = until_next()
return reply
