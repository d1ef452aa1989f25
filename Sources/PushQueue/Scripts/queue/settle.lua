-- Settles claims of a lane, each of them only while it is still the lane's own.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 dead            ZSET   dead letters by time (ms)
--       4 dead-bytes      STRING sum of their lengths
--       5 stats:          prefix of the day's counters
--       6 results         STREAM outcomes of notifications
--       7 campaigns       ZSET   campaigns by the time of their last settlement (ms)
--       8 campaign:       prefix of the campaigns' counters
--       9 cancelled       ZSET   cancelled jobs by time (ms), kept like dead letters
--      10 cancelled-bytes STRING sum of their lengths
-- ARGV  1 lane            its name
--       2 max dead        the maximum number of dead letters, and of cancelled jobs
--       3 max dead age    their maximum age, ms
--       4 max dead bytes  the maximum sum of their lengths
--       5 max results     the approximate number of results that are kept
--       then any number of actions; `claim` is a field, `<number>.<stamp>`, and the original is the `length` bytes of
--       the claimed job from `start` (from 0)
--         campaign name                          the actions after it are about jobs of this campaign, '' for none:
--                                                what they count is added to its counters, too
--         ack    outcome n claim...              n jobs have ended with this outcome, which is counted
--         done   outcome n (claim results)...    the same, each with its results: MessagePack, an array of arrays of
--                                                values (see add_results)
--         retry  claim counter delay head start length
--                                                the job is due again in `delay` ms ('+500'), or at a time
--                                                ('@1792800000000'); the new job is `head`, the original, and '}';
--                                                `counter` is counted
--         dead   claim outcome reason members start length
--                                                a dead letter with the original, and JSON members about it; the
--                                                outcome (dead or cancelled) is counted, and the reason of a dead one.
--                                                With the reason Cancelled it is kept with the cancelled jobs
--         split  claim prefix cut cut_length start length pieces (token_start token_length)...
--                                                the job is replaced by pieces that are due at once. A piece is
--                                                `prefix`, its tokens, which are the `token_length` bytes of the
--                                                claimed job from `token_start`, and the original without its list of
--                                                tokens, which is the `cut_length` bytes of the claimed job from
--                                                `cut`; a `token_start` of '-' is followed by the tokens themselves
--         letter claim reason members start length
--                                                a dead letter for some notifications of the job: nothing is counted, and
--                                                the claim stays, to be settled by a later action
--         part   claim delay head start length
--                                                a retry of some notifications of the job: nothing is counted, and the
--                                                claim stays, to be settled by a later action
--         keep   claim rest head start length    some notifications of the job have ended: the claim is replaced by the
--                                                claim `rest` of the others, whose job is `head`, the original, and '}'
--         count  field amount                    counted if the action before it found its claim
--         result results                         these results are added if the action before it found its claim
--         minute minutes jobs inbox oldest n (field amount)...
--                                                the last action: the lane's sums since it last sent this action.
--                                                They are added to the minute's counters, whose key begins with
--                                                `minutes`, unless all claims are lost. The keys of the jobs and the
--                                                inbox are for the sample of the backlog; `oldest` is the age in ms
--                                                of the oldest job that the lane has claimed, '' if unknown
-- Reply { settled, lost, evicted }
--       settled           the number of claims that were the lane's own
--       lost              the number of claims that were reclaimed, or settled before, and are left alone
--       evicted           dead letters evicted to keep within the bounds
--
-- Run twice, the second run finds no claims and does nothing. The action `minute` alone has no claims to find, so a
-- lane sends it only once.

local claimed, retry, dead, dead_bytes, stats, results, campaigns, campaign_prefix, cancelled, cancelled_bytes =
    unpack(KEYS)
local lane, max_dead, max_dead_age, max_dead_bytes, max_results = unpack(ARGV, 1, 5)
local now = now_ms()
local settled, lost, evicted, found = 0, 0, 0, false
-- The sets that have new members, each with the key of its length.
local buried = {}

local wrong = wrong_type({
    [claimed] = 'hash', [retry] = 'zset', [dead] = 'zset', [cancelled] = 'zset',
    [stats_key(stats, now)] = 'hash', [results] = 'stream',
})
if wrong then
    return wrong
end
-- A lane's sums alone free no memory.
local first_action = ARGV[6]
if first_action ~= 'minute' then
    write_when_full(claimed)
end

-- The counts by campaign, which are written at the end.
local campaign, campaign_counts = nil, {}

local function tally(field, amount)
    count(stats, now, field, amount)
    if campaign and amount ~= 0 then
        campaign_counts[campaign] = campaign_counts[campaign] or {}
        campaign_counts[campaign][field] = (campaign_counts[campaign][field] or 0) + amount
    end
end

-- Removes a claim and returns its job; false if the claim is no longer the lane's own.
local function settle(claim)
    local body = redis.call('HGET', claimed, claim)
    found = body and true or false
    if found then
        redis.call('HDEL', claimed, claim)
        settled = settled + 1
    else
        lost = lost + 1
    end
    return body
end

-- Counts an outcome of n claims, `own` of which were found.
local function end_claims(outcome, n, own)
    settled = settled + own
    lost = lost + n - own
    found = own > 0
    tally(outcome, own)
end

-- Returns the job of a claim, which a later action settles; false if the claim is no longer the lane's own.
local function job_of(claim)
    local body = redis.call('HGET', claimed, claim)
    found = body and true or false
    return body
end

-- Every copy of a large job takes some ms, so the whole of it is not copied.
local function original_of(body, start, length)
    if tonumber(length) == #body then
        return body
    end
    return string.sub(body, start + 1, start + length)
end

-- Adds a job to the retries. `delay` is in ms ('+500'), or a time ('@1792800000000').
local function retry_later(delay, job)
    local due = tonumber(string.sub(delay, 2))
    if string.sub(delay, 1, 1) == '+' then
        due = now + due
    end
    redis.call('ZADD', retry, due, job)
end

-- Keeps a job as a dead letter, or with the cancelled jobs.
local function keep_letter(claim, reason, members, original)
    local set, set_bytes = dead, dead_bytes
    if reason == 'Cancelled' then
        set, set_bytes = cancelled, cancelled_bytes
    end
    bury(set, set_bytes, now, claim, reason, members, original)
    buried[set] = set_bytes
end

-- The arguments of the action `minute`.
local minutes, jobs, inbox, oldest, sums

-- The index of the action; its arguments follow.
local at = 6
while at <= #ARGV do
    local action = ARGV[at]
    if action == 'campaign' then
        campaign = ARGV[at + 1] ~= '' and ARGV[at + 1] or nil
        at = at + 2
    elseif action == 'ack' then
        local outcome, n = ARGV[at + 1], tonumber(ARGV[at + 2])
        local first, last, own = at + 3, at + 2 + n, 0
        for start = first, last, CHUNK do
            own = own + redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, last)))
        end
        end_claims(outcome, n, own)
        at = last + 1
    elseif action == 'done' then
        local outcome, n = ARGV[at + 1], tonumber(ARGV[at + 2])
        local first, last, own = at + 3, at + 2 + 2 * n, 0
        for pair = first, last, 2 do
            local claim, packed = ARGV[pair], ARGV[pair + 1]
            if redis.call('HDEL', claimed, claim) == 1 then
                own = own + 1
                add_results(results, max_results, now, packed)
            end
        end
        end_claims(outcome, n, own)
        at = last + 1
    elseif action == 'retry' then
        local claim, counter, delay, head, start, length = unpack(ARGV, at + 1, at + 6)
        local body = settle(claim)
        if body then
            retry_later(delay, head .. original_of(body, start, length) .. '}')
            tally(counter, 1)
        end
        at = at + 7
    elseif action == 'dead' then
        local claim, outcome, reason, members, start, length = unpack(ARGV, at + 1, at + 6)
        local body = settle(claim)
        if body then
            keep_letter(lane .. ':' .. claim, reason, members, original_of(body, start, length))
            tally(outcome, 1)
            if outcome == 'dead' then
                tally('dead:' .. reason, 1)
            end
        end
        at = at + 7
    elseif action == 'split' then
        local claim, prefix, cut, cut_length, start, length, pieces = unpack(ARGV, at + 1, at + 7)
        local first, last = at + 8, at + 7 + 2 * pieces
        local body = settle(claim)
        if body then
            local original = string.sub(body, start + 1, cut) .. string.sub(body, cut + cut_length + 1, start + length)
            for pair = first, last, 2 do
                local token_start, tokens = ARGV[pair], ARGV[pair + 1]
                if token_start ~= '-' then
                    tokens = string.sub(body, token_start + 1, token_start + tokens)
                end
                local piece = (pair - first) / 2 + 1
                redis.call('ZADD', retry, now, string.format('%s,"claim":"%s:%s/%d","tokens":[%s],"job":%s}',
                    prefix, lane, claim, piece, tokens, original))
            end
            tally('split', 1)
        end
        at = last + 1
    elseif action == 'letter' then
        local claim, reason, members, start, length = unpack(ARGV, at + 1, at + 5)
        local body = job_of(claim)
        if body then
            -- Several letters of one claim differ in their members.
            keep_letter(lane .. ':' .. claim .. ':letter', reason, members, original_of(body, start, length))
        end
        at = at + 6
    elseif action == 'part' then
        local claim, delay, head, start, length = unpack(ARGV, at + 1, at + 5)
        local body = job_of(claim)
        if body then
            retry_later(delay, head .. original_of(body, start, length) .. '}')
        end
        at = at + 6
    elseif action == 'keep' then
        local claim, rest, head, start, length = unpack(ARGV, at + 1, at + 5)
        local body = settle(claim)
        if body then
            redis.call('HSET', claimed, rest, head .. original_of(body, start, length) .. '}')
        end
        at = at + 6
    elseif action == 'count' then
        local field, amount = ARGV[at + 1], ARGV[at + 2]
        if found then
            tally(field, tonumber(amount))
        end
        at = at + 3
    elseif action == 'result' then
        local packed = ARGV[at + 1]
        if found then
            add_results(results, max_results, now, packed)
        end
        at = at + 2
    elseif action == 'minute' then
        minutes, jobs, inbox, oldest = unpack(ARGV, at + 1, at + 4)
        local last = at + 5 + 2 * ARGV[at + 5]
        sums = { unpack(ARGV, at + 6, last) }
        at = last + 1
    else
        return redis.error_reply('ERR settle: unknown action ' .. tostring(action))
    end
end
for set, set_bytes in pairs(buried) do
    evicted = evicted + trim_dead(set, set_bytes, stats, now,
        { count = tonumber(max_dead), age = tonumber(max_dead_age), bytes = tonumber(max_dead_bytes) })
end
for name, counts in pairs(campaign_counts) do
    add_to_campaign(campaigns, campaign_prefix, now, name, counts)
end
-- The claims show that the sums were not added before: a second run finds none.
if minutes and (settled > 0 or lost == 0) then
    sample_backlog(minutes, now, jobs, inbox, retry)
    note_oldest(minute_key(minutes, now), tonumber(oldest))
    add_to_minute(minutes, now, sums)
end
return { settled, lost, evicted }
