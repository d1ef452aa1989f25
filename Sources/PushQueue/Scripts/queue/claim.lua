-- Claims jobs for a lane and renews its lease.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 retry           ZSET   scheduled and deferred jobs by due time (ms)
--       3 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
--       4 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       5 inbox           LIST   jobs that blocking waits moved; every claim takes from it first
--       6 workers         ZSET   lane -> lease end (ms)
--       7 paused          STRING why the queue is paused
--       8 dead            ZSET   dead letters by time (ms)
--       9 dead-bytes      STRING sum of their lengths
--      10 stats:          prefix of the day's counters
--      11 next:<lane>     STRING `<next> <first> <stamp>` of the last claim that returned jobs
--      12 results         STREAM outcomes of notifications; `results-marks` is beside it
--      13 job-commands    HASH   commands of operators about jobs, and their `version`
--      14 minute:         prefix of the minutes' counters
--      15 configurations  HASH   digest of a configuration -> the time until which its workers count as living (ms)
--      16 sorted          ZSET   jobs in the order in which they are sent, once a job has `fair` or `urgent`
--      17 shares          HASH   the shares of the keys of these jobs; while it exists, each claim sorts jobs
--      18 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--      19 campaign:       prefix of the campaigns' counters
--      20 largest         STRING about the size of the queue's largest job of the last day
--      21 worker-info     HASH   lane -> JSON: its heartbeat
--      22 order:<process> STRING the command of an operator for the lane's process
--      23 source          STRING where the queue's jobs are, for operators
--                         The last three are given only with a heartbeat.
-- ARGV  1 lane            its name
--       2 join            1 when the lane has no lease yet, else 0
--       3 lease           ms from now to the lease's end
--       4 limit           the maximum number of jobs; 0 only renews the lease
--       5 first           the number of the first claim; the others follow
--       6 nonce           four random characters
--       7 max job bytes   larger jobs become dead letters and are not returned
--       8 max bytes       the claim ends with the job at which the bodies reach this total
--       9 max dead        the maximum number of dead letters
--      10 max dead age    their maximum age, ms
--      11 max dead bytes  the maximum sum of their lengths
--      12 head            the end of the jobs that is their head, LEFT or RIGHT
--      13 max results     the approximate number of results that are kept; 0 for none
--      14 idle lease      the lease of a lane that has no claims and only renews it, ms: it protects nothing, so it is
--                         long
--      15 version         the version of the job commands that the lane knows, '' for none
--      16 configuration   the digest of the configuration by which the lane accepts jobs, '' while it accepts none
--      17 sort            1 if the lane has met a job with `fair` or `urgent`: the queue sorts its jobs from now on
--      18 uptime          with a heartbeat: how long the worker has run, ms
--      19 members         with a heartbeat: the members of the JSON object, and its closing brace
--      20 source value    with a heartbeat: JSON, written when the lane joins
-- Reply { status, now, due, expired, evicted, command, stamp, held, commands, others, body... }
--       status            0 claimed, 1 paused, 2 the lease was lost and the claims reclaimed: the lane needs a new name,
--                         3 paused, and the lane must hand back the jobs that it has not submitted
--       now               Redis' time, ms
--       due               ms until more jobs can be claimed: 0 when some wait, -1 when there are none
--       expired           a lane whose lease has expired, '' if there is none; null from a claim that has not looked around
--       evicted           dead letters evicted to keep within the bounds
--       command           the value of order:<process>, '' if there is none or no heartbeat was given
--       stamp             of this claim, '' without jobs
--       held              the lane's claims before this one; -1 if their key is not a hash
--       commands          {} if the lane knows the job commands; else all of them, { field, value, ... }, which
--                         apply to the jobs of this claim, too
--       others            the configurations of living workers that differ from the lane's, with jobs only: what the
--                         lane refuses, they may accept
--       body...           the jobs, under the fields `<first>.<stamp>`, `<first + 1>.<stamp>`, ...
--
-- A claim is bound to its execution: the same command, executed again on another state of Redis, claims other jobs under another stamp. Run
-- twice on the same state with the same `first`, the second run returns the jobs of the first run. With a later number of that run as
-- `first`, it returns the jobs from this number on; after a later claim it returns nothing. So a claim can be repeated after its connection
-- broke. A claim that the network delivers late claims nothing, or jobs that the lane finds among its claims.
-- Needs: time base lists shares

local jobs, retry, failed, claimed, inbox, workers, paused, dead, dead_bytes, stats, next_key, results, job_commands,
    minutes, configurations, sorted, shares, campaigns, campaign_prefix, largest_key, worker_info, command_key,
    source = unpack(KEYS)
local lane, join, lease, limit, first, nonce, max_job_bytes, max_bytes, max_dead, max_dead_age, max_dead_bytes, head,
    max_results, idle_lease, known_version, configuration, sort, uptime, members, source_value =
        unpack(ARGV)
local first_text = first
limit, first, max_job_bytes, max_bytes = tonumber(limit), tonumber(first), tonumber(max_job_bytes), tonumber(max_bytes)
local now_in_us = now_us()
local now = math.floor(now_in_us / 1000)
-- Formatting a number costs more than most commands.
local now_text = string.format('%d', now)

-- The lease is renewed even if another key is of the wrong type. An idle poll calls few commands, because a large fleet
-- makes hundreds of polls per second.
write_when_full(workers)
local held = redis.pcall('HLEN', claimed)
held = type(held) == 'number' and held or -1
do
    local lease_end = string.format('%d', now + (limit == 0 and held == 0 and idle_lease or lease))
    local renewed
    if join == '1' then
        renewed = redis.pcall('ZADD', workers, lease_end, lane)
    else
        renewed = redis.pcall('ZADD', workers, 'XX', 'CH', lease_end, lane)
    end
    if type(renewed) == 'table' then
        return wrong_type({ [workers] = 'zset' }) or renewed
    elseif join == '0' and renewed == 0 and not redis.call('ZSCORE', workers, lane) then
        return { 2, now, -1, false, 0, '', '', 0, {}, {} }
    end
end

-- When a lane gives a heartbeat, joins or only renews its lease, it looks for expired leases, and checks the types of the keys that only
-- ends of jobs need. Most claims of a busy lane skip this, because it costs as much as several jobs.
local looks_around = worker_info or join == '1' or limit == 0

-- A random one of the ten lanes that expired first: a lane that can't be reclaimed must not shield the others.
local expired = looks_around and ''
if looks_around and redis.call('ZCOUNT', workers, '-inf', '(' .. now_text) > 0 then
    local first_expired = redis.call('ZRANGEBYSCORE', workers, '-inf', '(' .. now, 'LIMIT', 0, 10)
    expired = first_expired[1 + now_in_us % #first_expired]
end

-- The heartbeat is informational: a fault of these keys must not keep jobs from being claimed.
local command = ''
if worker_info then
    redis.pcall('HSET', worker_info, lane,
        string.format('{"v":1,"updated_at":%d,"started_at":%d,', now, now - uptime) .. members)
    local value = redis.pcall('GET', command_key)
    command = type(value) == 'string' and value or ''
    if join == '1' then
        redis.pcall('SET', source, source_value)
    end
    if configuration ~= '' then
        -- A configuration stays valid for five leases. So the first worker that returns after an outage still knows those of the others.
        redis.pcall('HSET', configurations, configuration, now + 5 * lease)
        redis.pcall('PEXPIRE', configurations, 5 * lease)
    end
end

-- Commands are read in the same step as the jobs, so that no lane can send a job that was cancelled before it was claimed. A fault of this
-- key must not keep jobs from being claimed.
local commands = {}
do
    local version = redis.pcall('HGET', job_commands, 'version')
    if type(version) ~= 'table' and (version or '') ~= known_version then
        commands = version and redis.pcall('HGETALL', job_commands) or { 'version', '' }
    end
end

local reply = { 0, now, -1, expired, 0, command, '', held, commands, {} }

-- Returns the configurations of other living workers, and removes those whose workers are no longer living. They are read in the same step
-- as the jobs: a worker that has joined accepts its jobs from then on.
local function other_configurations()
    local others, all = {}, redis.pcall('HGETALL', configurations)
    for i = 1, all.err and 0 or #all, 2 do
        if (tonumber(all[i + 1]) or 0) < now then
            redis.pcall('HDEL', configurations, all[i])
        elseif all[i] ~= configuration then
            others[#others + 1] = all[i]
        end
    end
    return others
end

-- Returns the ms until the first job of a set is due, false if it is empty; 0 for a key of another type, which the next claim with a limit
-- reports. Each set is read once.
local known_due = {}

local function first_due(set)
    if known_due[set] == nil then
        local earliest = redis.pcall('ZRANGE', set, 0, 0, 'WITHSCORES')
        known_due[set] = earliest.err and 0
            or earliest[2] and math.max(0, math.min(tonumber(earliest[2]) - now, 2 ^ 31)) or false
    end
    return known_due[set]
end

-- Returns the ms until the first postponed job is due, -1 without one.
local function until_due()
    local one, other = first_due(retry), first_due(failed)
    return one and other and math.min(one, other) or one or other or -1
end

-- Returns the ms until any job can be claimed, -1 without jobs.
local function until_next()
    for _, list in ipairs({ jobs, inbox }) do
        if redis.pcall('LLEN', list) ~= 0 then
            return 0
        end
    end
    return redis.pcall('ZCARD', sorted) ~= 0 and 0 or until_due()
end

-- A value of another type is a pause, too.
local pause = redis.pcall('GET', paused)
local is_paused = pause ~= false
if is_paused then
    reply[1] = type(pause) == 'string' and string.find(pause, '"now":true', 1, true) and 3 or 1
end
local known = limit > 0 and redis.pcall('GET', next_key)
if type(known) == 'table' or (known and held < 0) then
    return wrong_type({ [next_key] = 'string', [claimed] = 'hash' }) or known
elseif known then
    local next_number, last_first, stamp = string.match(known, '^(%d+) (%d+) (%w+)$')
    if next_number and first >= tonumber(last_first) and first < tonumber(next_number) then
        reply[1], reply[3], reply[7] = 0, is_paused and -1 or until_next(), stamp
        reply[10] = other_configurations()
        for number = first, first + limit - 1 do
            local body = redis.call('HGET', claimed, number .. '.' .. stamp)
            if not body then
                break
            end
            reply[#reply + 1] = body
        end
        return reply
    elseif next_number and first < tonumber(next_number) then
        limit = 0
    end
end
if is_paused then
    return reply
end
if limit == 0 then
    reply[3] = until_next()
    return reply
end

local moved_waiting, fresh_waiting = redis.pcall('LLEN', inbox), redis.pcall('LLEN', jobs)
local due_waiting = first_due(retry) == 0 and redis.pcall('ZCOUNT', retry, '-inf', now_text) or 0
local failed_waiting = first_due(failed) == 0 and redis.pcall('ZCOUNT', failed, '-inf', now_text) or 0
-- Usually false: fresh jobs are then in the list only.
local sorts = sort == '1' or redis.call('EXISTS', shares, sorted) > 0
local sorted_waiting = sorts and redis.pcall('ZCARD', sorted) or 0
if moved_waiting == 0 and fresh_waiting == 0 and sorted_waiting == 0 and due_waiting == 0
    and failed_waiting == 0 then
    reply[3] = until_due()
    return reply
end

-- Returns an error reply if a key that only settlements or the ends of jobs write is of the wrong type.
local function wrong_key_of_ends()
    -- Needs: counters
    return wrong_type({ [dead] = 'zset', [stats_key(stats, now)] = 'hash', [results] = 'stream' })
end

-- Keys that were counted have the right type. If a claim is refused, the lane's next claim looks around, so it finds the wrong key again.
local wrong = looks_around and wrong_key_of_ends()
if not wrong and (held < 0 or type(moved_waiting) ~= 'number' or type(fresh_waiting) ~= 'number'
    or type(due_waiting) ~= 'number' or type(failed_waiting) ~= 'number') then
    wrong = wrong_type({
        [retry] = 'zset', [failed] = 'zset', [claimed] = 'hash', [jobs] = 'list', [inbox] = 'list',
    })
end
wrong = wrong or sorts and wrong_type({ [sorted] = 'zset', [shares] = 'hash' })
if wrong then
    return wrong
end

if sorts then
    define_shares()
end
-- The size of the largest job that this queue has claimed. A producer may push larger jobs at any time.
local largest_text = redis.pcall('GET', largest_key)
local known_largest = type(largest_text) == 'string' and string.match(largest_text, '^%d+$') and tonumber(largest_text)
local seen = known_largest and math.max(1, math.min(known_largest, 2 ^ 31)) or nil
-- If all jobs that wait can be claimed, their order does not matter.
if sorts and sorted_waiting == 0 then
    local waiting = moved_waiting + fresh_waiting + due_waiting + failed_waiting
    sorts = waiting > limit or waiting * (seen or max_bytes) > max_bytes
end
if sorts then
    seen = sort_jobs(jobs, head, retry, due_waiting, sorted, shares, seen)
    -- Due jobs are now sorted among the fresh ones, by this claim or by the next ones.
    fresh_waiting, due_waiting = fresh_waiting + sorted_waiting + due_waiting, 0
    sorted_waiting = redis.call('ZCARD', sorted)
    if sorted_waiting < fresh_waiting then
        -- Claim fewer bytes than are sorted, so that the last jobs of a long list are sorted long before they are claimed.
        max_bytes = max_bytes / 8
    end
end

-- All jobs are read before the first is removed.
local taken, kept, bytes, largest = {}, 0, 0, seen

-- A key that jobs are taken from.
--   left    the number of jobs that may still be taken
--   read    returns the jobs from one index to another, counted from 0 at the head
--   remove  removes a number of jobs at the head
local function place(left, read, remove)
    return { left = left, read = read, remove = remove, kept = 0 }
end

local function list_place(key, head, left)
    return place(left, list_reader(key, head), function(n)
        trim_head(key, head, n)
    end)
end

-- Takes jobs from a place, until they reach `space` bytes.
local function take(from, space)
    local most = math.min(from.left, limit - kept)
    if most < 1 or space < 1 then
        return
    end
    local found, size, _, read = read_portions(function(start, stop)
        return from.read(from.kept + start, from.kept + stop)
    end, most, space, largest)
    largest = size
    if kept == 0 then
        taken, kept, bytes = found, #found, read
    else
        for i = 1, #found do
            taken[kept + i] = found[i]
        end
        kept, bytes = kept + #found, bytes + read
    end
    for i = 1, from.bodies and #found or 0 do
        from.bodies[#from.bodies + 1] = found[i]
    end
    from.kept, from.left = from.kept + #found, from.left - #found
end

local moved = list_place(inbox, 'LEFT', moved_waiting)
take(moved, max_bytes)

-- Returns a place of the jobs of a set that are due.
local function due_place(set, left)
    return place(left, function(start, stop)
        return redis.call('ZRANGE', set, start, stop)
    end, function(n)
        redis.call('ZREMRANGEBYRANK', set, 0, n - 1)
    end)
end

-- While other jobs wait, failed jobs get an eighth of the capacity, in number and in bytes, because a job that fails again and again must
-- not delay the others. They also get what the others leave. While listed jobs and due jobs that have not failed both wait, each kind gets
-- half of the rest, so that neither starves. In case only one job fits, chance decides which kind is first; the failed jobs are first in
-- one claim of eight.
local fresh, due, failing
do
    local capacity, turn, eighth = limit - kept, now % 2, now_in_us % 8
    local failed_share = math.min(failed_waiting,
        math.max(math.floor((capacity + eighth) / 8), capacity - fresh_waiting - due_waiting))
    capacity = capacity - failed_share
    local due_share = math.min(due_waiting, math.max(math.floor((capacity + turn) / 2), capacity - fresh_waiting))
    if sorts then
        fresh = place(math.min(sorted_waiting, capacity - due_share), sorted_jobs(sorted, shares))
    else
        fresh = list_place(jobs, head, math.min(fresh_waiting, capacity - due_share))
    end
    due, failing = due_place(retry, due_share), due_place(failed, failed_share)
    failing.bodies = sorts and {}
    local one, other = fresh, due
    if turn == 1 then
        one, other = due, fresh
    end
    if eighth == 7 then
        take(failing, math.ceil((max_bytes - bytes) / 8))
    end
    take(one, other.left > 0 and math.ceil((max_bytes - bytes) / 2) or max_bytes - bytes)
    take(other, max_bytes - bytes)
    take(one, max_bytes - bytes)
    take(failing, max_bytes - bytes)
end

-- A job that is too large ends here. Before it is removed, the types of the keys that its end writes must be checked.
if not looks_around and largest and largest > max_job_bytes then
    wrong = wrong_key_of_ends()
    if wrong then
        return wrong
    end
end

for _, from in ipairs({ moved, fresh, due, failing }) do
    if from.kept > 0 then
        from.remove(from.kept)
    end
end
if due.kept > 0 or sorts then
    known_due[retry] = nil
end
if failing.kept > 0 then
    known_due[failed] = nil
end
if sorts and failing.kept > 0 then
    charge_shares(sorted, shares, failing.bodies)
end
if sorts or sort == '1' then
    keep_shares(shares, sort == '1')
end

-- At most 15 bytes: the worker keeps a string of that size in place, without a reference to count. The time repeats after 203 days, but
-- then the lane and the number differ.
local stamp = string.format('%s%x', nonce, now_in_us % 2 ^ 44)
local claims, number, too_large = {}, first, nil
-- A key of another type stays, for operators to see.
if largest and largest > (known_largest or 0) and type(largest_text) ~= 'table' then
    -- The next power of two, so that it seldom changes.
    redis.call('SET', largest_key, string.format('%.0f', 2 ^ math.ceil(math.log(largest) / math.log(2))), 'PX', 86400000)
end
local others = other_configurations()
reply[10] = others

-- Ends jobs that are too large, or defers them. Few claims have one.
--   bodies  the jobs by their number among those that were taken
local function end_too_large(bodies)
    -- Needs: counters minutes wrapper members unread
    -- The steps that are left to find members of these jobs; the notifications of those that are deferred.
    local steps, letters, deferred = 5000, {}, 0
    for i, body in pairs(bodies) do
        local _, original, wrapped = unwrap(body)
        local campaign, notifications
        campaign, notifications, steps = job_facts(original, wrapped, steps)
        local claim = string.format('%s:%d.%s:%d', lane, first, stamp, i)
        local refused = undecided(wrapped, others, configuration)
        if refused then
            local head = deferred_head(wrapped, now, claim, 'JobTooLarge', refused)
            local share = (now_in_us + 618 * i) % 1000 / 1000
            redis.call('ZADD', has_failed(body) and failed or retry, now + configuration_pause(wrapped, now, share),
                head .. original .. '}')
            known_due = {}
            deferred = deferred + notifications
        else
            local details = string.format('"detail":"the job has %d bytes, more than max_job_bytes (%d)"', #body, max_job_bytes)
            letters[#letters + 1] = { claim, 'JobTooLarge', details, wrapped, original, campaign, notifications }
        end
    end
    if deferred > 0 then
        count(stats, now, 'deferred', deferred)
        count(stats, now, 'deferred:JobTooLarge', deferred)
        add_to_minute(minutes, now, { 'deferred:JobTooLarge', deferred })
    end
    reply[5] = bury_unread(letters)
end

-- Formatting a number is expensive, so only every tenth is formatted.
local tens, digits, suffix = '', { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }, '.' .. stamp
for i = 1, kept do
    local body = taken[i]
    if #body > max_job_bytes then
        too_large = too_large or {}
        too_large[i] = body
    else
        local n = number - first + 1
        local digit = number % 10
        if n == 1 or digit == 0 then
            tens = number < 10 and '' or string.format('%d', (number - digit) / 10)
        end
        claims[2 * n - 1], claims[2 * n] = tens .. digits[digit] .. suffix, body
        reply[10 + n] = body
        number = number + 1
    end
end
if #claims > 0 then
    call_in_chunks('HSET', claimed, claims)
    -- Kept for longer than a network can delay a command.
    redis.call('SET', next_key, string.format('%d %s %s', number, first_text, stamp), 'PX', 3600000)
    reply[7] = stamp
end
if too_large then
    end_too_large(too_large)
end
reply[3] = (fresh_waiting > fresh.kept or moved_waiting > moved.kept) and 0 or until_due()
return reply
