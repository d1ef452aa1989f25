-- Jobs in the order of shares.
--
-- Once a queue has jobs with `fair` or `urgent`, its jobs wait in `sorted`: each claim moves some there from the
-- list. Their score is a virtual time in bytes. A job begins where the one before it of the same key ends, or now if
-- that is over: of two keys whose jobs wait, each gets half of the bytes (start-time fair queueing). Jobs without a
-- key are one line together.
--
-- `shares` has the fields `number` (of the last sorted job), `time` (up to which jobs have been claimed) and, for
-- each key, `by:<key>` (the end of its last job). When there are too many keys, further ones share fields
-- `common:<n>`. Others may write there, so nothing in it is trusted: it decides only the order.

-- A script has at most 200 local names, so those of this part have a block of their own.
local sort_jobs, sorted_jobs, keep_shares

do
    local find, match, sub, byte = string.find, string.match, string.sub, string.byte
    -- The maximum number and size of the jobs that a claim sorts.
    local SORT_JOBS, SORT_BYTES = 1000, 1048576
    -- The maximum number of strings that a claim steps over to find members of jobs.
    local SORT_STEPS = 5000
    -- The maximum number of keys with a share of their own, and the number of shares that further keys have together.
    local MAX_SHARES, COMMON_SHARES = 1000, 64
    -- The time in ms for which a queue sorts its jobs after the last one with `fair` or `urgent`.
    local SHARES_LIFE = 30 * 86400000
    -- The score of urgent jobs, which is before all others.
    local URGENT = -1
    local MAX_FAIR = 100
    -- A member of `sorted` is the job in a wrapper with its number, because a sorted set would merge equal jobs.
    -- Members with equal scores are in the order of their numbers.
    local SORTED_START, SORTED_DIGITS = WRAPPER .. '"claim":"sorted:', 16
    local SORTED_END = '","job":'
    local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }

    -- The changes of depth by the most frequent texts between two strings of a JSON document.
    local DEPTH_CHANGES = {
        [':'] = 0, [','] = 0, [': '] = 0, [', '] = 0, ['{'] = 1, [':{'] = 1, [': {'] = 1, ['},'] = -1, ['}, '] = -1,
        [':['] = 1, [': ['] = 1, ['],'] = -1, ['], '] = -1,
    }

    -- Returns the change of depth by the text between two strings.
    local function depth_change(between)
        local change, at = 0, 1
        while true do
            at = find(between, '[%[%]{}]', at)
            if not at then
                return change
            end
            local code = byte(between, at)
            change = change + ((code == 123 or code == 91) and 1 or -1)
            at = at + 1
        end
    end

    -- Returns the index of the quote that ends the string whose first quote is at `open`, nil if it has no end, and
    -- how many steps are left.
    local function string_end(text, open, steps)
        local close = find(text, '"', open + 1, true)
        while close and steps > 0 do
            local before = close - 1
            while before > open and steps > 0 and byte(text, before) == 92 do
                before, steps = before - 1, steps - 1
            end
            if (close - before) % 2 == 1 then
                return close, steps
            end
            close, steps = find(text, '"', close + 1, true), steps - 1
        end
        return nil, steps
    end

    -- Returns the index of the value of a member whose name is at an index, nil if it is not the name of a member: in a
    -- document of JSON, the quote before it can only begin a name, or be escaped.
    local function value_after(body, name, at)
        return byte(body, at - 1) ~= 92 and match(body, '^[ \t\r\n]*:[ \t\r\n]*()', at + #name) or nil
    end

    -- True if nothing can be nested before a name at an index, or after it, as is usual: then it is at the top.
    local function is_at_top(body, at)
        local object, array = find(body, '{', 1, true), find(body, '[', 1, true)
        if object and object < at and not (array and array < at) then
            object = find(body, '{', object + 1, true)
            if not object or object > at then
                return true
            end
        end
        local stop = find(body, '}', at, true)
        return stop ~= nil and not find(body, ']', at, true) and not find(body, '[^ \t\r\n]', stop + 1)
    end

    -- Returns the index of the value of a member of the job's own object, nil if there is none, and how many steps
    -- are left. `name` is in its quotes. Sidekiq's jobs, and those of ActiveJob in them, have the job as their first
    -- argument.
    local function member_value(body, name, steps)
        local wanted = find(body, name, 1, true)
        local value = wanted and value_after(body, name, wanted)
        if not wanted or value and is_at_top(body, wanted) then
            return value, steps
        end
        local at, depth, own = 1, 0, 1
        while wanted and steps > 0 do
            local open = find(body, '"', at, true)
            local between = sub(body, at, open - 1)
            local change = DEPTH_CHANGES[between]
            steps = steps - 1
            if not change then
                steps = steps - math.floor(#between / 20)
                change = steps > 0 and depth_change(between) or 0
                if change == 2 and depth == own and (sub(body, at - 6, at - 1) == '"args"'
                    or sub(body, at - 11, at - 1) == '"arguments"') then
                    own = depth + 2
                end
            end
            depth = depth + change
            value = wanted == open and depth == own and value_after(body, name, open)
            if value then
                return value, steps
            end
            local stop
            if change == 1 and sub(body, at - 8, at - 1) == '"tokens"' then
                -- No token has a bracket.
                stop = find(body, ']', open, true)
                at = stop
            else
                stop, steps = string_end(body, open, steps)
                at = stop and stop + 1
            end
            if not stop then
                return nil, steps
            elseif wanted < at then
                wanted = find(body, name, at, true)
            end
        end
        return nil, steps
    end

    -- Returns the text of a string within a body, '' for another value and for a text that `fair` can't have.
    local function fair_text(body, at)
        local close = byte(body, at) == 34 and find(body, '"', at + 1, true)
        -- An escape is at most six times as long as its character.
        if not close or close - at > 6 * MAX_FAIR then
            return ''
        end
        local text = sub(body, at + 1, close - 1)
        if find(text, '\\', 1, true) then
            text = sub(body, at, at + 6 * MAX_FAIR + 1)
            close = string_end(text, 1, #text)
            local is_json, decoded = pcall(cjson.decode, '[' .. sub(text, 1, close or 0) .. ']')
            text = is_json and decoded[1] or ''
        end
        local has_controls = find(text, '[%z\1-\31\127]') or find(text, '\194[\128-\159]')
        return #text <= MAX_FAIR and not has_controls and text or ''
    end

    -- Returns the key of a job, '' without one, true if it is urgent, and how many steps are left. A name that is
    -- written with escapes is not found.
    local function share_of(body, steps)
        local key, value = '', nil
        if find(body, '"fair"', 1, true) then
            value, steps = member_value(body, '"fair"', steps)
            key = value and fair_text(body, value) or ''
        end
        if find(body, '"urgent"', 1, true) then
            value, steps = member_value(body, '"urgent"', steps)
            return key, value ~= nil and sub(body, value, value + 3) == 'true', steps
        end
        return key, false, steps
    end

    -- Returns a number of bytes or jobs that another client may have written, 0 for any other value.
    local function whole(value)
        local number = tonumber(value) or 0
        return number >= 0 and number < 9e15 and math.floor(number) or 0
    end

    -- Returns the virtual time: the score of the last claimed job, or of the next one if the other is unknown.
    local function virtual_time(sorted, time)
        local known = tonumber(time)
        if known and known >= 0 and known < 9e15 then
            return math.floor(known)
        end
        return whole(redis.call('ZRANGEBYSCORE', sorted, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
    end

    -- Returns the ends of the last jobs by field of `shares`, for the fields of some keys, the field that each new
    -- key uses, if it is another one, and the fields to remove. A key whose last job is over needs none.
    local function read_shares(shares, fields, time)
        local ends, used, removed, new = {}, {}, {}, {}
        for i = 1, #fields, CHUNK do
            local values = redis.call('HMGET', shares, unpack(fields, i, math.min(i + CHUNK - 1, #fields)))
            for j, value in ipairs(values) do
                local field = fields[i + j - 1]
                ends[field] = whole(value)
                if not value then
                    new[#new + 1] = field
                end
            end
        end
        local number = redis.call('HLEN', shares)
        if number > 2 * MAX_SHARES then
            -- No script has written so many.
            redis.call('UNLINK', shares)
            number = 0
        end
        -- Two fields are not keys.
        local space = MAX_SHARES + 2 - number
        if #new <= space then
            return ends, used, removed
        end
        local all, known = redis.call('HGETALL', shares), {}
        for i = 1, #all, 2 do
            known[all[i]] = whole(all[i + 1])
            if sub(all[i], 1, 3) == 'by:' and not ends[all[i]] and known[all[i]] <= time then
                removed[#removed + 1] = all[i]
            end
        end
        space = space + #removed
        for _, field in ipairs(new) do
            space = space - 1
            if space < 0 then
                local line = 'common:' .. tonumber(sub(redis.sha1hex(field), 1, 4), 16) % COMMON_SHARES
                used[field], ends[field] = line, nil
                ends[line] = ends[line] or known[line] or 0
            end
        end
        return ends, used, removed
    end

    -- Returns the producer's bytes of a job that has not waited before: a plain or requeued job. A reclaimed or
    -- released one was already sorted.
    local function fresh_job(body)
        if sub(body, 1, #WRAPPER) ~= WRAPPER then
            return body
        elseif find(body, '"requeued":', 1, true) then
            local _, original, members = unwrap(body)
            return members.requeued and not members.reclaims and original or nil
        end
        return nil
    end

    -- Moves jobs from the head of the list to `sorted`. All keys were checked.
    --   head     the end of the list that is its head, LEFT or RIGHT
    --   largest  the size of the largest job that was seen before, or nil
    -- Returns the size of the largest job.
    function sort_jobs(jobs, head, sorted, shares, largest)
        local bodies
        bodies, largest = read_portions(list_reader(jobs, head), SORT_JOBS, SORT_BYTES, largest)
        local fields, is_listed, field_of, urgent, steps, n = {}, {}, {}, {}, SORT_STEPS, 0
        for i, body in ipairs(bodies) do
            local job = fresh_job(body)
            if job then
                local key, is_urgent, left = share_of(job, steps)
                if left <= 0 and i > 1 then
                    break
                end
                steps, field_of[i], urgent[i] = left, 'by:' .. key, is_urgent
                if not is_urgent and not is_listed[field_of[i]] then
                    fields[#fields + 1], is_listed[field_of[i]] = field_of[i], true
                end
            end
            n = i
        end
        if n == 0 then
            return largest
        end

        local known = redis.call('HMGET', shares, 'number', 'time')
        local time = virtual_time(sorted, known[2])
        local ends, used, removed = read_shares(shares, fields, time)
        -- Not lower than the clock: a number that others have changed must not make two members equal.
        local number = math.max(whole(known[1]), now_us())
        -- Formatting a number is expensive, so only every tenth is formatted.
        local members, tens = {}, nil
        for i = 1, n do
            local score, field = time, field_of[i]
            if urgent[i] then
                score = URGENT
            elseif field then
                field = used[field] or field
                score = math.max(time, ends[field])
                ends[field] = score + #bodies[i]
            end
            number = number + 1
            local digit = number % 10
            if digit == 0 or not tens then
                tens = string.format('%s%0' .. SORTED_DIGITS - 1 .. '.0f', SORTED_START, (number - digit) / 10)
            end
            members[2 * i - 1], members[2 * i] = score, tens .. DIGITS[digit] .. SORTED_END .. bodies[i] .. '}'
        end
        local values = { 'number', number, 'time', time }
        for field, finish in pairs(ends) do
            values[#values + 1], values[#values + 2] = field, finish
        end
        call_in_chunks('ZADD', sorted, members)
        trim_head(jobs, head, n)
        call_in_chunks('HDEL', shares, removed)
        call_in_chunks('HSET', shares, values)
        return largest
    end

    -- Returns a function that reads the jobs of `sorted` from one index to another, in their order, and one that removes
    -- the first n of them, because they are claimed: the virtual time is the score of the last one.
    function sorted_jobs(sorted, shares)
        local members = {}
        return function(start, stop)
            local found = redis.call('ZRANGE', sorted, start, stop)
            for i, member in ipairs(found) do
                members[start + i], found[i] = member, unsorted(member)
            end
            return found
        end, function(n)
            local score = redis.call('ZSCORE', sorted, members[n])
            redis.call('ZREMRANGEBYRANK', sorted, 0, n - 1)
            redis.call('HSET', shares, 'time', math.max(whole(redis.call('HGET', shares, 'time')), whole(score)))
        end
    end

    -- Has the queue sort its jobs for some time from now on, if a worker has met a job with `fair` or `urgent`; else
    -- only ensures that it stops some time.
    function keep_shares(shares, is_met)
        if redis.call('PTTL', shares) < 0 or is_met then
            redis.call('HSETNX', shares, 'number', 0)
            redis.call('PEXPIRE', shares, SHARES_LIFE)
        end
    end
end
