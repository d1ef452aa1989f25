-- Pushes the next jobs of a list of tokens, and moves the list's cursor, in one step. So a process that repeats a call, or
-- begins again after a crash, pushes no job twice and omits none.
--
-- The first jobs can be a canary. The other jobs are pushed once all of the canary's notifications have ended. After the wait,
-- it is enough that as many of its sent notifications have ended as the campaign's guard needs.
--
-- KEYS  1 campaign-list:<name> HASH  the cursor: `next`, the number of jobs that were pushed; `jobs` and `notifications` of
--                                 the whole list; `list` and `job`, the digests of the tokens and of the job; `by`,
--                                 `started_at`, `updated_at` (ms). With a canary: `base`, the campaign's counters by
--                                 outcome before the first job, and `canary_at`, the time of the canary's last push (ms)
--       2 jobs            LIST   jobs to send
--       3 campaign:<name> HASH   the campaign's counters
--       4 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       5 job-commands    HASH   operators' commands
--       6 sorted          ZSET   jobs that wait, in the order in which they are sent
--       7 newest:<key>    STRING if the jobs have `replaces`: the newest job of this key, which the first job sets to the campaign
-- ARGV  1 name            of the campaign
--       2 list            the digest of the tokens
--       3 job             the digest of everything else in the jobs
--       4 jobs            the number of jobs of the whole list
--       5 notifications   the number of notifications of the whole list
--       6 next            the number of jobs before these
--       7 count           the number of these jobs
--       8 ahead           the maximum number of waiting jobs, including these
--       9 begun           the number of notifications of all jobs up to the last of these; 0 for no limit
--      10 unended         the maximum number of the campaign's notifications that have not ended, including these
--      11 push            RPUSH, or LPUSH if producers push at the left
--      12 by              the operator's name, which is only displayed
--      13 guard           the campaign's guard, which is set with the first job: JSON with `rules` and `min`; '' for none
--      14 canary          the number of jobs of the canary; 0 without one
--      15 canary notifications   the number of the canary's notifications
--      16 wait            the time after the canary's last push, ms
--      17 minimum         the number of notifications that must have ended after the wait, if the campaign's guard has no minimum
--      18 life            the time for which KEYS[7] is kept, ms
--       then the jobs; without jobs, nothing is pushed
-- Reply { state, next, waiting, unended, left, needed, reason, outcome... }
--       state             ready      these jobs can be pushed
--                         pushed     these jobs were pushed
--                         moved      other jobs are next
--                         full       too many jobs wait, or too many notifications have not ended
--                         canary     these jobs must wait for the canary
--                         stopped    the campaign's guard has paused it
--                         cancelled  the campaign is cancelled
--                         list, job  the cursor belongs to another list, or to another job
--                         lost       there is no cursor although jobs were pushed
--       next              the number of jobs that were pushed
--       waiting           the number of waiting jobs
--       unended           the number of the campaign's notifications that have not ended, with these; 0 without a limit.
--                         In the state canary, the number of the canary's notifications that have not ended
--       left              in the state canary, the rest of the wait, ms
--       needed            the number of the canary's notifications that must have ended after the wait
--       reason            in the state stopped, the reason of the guard
--       outcome...        with a canary, the numbers of notifications that have ended since the first job, by outcome,
--                         in the order of OUTCOMES
--
-- Run twice, the second run pushes nothing: the cursor has moved.
-- Needs: time base values campaigns

local FIRST_JOB = 19
local cursor, jobs, campaign, campaigns, job_commands, sorted, newest = unpack(KEYS)
local name, list, job, all, notifications, first, count, ahead, begun, most, push, by, guard, canary,
    canary_notifications, wait, minimum, life = unpack(ARGV, 1, FIRST_JOB - 1)
first, count, ahead, begun, most = tonumber(first), tonumber(count), tonumber(ahead), tonumber(begun), tonumber(most)
canary, wait = tonumber(canary), tonumber(wait)

local wrong = wrong_type({
    [cursor] = 'hash', [jobs] = 'list', [campaign] = 'hash', [campaigns] = 'zset', [job_commands] = 'hash',
    [sorted] = 'zset' })
if wrong then
    return wrong
end

local known = redis.call('HMGET', cursor, 'list', 'job', 'next', 'base', 'canary_at')
local waiting = redis.call('LLEN', jobs) + redis.call('ZCARD', sorted)
local next, unended, left, reason = bounded(known[3]), 0, 0, ''
next = math.max(0, math.floor(next))
local facts, now = campaign_facts(campaign), now_ms()
-- The guard in Redis decides, and an operator may have changed it.
local needed = bounded(tonumber(decoded_object(facts.guard).min) or minimum)

-- The counters by outcome: of the campaign, and since its first job.
local counters, outcomes, canary_ended, canary_sent = {}, {}, 0, 0
if canary > 0 then
    local base = {}
    for number in string.gmatch(known[4] or '', '%S+') do
        base[#base + 1] = bounded(number)
    end
    for i, outcome in ipairs(OUTCOMES) do
        local counter = bounded(facts[outcome])
        counters[i] = string.format('%.0f', counter)
        outcomes[i] = math.max(0, counter - (base[i] or 0))
        canary_ended = canary_ended + outcomes[i]
        canary_sent = canary_sent + (outcome == 'suppressed' and 0 or outcomes[i])
    end
end

local state = 'ready'
if known[1] and known[1] ~= list then
    state = 'list'
elseif known[2] and known[2] ~= job then
    state = 'job'
elseif not known[1] and first > 0 then
    state = 'lost'
elseif next ~= first then
    state = 'moved'
else
    local command = read_command(redis.call('HGET', job_commands, 'campaign:' .. name))
    if command.state == 'cancelled' then
        state = 'cancelled'
    elseif command.state == 'paused' and command.by == 'guard' and next < tonumber(all) then
        state, reason = 'stopped', command.reason or ''
    elseif count > 0 then
        if canary > 0 and first == canary then
            unended = math.max(0, canary_notifications - canary_ended)
            left = bounded(known[5]) + wait - now
            -- After a jump of the clock, the rest of the wait may be longer than the wait. Then the wait is over.
            left = left <= wait and math.max(0, left) or 0
            if unended > 0 and (left > 0 or canary_sent < needed) then
                state = 'canary'
            end
        end
        if state == 'ready' then
            -- Notifications that were moved end in another queue.
            unended = begun > 0 and math.max(0, begun - ended_of(facts) - bounded(facts.moved)) or 0
            if waiting + count > ahead or unended > most then
                state = 'full'
            end
        end
    end
end

if state == 'ready' and #ARGV >= FIRST_JOB then
    local bodies = {}
    for i = FIRST_JOB, #ARGV do
        bodies[#bodies + 1] = ARGV[i]
    end
    local new_guard = guard ~= '' and not known[1] and counting_guard(campaign, cjson.decode(guard), facts)
    call_in_chunks(push, jobs, bodies)
    if not known[1] then
        redis.call('HSET', cursor, 'list', list, 'job', job, 'jobs', all, 'notifications', notifications, 'by', by,
            'started_at', now)
        if canary > 0 then
            redis.call('HSET', cursor, 'base', table.concat(counters, ' '))
        end
        redis.pcall('HINCRBY', campaign, 'total', notifications)
        if newest then
            redis.call('SET', newest, name, 'PX', life)
        end
        if new_guard then
            redis.call('HSET', campaign, 'guard', new_guard)
        end
    end
    state, next, waiting = 'pushed', next + #bodies, waiting + #bodies
    redis.call('HSET', cursor, 'next', next, 'updated_at', now)
    if canary > 0 and next == canary then
        redis.call('HSET', cursor, 'canary_at', now)
    end
    redis.call('PEXPIRE', cursor, CAMPAIGN_LIFE)
    redis.call('PEXPIRE', campaign, CAMPAIGN_LIFE)
    -- A campaign is listed from its first job on, even before its first settlement.
    redis.call('ZADD', campaigns, now, name)
end
return { state, next, waiting, unended, left, needed, reason, unpack(outcomes) }
