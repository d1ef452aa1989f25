-- Puts claims of a lane whose lease has expired back at the head of the list, or among the failed jobs.
--
-- KEYS  1 workers         ZSET   lane -> lease end (ms)
--       2 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       3 jobs            LIST   jobs to send
--       4 dead            ZSET   dead letters by time (ms)
--       5 dead-bytes      STRING sum of their lengths
--       6 stats:          prefix of the day's counters
--       7 results         STREAM outcomes of notifications; `results-marks` is beside it
--       8 worker-info     HASH   lane -> its heartbeat
--       9 minute:         prefix of the minutes' counters
--      10 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--      11 campaign:       prefix of the campaigns' counters
--      12 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
-- ARGV  1 lane            the lane whose lease has expired
--       2 max reclaims    a job that was reclaimed more often is poison, and becomes a dead letter
--       3 max dead        the maximum number of dead letters
--       4 max dead age    their maximum age, ms
--       5 max dead bytes  the maximum sum of their lengths
--       6 head            the end of the jobs that is their head, LEFT or RIGHT
--       7 max results     the approximate number of results that are kept; 0 for none
-- Reply { reclaimed, poisoned, evicted, left }
--       reclaimed         the number of jobs that were reclaimed; -1 when the lease has not expired, or another lane was
--                         faster
--       poisoned          the number of jobs that became dead letters
--       evicted           dead letters evicted to keep within the bounds
--       left              the number of claims that remain: call again
--
-- Each call gives back only some of the claims, so that it is short regardless of their number and size; the last one
-- removes the lane. Each claim is pushed and removed in the same call: run twice, the second run finds what the first
-- left.
-- Needs: time base counters wrapper claims

local workers, claimed, jobs, dead, dead_bytes, stats, results, worker_info, minutes, campaigns, campaign_prefix, failed =
    unpack(KEYS)
local lane, max_reclaims, max_dead, max_dead_age, max_dead_bytes, head_end, max_results = unpack(ARGV)
local now = now_ms()

local wrong = wrong_type({
    [workers] = 'zset', [jobs] = 'list', [dead] = 'zset', [stats_key(stats, now)] = 'hash', [results] = 'stream',
    [failed] = 'zset',
})
if wrong then
    return wrong
end

local lease = redis.call('ZSCORE', workers, lane)
if not lease or tonumber(lease) >= now then
    return { -1, 0, 0, 0 }
end
write_when_full(workers)

wrong = wrong_type({ [claimed] = 'hash' })
if wrong then
    -- An operator must repair this key. It is tried again after an hour, so that other lanes are reclaimed in the meantime.
    redis.call('ZADD', workers, now + 3600000, lane)
    return wrong
end

local fields, all = fields_to_give_back(claimed, 0)
local bodies, letters = {}, {}

-- Adds a dead letter of a claim. The job is searched for its campaign and its notifications, and not decoded, because decoding it may have
-- crashed the lanes. `members` are those of the job's wrapper.
local steps = 5000
local function add_letter(claim, reason, detail, members, original)
    -- Needs: members
    local campaign, notifications
    campaign, notifications, steps = job_facts(original, members, steps)
    local details = string.format('"reserved":true,"detail":"%s"', detail)
    letters[#letters + 1] = { lane .. ':' .. claim, reason, details, members, original, campaign, notifications }
end

for _, field in ipairs(fields) do
    local body = redis.call('HGET', claimed, field)
    local head, original, members = unwrap(body)
    local reclaims = (members.reclaims or 0) + 1
    if not claim_number(field) then
        -- The field can be any bytes, so the dead letter does not contain it.
        add_letter(now .. '.' .. #letters + 1, 'UnreadableClaim', 'a claim whose field is not a number and a stamp', {}, body)
    elseif reclaims > tonumber(max_reclaims) then
        add_letter(field, 'Poison', string.format('reclaimed %d times from lanes whose lease had expired', reclaims), members,
            original)
    else
        -- The head from the comma after `"apns_worker":1` on, without its old counter.
        local rest = head and string.gsub(string.sub(head, #WRAPPER), ',"reclaims":[^,]+', '', 1) or ',"job":'
        -- The first claim identifies the job: for its reservation and, if it has no id, for the apns-id of each resend.
        local origin = members.origin and '' or ',"origin":' .. cjson.encode(lane .. ':' .. field)
        bodies[#bodies + 1] = WRAPPER .. string.format('"reclaims":%d', reclaims) .. origin .. rest .. original .. '}'
    end
end

-- Most reclaims bury no job. The part `unread` is defined only if one does, because each definition takes time.
local function bury_letters()
    -- Needs: unread
    return bury_unread(letters)
end

give_back(jobs, head_end, failed, now, bodies)
local evicted = #letters > 0 and bury_letters() or 0
call_in_chunks('HDEL', claimed, fields)
if #fields == all then
    end_lease(workers, worker_info, lane)
end
count(stats, now, 'reclaimed', #bodies)
return { #bodies, #letters, evicted, all - #fields }
