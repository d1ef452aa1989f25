-- Jobs in the order of shares.
--
-- Once a queue has jobs with `fair` or `urgent`, its jobs wait in `sorted`. Each claim moves some jobs there: listed jobs, and due jobs
-- that have not failed. Their score is a virtual time in bytes. A job begins where the previous job of its key ends, or at the current
-- virtual time if that is later. So if two keys have waiting jobs, each gets half of the bytes (start-time fair queueing). All jobs without
-- a key are like jobs of one key. Failed jobs are claimed where they wait, and also move the end of their key.
--
-- `shares` has the fields `number` (of the last sorted job), `time` (up to which jobs have been claimed) and, for each key, `by:<key>` (the
-- end of its last job). When there are too many keys, further ones share fields `common:<n>`. Other clients may write to `shares`, so
-- nothing in it is trusted: it decides only the order.

local sort_jobs, sorted_jobs, charge_shares, keep_shares, as_waited

-- Defines these functions, only when they are needed: few queues sort their jobs, and each definition takes time in each call of a script.
local function define_shares()
    -- Needs: base lists wrapper members
    local find, sub = string.find, string.sub
    -- The maximum number and size of the jobs that a claim sorts. It sorts more than it claims.
    local SORT_JOBS, SORT_BYTES = 1000, 524288
    -- The maximum number of steps for finding members of jobs in a claim.
    local SORT_STEPS = 5000
    -- The maximum number of keys with a share of their own, and the number of shares that further keys have together.
    local MAX_SHARES, COMMON_SHARES = 1000, 64
    -- A queue sorts its jobs for this time in ms after the last one with `fair` or `urgent`.
    local SHARES_LIFE = 30 * 86400000
    -- The score of urgent jobs, which is before all others.
    local URGENT = -1
    local MAX_FAIR = 100
    -- A member of `sorted` is the job in a wrapper with its number, because a sorted set would merge equal jobs.
    -- Members with equal scores are in the order of their numbers.
    local SORTED_START, SORTED_DIGITS = WRAPPER .. '"claim":"sorted:', 16
    local SORTED_END = '","job":'
    local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }

    -- Returns the key of a job, '' without one, true if it is urgent, and how many steps are left.
    local function share_of(body, steps)
        local fair, urgent
        fair, steps = member_value(body, 'fair', steps)
        urgent, steps = member_value(body, 'urgent', steps)
        local is_urgent = urgent ~= nil and sub(body, urgent, urgent + 3) == 'true'
        return fair and text_at(body, fair, MAX_FAIR) or '', is_urgent, steps
    end

    -- Returns a number of bytes or jobs that another client may have written, 0 for any other value.
    local function whole(value)
        local number = tonumber(value) or 0
        return number >= 0 and number < 9e15 and math.floor(number) or 0
    end

    -- Returns the virtual time: the score of the last claimed job or, if that is unknown, of the next one.
    local function virtual_time(sorted, time)
        local known = tonumber(time)
        if known and known >= 0 and known < 9e15 then
            return math.floor(known)
        end
        return whole(redis.call('ZRANGEBYSCORE', sorted, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
    end

    -- Returns three tables for some keys' fields of `shares`: the ends of the last jobs by field; the common field of each new key, if
    -- there are too many keys; and the fields to remove. A key needs no field once the virtual time has passed the end of its last job.
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
            -- No script writes so many fields.
            redis.call('UNLINK', shares)
            number = 0
        end
        -- The fields `number` and `time` are not keys.
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
    -- released one was already sorted. Only the head's text is read: decoding takes ten times as long.
    local function fresh_job(body)
        if sub(body, 1, #WRAPPER) ~= WRAPPER then
            return body
        end
        local _, stop = find(body, '"job":', 1, true)
        local head = sub(body, 1, stop or 0)
        local is_fresh = find(head, '"requeued":', 1, true) and not find(head, '"reclaims":', 1, true)
        return is_fresh and sub(body, stop + 1, -2) or nil
    end

    -- Returns a job that a lane gives back, in a wrapper by which the next claim knows that the job has waited.
    function as_waited(body)
        if sub(body, 1, #WRAPPER) ~= WRAPPER then
            return WRAPPER .. '"job":' .. body .. '}'
        elseif fresh_job(body) and unwrap(body) then
            return WRAPPER .. '"reclaims":0,' .. sub(body, #WRAPPER + 1)
        end
        return body
    end

    -- Returns the producer's bytes of a job that was postponed.
    local function postponed_job(body)
        if sub(body, 1, #WRAPPER) ~= WRAPPER then
            return body
        end
        local _, stop = find(body, '"job":', 1, true)
        return sub(body, (stop or 0) + 1, -2)
    end

    -- Moves jobs to `sorted`: due ones of `retry`, and those at the head of the list. All keys were checked.
    --   head     the end of the list that is its head, LEFT or RIGHT
    --   due      the number of due jobs
    --   largest  the size of the largest job that was seen before, or nil
    -- Returns the size of the largest job.
    function sort_jobs(jobs, head, retry, due, sorted, shares, largest)
        local bodies, listed, space = {}, nil, SORT_BYTES
        if due > 0 then
            bodies, largest = read_portions(function(start, stop)
                return redis.call('ZRANGE', retry, start, stop)
            end, math.min(due, SORT_JOBS / 2), SORT_BYTES / 2, largest)
            due = #bodies
            for _, body in ipairs(bodies) do
                space = space - #body
            end
        end
        if space > 0 then
            listed, largest = read_portions(list_reader(jobs, head), SORT_JOBS - due, space, largest)
            for _, body in ipairs(listed) do
                bodies[#bodies + 1] = body
            end
        end
        local fields, is_listed, field_of, urgent, steps, n = {}, {}, {}, {}, SORT_STEPS, 0
        for i, body in ipairs(bodies) do
            local job = i <= due and postponed_job(body) or i > due and fresh_job(body)
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
        -- At least the time of the clock: even if another client has lowered the number, two members must differ.
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
        if due > 0 then
            redis.call('ZREMRANGEBYRANK', retry, 0, math.min(n, due) - 1)
        end
        if n > due then
            trim_head(jobs, head, n - due)
        end
        call_in_chunks('HDEL', shares, removed)
        call_in_chunks('HSET', shares, values)
        return largest
    end

    -- Returns a function that reads the jobs of `sorted` from one index to another, in their order, and a function that removes the first n
    -- of them when they are claimed, and sets the virtual time to the score of the last one.
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

    -- Moves the end of each key whose failed jobs are claimed, so that these jobs count for its share.
    function charge_shares(sorted, shares, bodies)
        local fields, field_of, steps = {}, {}, SORT_STEPS
        for i, body in ipairs(bodies) do
            local key, is_urgent, left = share_of(postponed_job(body), steps)
            if left <= 0 then
                break
            end
            steps, field_of[i] = left, not is_urgent and 'by:' .. key or nil
            fields[#fields + 1] = field_of[i]
        end
        local time = virtual_time(sorted, redis.call('HGET', shares, 'time'))
        local ends, used, removed = read_shares(shares, fields, time)
        local values = {}
        for i, body in ipairs(bodies) do
            local field = field_of[i]
            if field then
                field = used[field] or field
                ends[field] = math.max(time, ends[field]) + #body
                values[#values + 1], values[#values + 2] = field, ends[field]
            end
        end
        call_in_chunks('HDEL', shares, removed)
        call_in_chunks('HSET', shares, values)
    end

    -- Makes the queue sort its jobs for some time from now on, if a worker has met a job with `fair` or `urgent`. Otherwise it only ensures
    -- that the sorting ends at some time.
    function keep_shares(shares, is_met)
        if redis.call('PTTL', shares) < 0 or is_met then
            redis.call('HSETNX', shares, 'number', 0)
            redis.call('PEXPIRE', shares, SHARES_LIFE)
        end
    end
end
