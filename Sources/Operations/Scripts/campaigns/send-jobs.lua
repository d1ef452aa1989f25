-- Pushes the next jobs of a list of tokens, and moves the list's cursor, in one step. So a process that repeats a call, or
-- begins again after a crash, pushes no job twice and omits none.
--
-- KEYS  1 campaign-list:<name> HASH  the cursor: `next`, the number of jobs that were pushed; `jobs` and `notifications` of
--                                 the whole list; `list` and `job`, the digests of the tokens and of the job; `by`,
--                                 `started_at`, `updated_at` (ms)
--       2 jobs            LIST   jobs to send
--       3 campaign:<name> HASH   the campaign's counters
--       4 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       5 job-commands    HASH   operators' commands
-- ARGV  1 name            of the campaign
--       2 list            the digest of the tokens
--       3 job             the digest of all else that the jobs are made of
--       4 jobs            the number of jobs of the whole list
--       5 notifications   the number of notifications of the whole list
--       6 next            the number of jobs before these
--       7 count           the number of these jobs
--       8 ahead           the maximum number of waiting jobs with these
--       9 begun           the number of notifications of the jobs up to these, or 0 if there is no limit
--      10 unended         the maximum number of the campaign's notifications that have not ended, with these
--      11 push            RPUSH, or LPUSH if producers push at the left
--      12 by              the operator, for people
--       then the jobs; none to ask for the reply
-- Reply { state, next, waiting, unended }
--       state             ready      these jobs can be pushed
--                         pushed     they were
--                         moved      other jobs are next
--                         full       too many jobs wait, or too many notifications have not ended
--                         cancelled  the campaign is cancelled
--                         list, job  the cursor belongs to another list, or to another job
--                         lost       there is no cursor although jobs were pushed
--       next              the number of jobs that were pushed
--       waiting           the number of waiting jobs
--       unended           the number of the campaign's notifications that have not ended, with these; 0 without a limit
--
-- Run twice, the second run pushes nothing: the cursor has moved.

local FIRST_JOB = 13
local cursor, jobs, campaign, campaigns, job_commands = unpack(KEYS)
local name, list, job, all, notifications, first, count, ahead, begun, most, push, by = unpack(ARGV, 1, FIRST_JOB - 1)
first, count, ahead, begun, most = tonumber(first), tonumber(count), tonumber(ahead), tonumber(begun), tonumber(most)

local wrong = wrong_type({
    [cursor] = 'hash', [jobs] = 'list', [campaign] = 'hash', [campaigns] = 'zset', [job_commands] = 'hash' })
if wrong then
    return wrong
end

local known = redis.call('HMGET', cursor, 'list', 'job', 'next')
local next, waiting, unended = tonumber(known[3] or 0) or 0, redis.call('LLEN', jobs), 0
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
    local command = redis.call('HGET', job_commands, 'campaign:' .. name)
    local is_json, value = pcall(cjson.decode, command or '')
    if is_json and type(value) == 'table' and value.state == 'cancelled' then
        state = 'cancelled'
    elseif count > 0 then
        if begun > 0 then
            unended = math.max(0, begun - ended_of(campaign_facts(campaign)))
        end
        if waiting + count > ahead or unended > most then
            state = 'full'
        end
    end
end

if state == 'ready' and #ARGV >= FIRST_JOB then
    local bodies = {}
    for i = FIRST_JOB, #ARGV do
        bodies[#bodies + 1] = ARGV[i]
    end
    local now = now_ms()
    call_in_chunks(push, jobs, bodies)
    if not known[1] then
        redis.call('HSET', cursor, 'list', list, 'job', job, 'jobs', all, 'notifications', notifications, 'by', by,
            'started_at', now)
        redis.pcall('HINCRBY', campaign, 'total', notifications)
    end
    state, next, waiting = 'pushed', next + #bodies, waiting + #bodies
    redis.call('HSET', cursor, 'next', next, 'updated_at', now)
    redis.call('PEXPIRE', cursor, CAMPAIGN_LIFE)
    redis.call('PEXPIRE', campaign, CAMPAIGN_LIFE)
    -- A campaign exists from its first job on, and before its first settlement.
    redis.call('ZADD', campaigns, now, name)
end
return { state, next, waiting, unended }
