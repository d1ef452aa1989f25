-- The stream of results.

-- The worker's own wrappers name at most this many tokens.
local MAX_TOKENS = 1000

-- Adds an entry to the stream of results. `values` are the values of its fields, except the time. An unknown value is
-- an empty string: entries with the same fields share the names, which halves their memory.
local function add_result(results, limit, now, values)
    redis.pcall('XADD', results, 'MAXLEN', '~', limit, '*', 'id', values[1], 'token', values[2], 'outcome', values[3],
        'reason', values[4], 'status', values[5], 'apns_id', values[6], 'app', values[7], 'attempt', values[8],
        'time', now, 'trace_id', values[9], 'parent_id', values[10], 'apns_unique_id', values[11],
        'campaign', values[12], 'labels', values[13])
end

-- Adds the results of one argument: MessagePack, an array of arrays of values.
local function add_results(results, limit, now, packed)
    local is_packed, entries = pcall(cmsgpack.unpack, packed)
    if is_packed and type(entries) == 'table' then
        for _, values in ipairs(entries) do
            add_result(results, limit, now, values)
        end
    end
end

-- Adds results for a job that becomes a dead letter before a worker has read it: one for each token that its wrapper
-- names, or one without a token. `limit` is 0 if no results are kept.
local function add_dead_results(results, limit, now, members, reason)
    if limit == 0 then
        return
    end
    local tokens = members.tokens or { '' }
    for i = 1, math.min(#tokens, MAX_TOKENS) do
        add_result(results, limit, now,
            { members.id or '', string.sub(tokens[i], 1, 2048), 'dead', reason, '', '', '', '0', '', '', '', '', '' })
    end
end
