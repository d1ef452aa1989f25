-- Puts a lane's unsettled claims back at the head of the list, in their old order, or among the failed jobs, and then ends
-- its lease. For a lane that stops: the jobs that it gives back were not sent, so this is not counted as a reclaim.
--
-- KEYS  1 workers         ZSET   lane -> lease end (ms)
--       2 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       3 inbox           LIST   jobs that blocking waits moved
--       4 jobs            LIST   jobs to send
--       5 worker-info     HASH   lane -> its heartbeat
--       6 configurations  HASH   digest of a configuration -> the time until which its workers count as living (ms)
--       7 shares          HASH   the shares of keys; while it exists, the queue sorts its jobs
--       8 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
--       9 order:<process> STRING the command of an operator for the lane's process; given only if the process ends
-- ARGV  1 lane            its name
--       2 head            the end of the jobs that is their head, LEFT or RIGHT
--       3 configuration   the digest of the configuration by which the lane accepted jobs
--       4 linger          the time in ms for which this configuration counts as living, unless heartbeats of others prolong it
-- Reply { released, left }
--       released          the number of claims that were released
--       left              the number of claims, and of jobs of the inbox, that remain: call again
--
-- The jobs of the inbox also return to the list, because other users of the list read only the list. They were popped after the claims,
-- so they are pushed to the head before the claims. Run twice, the second run finds what the first left.
--
-- In a queue that sorts its jobs, claims go back in a wrapper. It shows that they have waited, so they are not sorted behind the other jobs
-- of their key again. Jobs with `unique_for` go back in a wrapper, too: their ids are reserved under their first claim.
-- Needs: time base wrapper claims shares

local workers, claimed, inbox, jobs, worker_info, configurations, shares, failed, command_key = unpack(KEYS)
local lane, head, configuration, linger = unpack(ARGV, 1, 4)
linger = tonumber(linger)

local wrong = wrong_type({ [workers] = 'zset', [claimed] = 'hash', [inbox] = 'list', [jobs] = 'list', [failed] = 'zset' })
if wrong then
    return wrong
end
write_when_full(workers)

local now = now_ms()
local _, restored_bytes = restore_inbox(inbox, jobs, head)
local waiting = redis.call('LLEN', inbox)
if waiting > 0 then
    return { 0, waiting + redis.call('HLEN', claimed) }
end

-- Returns a job with its first claim as origin. Its id may be reserved for this origin; without it the job would be a duplicate of itself.
local function with_origin(body, field)
    local wrapped, original, members = unwrap(body)
    if members.origin then
        return body
    end
    local rest = wrapped and string.sub(wrapped, #WRAPPER) or ',"job":'
    return WRAPPER .. '"origin":' .. cjson.encode(lane .. ':' .. field) .. rest .. original .. '}'
end

local fields, all = fields_to_give_back(claimed, restored_bytes)
local bodies, sorts = {}, redis.call('EXISTS', shares) == 1
if sorts then
    define_shares()
end
for i, field in ipairs(fields) do
    local body = redis.call('HGET', claimed, field)
    body = string.find(body, 'unique_for', 1, true) and with_origin(body, field) or body
    bodies[i] = sorts and as_waited(body) or body
end
give_back(jobs, head, failed, now, bodies)
call_in_chunks('HDEL', claimed, fields)
if #fields == all then
    end_lease(workers, worker_info, lane)
    if command_key then
        redis.call('DEL', command_key)
    end
    local living_until = redis.pcall('HGET', configurations, configuration)
    if type(living_until) == 'string' and (tonumber(living_until) or 0) > now + linger then
        redis.call('HSET', configurations, configuration, now + linger)
        if redis.call('HLEN', configurations) == 1 then
            redis.call('PEXPIRE', configurations, linger)
        end
    end
end
return { #fields, all - #fields }
