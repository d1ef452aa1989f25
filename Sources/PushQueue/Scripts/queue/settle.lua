-- Settles claims of a lane, each of them only while it is still the lane's own.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       2 retry           ZSET   scheduled and deferred jobs by due time (ms)
--       3 dead            ZSET   dead letters by time (ms)
--       4 dead-bytes      STRING sum of their lengths
--       5 stats:          prefix of the day's counters
--       6 results         STREAM outcomes of notifications; `results-marks` is beside it
--       7 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       8 campaign:       prefix of the campaigns' counters
--       9 cancelled       ZSET   cancelled jobs by time (ms), kept like dead letters
--      10 cancelled-bytes STRING sum of their lengths
--      11 job-commands    HASH   commands about jobs, and their `version`: a guard pauses its campaign
--      12 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
--      13 deliveries      HASH   deliveries and failures of apps and push types
--      14 unique:         prefix of the reservations of ids
--      15 shares          HASH   the shares of keys
-- ARGV  1 lane            its name
--       2 max dead        the maximum number of dead letters, and of cancelled jobs
--       3 max dead age    their maximum age, ms
--       4 max dead bytes  the maximum sum of their lengths
--       5 max results     the approximate number of results that are kept
--       6 max result age  their approximate maximum age, ms; 0 for none
--       then any number of actions; `claim` is a field, `<number>.<stamp>`, and the original is the `length` bytes of
--       the claimed job from `start` (from 0). What an action counts has its fields and amounts in `counts`: their
--       number, and (field amount)...; `results` are an array of groups with n results (see parts/results.lua); '' and 0
--       for none
--         campaign name                          the actions after it are about jobs of this campaign, '' for none:
--                                                what they count is added to its counters, too
--         times  counts                          the times from enqueueing to delivery of the campaign's notifications,
--                                                as a JSON object: the upper bound of a bucket (ms) -> their number
--         ack    outcome n claim...              n jobs have ended with this outcome, which is counted
--         report outcome results n claim...      as `ack`, with a result for each claim, in this order: an array of one group, with a
--                                                line feed before each result
--         end    claim results n counts          the job has ended
--         keep   claim rest head start length results n counts
--                                                some notifications of the job have ended: the claim is replaced by the
--                                                claim `rest` of the others, whose job is `head`, the original, and '}'
--         retry  claim delay head start length   some or all notifications of the job are due again in `delay` ms
--                                                ('+500'), or at a time ('@1792800000000'), as a job of `head`, the
--                                                original, and '}'. It waits among the failed jobs if its head has an
--                                                `error`. The claim stays, for a later action that ends it
--         fail   claim rule reason n delay head start length group app members results m
--                                                n notifications of the job have failed and are due again in `delay` ms,
--                                                as a job of `head`, which has an `error`, the original, and '}'. `rule`
--                                                is `<never, always, own or server> <maximum attempts> <1 if they
--                                                expire>` (see parts/attempts.lua). The failure is judged with the
--                                                campaign, or with `group`, a push type and an app, and with `app`.
--                                                Without an attempt left they become a dead letter with `members`, JSON
--                                                members about it, and m results. The claim stays
--         split  claim prefix share cut cut_length start length pieces (token_start token_length)...
--                                                the job becomes pieces that are due at once, among the failed jobs if
--                                                `prefix` has an `error`. A piece is `prefix`, its
--                                                tokens, which are the `token_length` bytes of the claimed job from
--                                                `token_start`, and the original without its list of tokens, which is
--                                                the `cut_length` bytes of the claimed job from `cut`; a `token_start`
--                                                of '-' is followed by the tokens themselves. `share` is the field
--                                                of the job's key in `shares`, '' for none: its pieces take the job's
--                                                place. The claim stays
--         dead   claim reason members start length
--                                                some or all notifications become a dead letter with the original, and JSON
--                                                members about it; with the reason Cancelled it is kept with the cancelled
--                                                jobs. The claim stays
--         free   claim id origin always          the reservation of the id by the job with this origin ends, because the job
--                                                was not sent; unless `always` is 1, only if an action `fail` has found that
--                                                the job has no attempt left. The claim stays
--         minute minutes jobs sorted inbox oldest n (field amount)... m (field amount)...
--                                                the last action: the lane's sums since it last sent this action.
--                                                They are added to the minute's counters, whose key begins with
--                                                `minutes`, unless all claims are lost. The keys of the jobs, the
--                                                sorted jobs and the inbox are for the sample of the backlog; `oldest`
--                                                is the age in ms of the oldest job that the lane has claimed, '' if
--                                                unknown. The m sums are those of `deliveries`
-- Reply { settled, lost, evicted, stopped, exhausted }
--       settled           the number of claims that were the lane's own
--       lost              the number of claims that were reclaimed, or settled before, and are left alone
--       evicted           dead letters evicted to keep within the bounds
--       stopped           { name, reason, ... } of the campaigns that their guards have paused now
--       exhausted         { app, n, ... } of notifications that had no attempt left
--
-- Run twice, the second run finds no claims and does nothing. The action `minute` alone has no claims to find, so a
-- lane sends it only once.
-- Needs: time base counters

local claimed, retry, dead, dead_bytes, stats, results, campaigns, campaign_prefix, cancelled, cancelled_bytes,
    job_commands, failed, deliveries, unique_prefix, shares = unpack(KEYS)
local lane, max_dead, max_dead_age, max_dead_bytes, max_results, max_result_age = unpack(ARGV, 1, 6)
local now = now_ms()
local settled, lost, evicted = 0, 0, 0

local FIRST_ACTION = 7
local first_action = ARGV[FIRST_ACTION]
local wrong = wrong_type({ [claimed] = 'hash', [stats_key(stats, now)] = 'hash' })
-- Most settlements are a single acknowledgement, perhaps with the lane's sums, which uses no other keys.
local after_ack = first_action == 'ack' and FIRST_ACTION + 3 + ARGV[FIRST_ACTION + 2]
if not wrong and not (after_ack and (ARGV[after_ack] or 'minute') == 'minute') then
    wrong = wrong_type({
        [retry] = 'zset', [failed] = 'zset', [dead] = 'zset', [cancelled] = 'zset', [results] = 'stream',
    })
end
if wrong then
    return wrong
end
-- A lane's sums alone free no memory.
if first_action ~= 'minute' then
    write_when_full(claimed)
end

-- The counts by field, of all jobs and of each campaign. They are written at the end.
local campaign, total, by_campaign, times = nil, {}, {}, nil

local function add(field, amount)
    total[field] = (total[field] or 0) + amount
    if campaign and amount ~= 0 then
        by_campaign[campaign] = by_campaign[campaign] or {}
        by_campaign[campaign][field] = (by_campaign[campaign][field] or 0) + amount
    end
end

-- Records that `own` of n claims were still the lane's own.
local function ended(n, own)
    settled, lost = settled + own, lost + n - own
end

-- The arguments of the action `minute`.
local minutes, jobs, sorted, inbox, oldest, sums, delivered

-- The notifications without an attempt left, and the campaigns that were stopped, for the reply.
local exhausted, stopped = {}, {}

local act, finish

-- Defines `act`, for all actions except acknowledgements and sums, and `finish`. Most settlements need neither, and each definition takes
-- time in each call of a script.
local function define_others()
    -- Needs: values wrapper dead-letters results campaigns attempts
    -- The sets that have new members, each with the key of its total length.
    local buried = {}
    -- The numbers of notifications that failed for the first time, by the field of their group.
    local first_failures = {}
    -- The claim of the last action `fail` that found no attempt left.
    local exhausted_claim

    -- Adds the results and counts that begin at an argument, if the claim was found. Returns the index after them.
    local function add_facts(place, found)
        local array, n, first = ARGV[place], tonumber(ARGV[place + 1]), place + 3
        local last = first + 2 * ARGV[place + 2] - 1
        if found then
            if n > 0 then
                add_results(results, max_results, array, n)
            end
            for pair = first, last, 2 do
                add(ARGV[pair], tonumber(ARGV[pair + 1]))
            end
        end
        return last + 1
    end

    -- Returns the job of a claim; false for a claim that is not the lane's own. Every copy of a large job takes some ms, so several actions
    -- about one claim read it once.
    local last_claim, last_body
    local function body_of(claim)
        if claim ~= last_claim then
            last_claim, last_body = claim, redis.call('HGET', claimed, claim)
        end
        return last_body
    end

    -- Returns a range of a job. If it is the whole job, it is not copied.
    local function original_of(body, start, length)
        if tonumber(length) == #body then
            return body
        end
        return string.sub(body, start + 1, start + length)
    end

    -- Adds a job that waits until it is due.
    local function postpone(due, job)
        redis.call('ZADD', has_failed(job) and failed or retry, due, job)
    end

    -- Carries out the action at an index. Returns the index of the next one; nil for an unknown action.
    function act(action, at)
        if action == 'report' then
            local outcome, array, n = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
            local first, last, gone, own = at + 4, at + 3 + n, {}, n
            -- Reading each and removing all together costs replicas and the append-only file less than removing each.
            for i = first, last do
                if redis.call('HEXISTS', claimed, ARGV[i]) == 0 then
                    gone[i - first + 1], own = true, own - 1
                end
            end
            for start = first, last, CHUNK do
                redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, last)))
            end
            ended(n, own)
            add(outcome, own)
            if own > 0 then
                -- The results stay one string: a string for each result would cost as much as its claim.
                add_results(results, max_results, own < n and without_results(array, gone) or array, own)
            end
            at = last + 1
        elseif action == 'end' then
            local own = redis.call('HDEL', claimed, ARGV[at + 1])
            last_claim = nil
            ended(1, own)
            at = add_facts(at + 2, own == 1)
        elseif action == 'keep' then
            local claim, rest, head, start, length = unpack(ARGV, at + 1, at + 5)
            local body = body_of(claim)
            ended(1, body and 1 or 0)
            if body then
                redis.call('HDEL', claimed, claim)
                last_claim = nil
                redis.call('HSET', claimed, rest, head .. original_of(body, start, length) .. '}')
            end
            at = add_facts(at + 6, body)
        elseif action == 'split' then
            local claim, prefix, share, cut, cut_length, start, length, pieces = unpack(ARGV, at + 1, at + 8)
            local first, last = at + 9, at + 8 + 2 * pieces
            local body = body_of(claim)
            if body then
                local finish = share ~= '' and redis.pcall('HGET', shares, share)
                if type(finish) == 'string' then
                    redis.pcall('HSET', shares, share, string.format('%.0f', math.max(0, bounded(finish) - #body)))
                end
                local original = string.sub(body, start + 1, cut) .. string.sub(body, cut + cut_length + 1, start + length)
                for pair = first, last, 2 do
                    local token_start, tokens = ARGV[pair], ARGV[pair + 1]
                    if token_start ~= '-' then
                        tokens = string.sub(body, token_start + 1, token_start + tokens)
                    end
                    local piece = (pair - first) / 2 + 1
                    postpone(now, string.format('%s,"claim":"%s:%s/%d","tokens":[%s],"job":%s}',
                        prefix, lane, claim, piece, tokens, original))
                end
            end
            at = last + 1
        elseif action == 'retry' then
            local claim, delay, head, start, length = unpack(ARGV, at + 1, at + 5)
            local body = body_of(claim)
            if body then
                local job, due = head .. original_of(body, start, length) .. '}', tonumber(string.sub(delay, 2))
                if string.sub(delay, 1, 1) == '+' then
                    due = now + due
                end
                postpone(due, job)
            end
            at = at + 6
        elseif action == 'fail' then
            local claim, rule, reason, n, delay, head, start, length, group, app, members, array, m = unpack(ARGV, at + 1, at + 13)
            local body = body_of(claim)
            if body then
                n, m = tonumber(n), tonumber(m)
                local counts = attempt_counts(campaign and campaign_prefix .. campaign, campaign and by_campaign[campaign],
                    deliveries, group, app)
                local attempt, is_last, is_first, facts = judge_failure(body, rule, now, counts)
                if is_first and campaign then
                    add('failed', n)
                elseif is_first then
                    first_failures[group] = (first_failures[group] or 0) + n
                end
                if is_last then
                    bury(dead, dead_bytes, now, lane .. ':' .. claim, 'AttemptsExhausted', members,
                        original_of(body, start, length))
                    buried[dead] = dead_bytes
                    add('dead', n)
                    add('dead:AttemptsExhausted', n)
                    if m > 0 then
                        add_results(results, max_results, array, m)
                    end
                    exhausted[#exhausted + 1], exhausted[#exhausted + 2] = app, n
                    exhausted_claim = claim
                else
                    postpone(now + delay, failed_head(head, attempt, facts) .. original_of(body, start, length) .. '}')
                    add('retried', n)
                    add('retried:' .. reason, n)
                end
            end
            at = at + 14
        elseif action == 'dead' then
            local claim, reason, members, start, length = unpack(ARGV, at + 1, at + 5)
            local body = body_of(claim)
            if body then
                local set, set_bytes = dead, dead_bytes
                if reason == 'Cancelled' then
                    set, set_bytes = cancelled, cancelled_bytes
                end
                -- The dead letters of one claim must differ in their members, because the set would merge equal ones.
                bury(set, set_bytes, now, lane .. ':' .. claim, reason, members, original_of(body, start, length))
                buried[set] = set_bytes
            end
            at = at + 6
        elseif action == 'free' then
            local claim, id, origin, always = unpack(ARGV, at + 1, at + 4)
            if (always == '1' or claim == exhausted_claim) and redis.call('HEXISTS', claimed, claim) == 1 then
                free_id(unique_prefix .. id, origin)
            end
            at = at + 5
        else
            return nil
        end
        return at
    end

    -- Evicts dead letters beyond their limits, and writes results, the counters of campaigns, and deliveries.
    function finish()
        for set, set_bytes in pairs(buried) do
            evicted = evicted + trim_dead(set, set_bytes, stats, now,
                { count = tonumber(max_dead), age = tonumber(max_dead_age), bytes = tonumber(max_dead_bytes) })
        end
        for name, counts in pairs(by_campaign) do
            local reason = add_to_campaign(campaigns, campaign_prefix, now, name, counts, results, max_results, job_commands,
                times and times[name])
            if reason then
                stopped[#stopped + 1], stopped[#stopped + 2] = name, reason
            end
        end
        write_results(results, max_results)
        for group, n in pairs(first_failures) do
            add_to_deliveries(deliveries, { 'failed:' .. group, n })
        end
        if delivered then
            add_to_deliveries(deliveries, delivered)
        end
    end
end

local function write_minute()
    -- Needs: minutes
    sample_backlog(minutes, now, jobs, sorted, inbox, { retry, failed })
    note_oldest(minute_key(minutes, now), tonumber(oldest))
    add_to_minute(minutes, now, sums)
end

-- The index of the action; its arguments follow.
local at = FIRST_ACTION
while at <= #ARGV do
    local action = ARGV[at]
    if action == 'campaign' then
        campaign = ARGV[at + 1] ~= '' and ARGV[at + 1] or nil
        at = at + 2
    elseif action == 'times' then
        times = times or {}
        times[campaign or ''] = ARGV[at + 1]
        at = at + 2
    elseif action == 'ack' then
        local outcome, n = ARGV[at + 1], tonumber(ARGV[at + 2])
        local first, last, own = at + 3, at + 2 + n, 0
        for start = first, last, CHUNK do
            own = own + redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, last)))
        end
        ended(n, own)
        add(outcome, own)
        at = last + 1
    elseif action == 'minute' then
        minutes, jobs, sorted, inbox, oldest = unpack(ARGV, at + 1, at + 5)
        local last = at + 6 + 2 * ARGV[at + 6]
        sums = { unpack(ARGV, at + 7, last) }
        local last_sum = last + 1 + 2 * ARGV[last + 1]
        delivered = { unpack(ARGV, last + 2, last_sum) }
        at = last_sum + 1
    else
        if not act then
            define_others()
        end
        at = act(action, at)
        if not at then
            return redis.error_reply('ERR settle: unknown action ' .. tostring(action))
        end
    end
end
for field, amount in pairs(total) do
    count(stats, now, field, amount)
end
-- If all claims are lost, this may be a second run, which must not add the sums again.
if minutes and (settled > 0 or lost == 0) then
    write_minute()
else
    delivered = nil
end
if act or delivered or next(by_campaign) then
    if not act then
        define_others()
    end
    finish()
end
-- About once per second, Redis drops blocks of old results. It comes last: as the first write, it would let all run on a full Redis.
if minutes and tonumber(max_result_age) > 0 then
    redis.pcall('XTRIM', results, 'MINID', '~', string.format('%.0f', now - max_result_age))
end
return { settled, lost, evicted, stopped, exhausted }
