-- Cancels, removes, moves or makes due the jobs that an operator has chosen from a page.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 inbox           LIST   jobs that blocking waits moved; every claim takes from it first
--       3 retry           ZSET   scheduled and deferred jobs by due time (ms)
--       4 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
--       5 sorted          ZSET   jobs that wait, in the order in which they are sent, each in a wrapper of its own
--       6 cancelled       ZSET   cancelled jobs by time (ms), kept like dead letters
--       7 cancelled-bytes STRING sum of their lengths
--       8 stats:          prefix of the day's counters
--       9 results         STREAM outcomes of notifications; `results-marks` is beside it
--      10 campaigns       ZSET   campaigns by the time of their last settlement
--      11 campaign:       prefix of a campaign's counters
--      12 minute:         prefix of the minutes' counters
--      13 unique:         prefix of the reservations of ids
--       then with move
--      14 other jobs      LIST   jobs of the other queue
--      15 other retry     ZSET   scheduled and deferred jobs of the other queue
--      16 other failed    ZSET   jobs of the other queue that failed
-- ARGV  1 action          bury, remove, move, run (make due now; of retry or failed), or restore (the inbox to the head of
--                         the list)
--       2 place           list, sorted, retry or failed
--       3 head            the end of the jobs that is their head, LEFT or RIGHT
--       4 other head      the end of the other queue's jobs that is their head, LEFT or RIGHT
--       5 page            list: the number of jobs from the head that the operator has seen
--       6 stamp           letters and digits that no other call has, for the `claim` of cancelled jobs
--       7 max dead        the maximum number of cancelled jobs
--       8 max dead age    their maximum age, ms
--       9 max dead bytes  the maximum sum of their lengths
--      10 max results     the approximate number of results that are kept; 0 for none
--      11 counter         the counter of the jobs' notifications; `moved` for a move to another queue, '' for none
--      12 reason          of the cancelled jobs
--       then for each job
--         job notifications text start length results n campaign id origin
--                         `job` are its bytes in that place. `text` with bury: JSON members about the job, each with a
--                         leading comma; with run: the job in its new wrapper. The original is the `length` bytes of the
--                         job from `start` (from 0). `results` are an array of groups with n results; `campaign`, if not
--                         '', counts the notifications, too; the reservation of `id` by the job with this `origin`, if
--                         not '', ends
-- Reply { changed, passed, evicted }
--       changed           the number of jobs that were still in place, and are changed
--       passed            list: the number of jobs at its head that were processed; restore: the number restored
--       evicted           cancelled jobs evicted to keep within the bounds
--
-- A list can be changed cheaply only at its ends. So jobs that are not chosen move from its head to the inbox, from which workers
-- claim first. Their order is kept, and an interruption loses nothing. In the end, the inbox is restored to the list.
-- Run twice, the second run finds none of the jobs. It moves the next jobs of a list to the inbox unseen, for a later round.
-- Needs: time base values lists counters minutes wrapper dead-letters campaigns claims

local jobs, inbox, retry, failed, sorted, cancelled, cancelled_bytes, stats, results, campaigns, campaign_prefix, minutes,
    unique_prefix, other_jobs, other_retry, other_failed = unpack(KEYS)
local action, place, head, other_head, page, stamp, max_dead, max_dead_age, max_dead_bytes, max_results, counter,
    reason = unpack(ARGV, 1, 12)
page, max_results = tonumber(page), tonumber(max_results)
local FIRST_JOB, ARGUMENTS = 13, 10
local MOST_BYTES = 1048576
local now = now_ms()

local expected = {
    [jobs] = 'list', [inbox] = 'list', [retry] = 'zset', [failed] = 'zset', [sorted] = 'zset',
    [cancelled] = 'zset',
    [stats_key(stats, now)] = 'hash', [results] = 'stream',
}
if other_jobs then
    expected[other_jobs], expected[other_retry], expected[other_failed] = 'list', 'zset', 'zset'
end
local wrong = wrong_type(expected)
if wrong then
    return wrong
end
write_when_full(retry)

if action == 'restore' then
    return { 0, (restore_inbox(inbox, jobs, head)), 0 }
elseif action ~= 'bury' and action ~= 'remove' and action ~= 'move' and action ~= 'run' then
    return redis.error_reply('ERR change-jobs: unknown action ' .. tostring(action))
end

-- The chosen jobs by their bytes: the index of their arguments, and their number.
local at, left = {}, {}
for i = FIRST_JOB, #ARGV, ARGUMENTS do
    at[ARGV[i]] = i
    left[ARGV[i]] = (left[ARGV[i]] or 0) + 1
end

local changed, notifications, by_campaign, moved, buried = 0, 0, {}, {}, false

-- The sets of postponed jobs in this queue and in the other queue, if the place is such a set.
local set, other_set = retry, other_retry
if place == 'failed' then
    set, other_set = failed, other_failed
end

-- Applies the action to a job that has left its place. `due` is the time of a postponed job.
local function change(job, due)
    local _, number, text, start, length, array, n, campaign, id, origin = unpack(ARGV, at[job], at[job] + ARGUMENTS - 1)
    changed = changed + 1
    notifications = notifications + number
    if campaign ~= '' then
        by_campaign[campaign] = (by_campaign[campaign] or 0) + number
    end
    if action == 'bury' then
        bury(cancelled, cancelled_bytes, now, string.format('cancel:%d.%s', changed, stamp), reason, text,
            string.sub(job, start + 1, start + length))
        buried = true
    elseif action == 'run' then
        redis.call('ZADD', set, now, text)
    elseif action == 'move' and due then
        redis.call('ZADD', other_set, due, job)
    elseif action == 'move' then
        moved[#moved + 1] = place == 'sorted' and unsorted(job) or job
    end
    if origin ~= '' then
        free_id(unique_prefix .. id, origin)
    end
    if tonumber(n) > 0 and max_results > 0 then
        add_results(results, max_results, array, n)
    end
end

local passed = 0
if place == 'retry' or place == 'failed' then
    for i = FIRST_JOB, #ARGV, ARGUMENTS do
        local job = ARGV[i]
        local score = redis.call('ZSCORE', set, job)
        if score and (action ~= 'run' or tonumber(score) > now) then
            redis.call('ZREM', set, job)
            change(job, score)
        end
    end
elseif place == 'sorted' then
    for i = FIRST_JOB, #ARGV, ARGUMENTS do
        if redis.call('ZREM', sorted, ARGV[i]) == 1 then
            change(ARGV[i], nil)
        end
    end
else
    local seen = read_portions(list_reader(jobs, head), page, MOST_BYTES, nil)
    passed = #seen
    local kept = {}
    for _, job in ipairs(seen) do
        if (left[job] or 0) > 0 then
            left[job] = left[job] - 1
            change(job, nil)
        else
            kept[#kept + 1] = job
        end
    end
    call_in_chunks('RPUSH', inbox, kept)
    trim_head(jobs, head, passed)
end
call_in_chunks(push_head(other_head == 'LEFT' and 'RIGHT' or 'LEFT'), other_jobs, moved)

if counter == 'moved' then
    -- The moved notifications no longer belong to this queue's total. If all other notifications have ended, the campaign finishes.
    for campaign, number in pairs(by_campaign) do
        local key = campaign_prefix .. campaign
        local total = redis.pcall('HGET', key, 'total')
        if type(total) == 'string' then
            redis.pcall('HINCRBY', key, 'total', -math.min(number, math.max(0, bounded(total))))
            redis.pcall('HINCRBY', key, 'moved', number)
            finish_campaign(key, now, campaign, campaign_facts(key), results, max_results)
        end
    end
elseif counter ~= '' then
    count(stats, now, counter, notifications)
    add_to_minute(minutes, now, { counter, notifications })
    for campaign, number in pairs(by_campaign) do
        add_to_campaign(campaigns, campaign_prefix, now, campaign, { [counter] = number }, results, max_results)
    end
end
write_results(results, max_results)
local evicted = 0
if buried then
    evicted = trim_dead(cancelled, cancelled_bytes, stats, now,
        { count = tonumber(max_dead), age = tonumber(max_dead_age), bytes = tonumber(max_dead_bytes) })
end
return { changed, passed, evicted }
