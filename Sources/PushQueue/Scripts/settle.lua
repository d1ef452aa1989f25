-- Settles claims of a lane, each of them only while it is still the lane's own.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 dead            ZSET   dead letters by time (ms)
--       4 dead-bytes      STRING sum of their lengths
--       5 stats:          prefix of the day's counters
--       6 results         STREAM outcomes of notifications, where they are kept
-- ARGV  1 lane            its name
--       2 max dead        how many dead letters are kept
--       3 max dead age    for how long, ms
--       4 max dead bytes  up to which total length
--       5 max results     how many results are kept, about
--       then any number of actions; `claim` is a field, `<number>.<stamp>`
--         ack    outcome n claim...              these jobs have ended with this outcome, which is counted
--         done   outcome n (claim results)...    the same, each with its results: MessagePack, an array of arrays of
--                                                values (see add_results)
--         retry  claim reason delay head start length
--                                                again in `delay` ms ('+500'), or at a time ('@1792800000000'); the new
--                                                job is `head`, the original, which is `length` bytes of the claimed
--                                                one from `start` (from 0), and '}'; counted by reason
--         dead   claim reason members start length   a dead letter with the original, and JSON members about it
--         split  claim prefix cut cut_length start length pieces (token_start token_length)...
--                                                the job is replaced by pieces that are due at once. A piece is `prefix`,
--                                                its tokens, which are the bytes of the claimed job from `token_start`,
--                                                and the original without its list of tokens, which is at `cut`;
--                                                a `token_start` of '-' has the tokens themselves behind it
--         letter claim reason members start length   the same as dead, but the claim stays, to be settled by what follows:
--                                                some of a job's notifications can never be delivered, the others go on
--         count  field amount                    counted if the settlement before it found its claim
--         result results                         these results are added if the settlement before it found its claim
-- Reply { settled, lost, evicted }
--       settled           how many claims were the lane's own
--       lost              how many were not: they were reclaimed, or settled before, and are left alone
--       evicted           dead letters evicted to keep within the bounds
--
-- Run twice, the second run finds no claims and does nothing.

local now = now_ms()
local claimed, retry, dead, dead_bytes, stats, results = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lane, max_results = ARGV[1], ARGV[5]
local settled, lost, evicted, buried, found = 0, 0, 0, false, false

local wrong = wrong_type({
    [claimed] = 'hash', [retry] = 'zset', [dead] = 'zset', [stats_key(stats, now)] = 'hash', [results] = 'stream',
})
if wrong then
    return wrong
end
write_when_full(claimed)

local function take(claim)
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

local i = 6
while i <= #ARGV do
    local action = ARGV[i]
    if action == 'ack' then
        local outcome, n = ARGV[i + 1], tonumber(ARGV[i + 2])
        local own = 0
        for start = i + 3, i + 2 + n, CHUNK do
            own = own + redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, i + 2 + n)))
        end
        settled = settled + own
        lost = lost + n - own
        found = own > 0
        count(stats, now, outcome, own)
        i = i + 3 + n
    elseif action == 'done' then
        local n, own = tonumber(ARGV[i + 2]), 0
        for at = i + 3, i + 1 + 2 * n, 2 do
            if redis.call('HDEL', claimed, ARGV[at]) == 1 then
                own = own + 1
                add_results(results, max_results, now, ARGV[at + 1])
            end
        end
        settled = settled + own
        lost = lost + n - own
        found = own > 0
        count(stats, now, ARGV[i + 1], own)
        i = i + 3 + 2 * n
    elseif action == 'retry' then
        local body = take(ARGV[i + 1])
        if body then
            local reason, delay, start = ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[i + 5])
            local original = string.sub(body, start + 1, start + tonumber(ARGV[i + 6]))
            local at = tonumber(string.sub(delay, 2))
            if string.sub(delay, 1, 1) == '+' then
                at = now + at
            end
            redis.call('ZADD', retry, at, ARGV[i + 4] .. original .. '}')
            count(stats, now, reason, 1)
        end
        i = i + 7
    elseif action == 'dead' then
        local body = take(ARGV[i + 1])
        if body then
            local start = tonumber(ARGV[i + 4])
            local original = string.sub(body, start + 1, start + tonumber(ARGV[i + 5]))
            bury(dead, dead_bytes, now, lane .. ':' .. ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], original)
            count(stats, now, 'dead', 1)
            count(stats, now, 'dead:' .. ARGV[i + 2], 1)
            buried = true
        end
        i = i + 6
    elseif action == 'split' then
        local body = take(ARGV[i + 1])
        local pieces = tonumber(ARGV[i + 7])
        if body then
            local cut, start = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 5])
            local original = string.sub(body, start + 1, cut)
                .. string.sub(body, cut + tonumber(ARGV[i + 4]) + 1, start + tonumber(ARGV[i + 6]))
            for piece = 1, pieces do
                local at, tokens = tonumber(ARGV[i + 6 + 2 * piece]), ARGV[i + 7 + 2 * piece]
                if at then
                    tokens = string.sub(body, at + 1, at + tonumber(tokens))
                end
                redis.call('ZADD', retry, now, string.format('%s,"claim":"%s:%s/%d","tokens":[%s],"job":%s}',
                    ARGV[i + 2], lane, ARGV[i + 1], piece, tokens, original))
            end
            count(stats, now, 'split', 1)
        end
        i = i + 8 + 2 * pieces
    elseif action == 'letter' then
        local body = redis.call('HGET', claimed, ARGV[i + 1])
        found = body and true or false
        if found then
            local start = tonumber(ARGV[i + 4])
            local original = string.sub(body, start + 1, start + tonumber(ARGV[i + 5]))
            bury(dead, dead_bytes, now, lane .. ':' .. ARGV[i + 1] .. ':letter', ARGV[i + 2], ARGV[i + 3], original)
            buried = true
        end
        i = i + 6
    elseif action == 'count' then
        if found then
            count(stats, now, ARGV[i + 1], tonumber(ARGV[i + 2]))
        end
        i = i + 3
    elseif action == 'result' then
        if found then
            add_results(results, max_results, now, ARGV[i + 1])
        end
        i = i + 2
    else
        return redis.error_reply('ERR settle: unknown action ' .. tostring(action))
    end
end
if buried then
    evicted = trim_dead(dead, dead_bytes, stats, now,
        { count = tonumber(ARGV[2]), age = tonumber(ARGV[3]), bytes = tonumber(ARGV[4]) })
end
return { settled, lost, evicted }
