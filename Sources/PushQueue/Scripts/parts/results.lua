-- The stream of results.
--
-- An entry has the results of many notifications, because an entry costs Redis as much as dozens of results. Its field `results`
-- is a JSON array of groups. A group is an object with the members that its results share, and `notifications`, an array with
-- an object for the other members of each.
--
-- `results-marks` is a sorted set for the removal of old results. The score of `added` is the number of results that the stream has got.
-- The scores of some of its entries are the numbers of results up to and including them.

local write_results, add_results, without_results, add_dead_results

do
    -- The worker's own wrappers name at most this many tokens.
    local MAX_TOKENS = 1000
    -- A longer token is not valid, and its beginning is enough to recognize it. Bytes.
    local MAX_TOKEN = 2048
    -- The size beyond which results are written as another entry, in bytes. The results of one job are not divided.
    local MAX_ENTRY = 49152
    -- A mark follows this number of results, or this part of the limit if that is fewer. The results between two marks are removed at once.
    local MARK_RESULTS, MARK_PART = 10000, 1 / 32
    -- The maximum number of marks of old results that a call removes.
    local OLD_MARKS = 4

    -- The arrays of groups for the next entry, their size in bytes, and the number of their results.
    local arrays, arrays_size, new_results = {}, 0, 0

    -- Returns several arrays of groups as one.
    local function joined(several)
        if #several == 1 then
            -- Large results are not copied.
            return several[1]
        end
        local contents = {}
        for i, array in ipairs(several) do
            contents[i] = string.sub(array, 2, -2)
        end
        return '[' .. table.concat(contents, ',') .. ']'
    end

    -- Marks an entry if that is due, and removes the results that exceed the limit. Even if Redis has dropped entries and marks by other
    -- means, a mark shows how many results came after it.
    local function mark_results(results, marks, limit, added, id)
        local last = redis.pcall('ZREVRANGE', marks, 1, 1, 'WITHSCORES')
        if added - (tonumber(last[2]) or 0) < math.min(MARK_RESULTS, limit * MARK_PART) then
            return
        end
        redis.pcall('ZADD', marks, added, id)
        local old = redis.pcall('ZRANGEBYSCORE', marks, '-inf', added - limit, 'LIMIT', 0, OLD_MARKS)
        if #old > 0 then
            redis.pcall('XTRIM', results, 'MINID', old[#old])
            redis.pcall('ZREMRANGEBYRANK', marks, 0, #old - 1)
        end
    end

    -- Writes the results that were added. Call it after the last ones.
    function write_results(results, limit)
        if new_results == 0 then
            return
        end
        local marks = results .. '-marks'
        local id = redis.pcall('XADD', results, 'MAXLEN', '~', limit, '*', 'results', joined(arrays))
        local added = tonumber(redis.pcall('ZINCRBY', marks, new_results, 'added'))
        if added and added > 2 ^ 52 then
            -- No script has written this number.
            redis.pcall('DEL', marks)
            added = tonumber(redis.pcall('ZINCRBY', marks, new_results, 'added'))
        end
        arrays, arrays_size, new_results = {}, 0, 0
        if added and type(id) == 'string' then
            mark_results(results, marks, tonumber(limit), added, id)
        end
    end

    -- Adds an array of groups with n results.
    function add_results(results, limit, array, n)
        if new_results > 0 and arrays_size + #array > MAX_ENTRY then
            write_results(results, limit)
        end
        arrays[#arrays + 1] = array
        arrays_size, new_results = arrays_size + #array, new_results + tonumber(n)
    end

    -- Returns an array of one group without some of its results, which are given by their numbers. A line feed is
    -- before each result, and in no other place.
    function without_results(array, removed)
        local lines = {}
        for line in string.gmatch(array, '[^\n]+') do
            lines[#lines + 1] = line
        end
        local kept = {}
        for i = 2, #lines do
            if not removed[i - 1] then
                kept[#kept + 1] = string.sub(lines[i], 1, i < #lines and -2 or -4)
            end
        end
        return lines[1] .. '\n' .. table.concat(kept, ',\n') .. ']}]'
    end

    -- Adds results for a job that becomes a dead letter before a worker has read it: one for each token that its
    -- wrapper names, or one without a token. `limit` is 0 if no results are kept.
    function add_dead_results(results, limit, members, reason)
        if limit == 0 then
            return
        end
        local tokens = members.tokens or {}
        local n = math.min(#tokens, MAX_TOKENS)
        local notifications = {}
        for i = 1, n do
            local token = tokens[i]
            if #token > MAX_TOKEN then
                -- Without a last character of several bytes, because it may be cut.
                token = string.gsub(string.sub(token, 1, MAX_TOKEN), '[\192-\255]?[\128-\191]*$', '')
            end
            notifications[i] = '\n{"token":' .. cjson.encode(token) .. '}'
        end
        local id = members.id and '"id":' .. cjson.encode(members.id) .. ',' or ''
        local array = string.format('[{%s"outcome":"dead","reason":"%s","attempt":0,"notifications":[%s]}]', id, reason,
            n > 0 and table.concat(notifications, ',') or '\n{}')
        add_results(results, limit, array, math.max(n, 1))
    end
end
