-- Campaigns: their counters, the entry of the results about a finished one, the commands of operators about jobs, and the guards that pause
-- a campaign.
-- Needs: time values results

-- Beyond this number, the campaigns that were settled longest ago lose their counters.
local MAX_CAMPAIGNS = 10000
-- A campaign's counters are kept for this time after their last change, ms.
local CAMPAIGN_LIFE = 90 * 86400000
-- The number of reasons in the entry about a finished campaign.
local MAX_FINISHED_REASONS = 20
-- The limit for a script that does not know how many results are kept: it removes none.
local UNLIMITED_RESULTS = '9007199254740991'
local OUTCOMES = { 'delivered', 'invalid_token', 'expired', 'dropped', 'suppressed', 'dead', 'cancelled' }

-- The maximum length of the JSON of a campaign's times, in bytes; longer JSON is dropped. All buckets together have at most 1,100 bytes.
local MAX_LATENCY = 4096

-- Returns the most frequent reasons of a counter, such as those of `dead:BadPayload`, as a JSON object.
local function reasons_json(counters, counter)
    local found = {}
    for field, amount in pairs(counters) do
        local reason = string.match(field, '^' .. counter .. ':(.+)')
        if reason and tonumber(amount) then
            found[#found + 1] = { reason = reason, amount = bounded(amount) }
        end
    end
    table.sort(found, function(a, b)
        return a.amount > b.amount or a.amount == b.amount and a.reason < b.reason
    end)
    local members = {}
    for i = 1, math.min(#found, MAX_FINISHED_REASONS) do
        members[i] = string.format('%s:%.0f', cjson.encode(found[i].reason), found[i].amount)
    end
    return '{' .. table.concat(members, ',') .. '}'
end

-- Returns the number of a campaign's notifications that have ended. `facts` are its counters by outcome.
local function ended_of(facts)
    local ended = 0
    for _, outcome in ipairs(OUTCOMES) do
        ended = ended + bounded(facts[outcome])
    end
    return ended
end

-- Reads the JSON of a campaign's times: the upper bound of each bucket -> the number of times in it.
local function latency_counts(text)
    local counts = {}
    for bound, amount in pairs(#(text or '') <= MAX_LATENCY and decoded_object(text) or {}) do
        amount = type(bound) == 'string' and bounded(amount) or 0
        if amount > 0 then
            counts[bound] = amount
        end
    end
    return counts
end

-- Returns JSON members with the percentiles of a campaign's times, which are assumed to be evenly distributed within their buckets; ''
-- without times. LatencyCounts in Swift has the same buckets and computes the same numbers.
local function percentiles_json(text)
    local counts, buckets, all = latency_counts(text), {}, 0
    for i = 0, 43 do
        local bound = i < 2 and i + 1 or (i % 2 == 0 and 3 or 4) * 2 ^ (math.floor(i / 2) - 1)
        buckets[i + 1] = { bound = bound, amount = counts[string.format('%.0f', bound)] or 0 }
        all = all + buckets[i + 1].amount
    end
    local members = {}
    for _, percent in ipairs(all > 0 and { 50, 99 } or {}) do
        local rank, low, before = percent / 100 * all, 0, 0
        for _, bucket in ipairs(buckets) do
            local bound, amount = bucket.bound, bucket.amount
            if amount > 0 and before + amount >= rank then
                local time = low + (bound - low) * math.min(1, (rank - before) / amount)
                members[#members + 1] = string.format(',"latency_p%d_ms":%.0f', percent, math.floor(time + 0.5))
                break
            end
            low, before = bound, before + amount
        end
    end
    return table.concat(members)
end

-- Adds an entry to the results once all notifications of a campaign have ended, and records the end. `facts` are its `started_at`, `total`,
-- `open`, `finished_at`, `reported`, and its counters by outcome. Call write_results afterwards.
--
-- A campaign has an end only if its total no longer grows. As long as it can grow, the producer sets `open`.
local function finish_campaign(key, now, name, facts, results, limit)
    local total = bounded(facts.total)
    if total <= 0 or facts.open or facts.finished_at then
        return
    end
    local ended = ended_of(facts)
    -- The end is reported once, although a campaign ends again if its jobs are requeued.
    if ended < total or type(redis.pcall('HSET', key, 'finished_at', now)) ~= 'number' or facts.reported then
        return
    end
    local outcomes = {}
    for i, outcome in ipairs(OUTCOMES) do
        outcomes[i] = string.format('"%s":%.0f', outcome, bounded(facts[outcome]))
    end
    local counters, all = {}, redis.pcall('HGETALL', key)
    for i = 1, #all, 2 do
        counters[all[i]] = all[i + 1]
    end
    local started = facts.started_at and bounded(facts.started_at) or now
    -- 0 after the clock was set back.
    local duration = math.max(0, now - started)
    local rate = duration > 0 and string.format(',"ended_per_second":%.1f', ended * 1000 / duration) or ''
    local report = string.format('{"total":%.0f,"ended":%.0f,"outcomes":{%s},"dead_reasons":%s,"retry_reasons":%s,'
        .. '"invalid_share":%.4f,"started_at":%.0f,"finished_at":%.0f,"duration_ms":%.0f%s%s}',
        total, ended, table.concat(outcomes, ','), reasons_json(counters, 'dead'), reasons_json(counters, 'retried'),
        bounded(facts.invalid_token) / ended, started, now, duration, rate, percentiles_json(counters.latency))
    add_results(results, tonumber(limit) == 0 and UNLIMITED_RESULTS or limit,
        string.format('[{"event":"campaign_finished","campaign":%s,"report":%s,"notifications":[\n{}]}]',
            cjson.encode(name), report), 1)
end

-- Returns the facts about a campaign for finish_campaign and apply_guard; `wrong` is true if its key is of another type.
local function campaign_facts(key)
    local names = { 'started_at', 'total', 'open', 'finished_at', 'reported', 'moved', 'guard', 'latency', unpack(OUTCOMES) }
    local values = redis.pcall('HMGET', key, unpack(names))
    local facts = { wrong = values.err ~= nil }
    for i, name in ipairs(names) do
        facts[name] = values[i]
    end
    return facts
end

-- The members of a command, and their types. Those not in FOR_PEOPLE decide about the jobs.
local COMMAND_MEMBERS = {
    state = 'string', discard = 'boolean', since = 'number', per_second = 'number', limited_at = 'number',
    at = 'number', by = 'string', reason = 'string',
}
local FOR_PEOPLE = { at = true, by = true, reason = true }

-- Returns a command without members of another type or value. If another client has written it in a form that can't be read, the command
-- pauses its jobs, unless it cancels them. JobCommands.Command in Swift must decide alike.
local function read_command(text)
    local command = {}
    if type(text) ~= 'string' or text == '' then
        return command
    end
    local members = decoded_object(text)
    local is_damaged = not string.find(text, '^%s*{') or not pcall(cjson.decode, text)
    for name, kind in pairs(COMMAND_MEMBERS) do
        local value = members[name]
        local is_good = type(value) == kind and (kind ~= 'number' or value == bounded(value))
            and (name ~= 'per_second' or value >= 1)
            and (name ~= 'state' or value == 'paused' or value == 'cancelled')
        if is_good then
            command[name] = value
        elseif value ~= nil and value ~= cjson.null and not FOR_PEOPLE[name] and value ~= 'running' then
            is_damaged = true
        end
    end
    if is_damaged and command.state ~= 'cancelled' then
        command.state = 'paused'
    end
    return command
end

-- Pauses a running campaign, as an operator's command does. If it is paused or cancelled already, returns false and that command's author.
local function pause_campaign(job_commands, name, by, reason)
    local field = 'campaign:' .. name
    local text = redis.pcall('HGET', job_commands, field)
    local command = read_command(text)
    if (text and type(text) ~= 'string') or command.state then
        return false, command.by
    end
    local now_in_us = now_us()
    local now = math.floor(now_in_us / 1000)
    command.state, command.since, command.at, command.by, command.reason = 'paused', now, now, by, reason
    redis.pcall('HSET', job_commands, field, cjson.encode(command), 'version', string.format('%.0f', now_in_us))
    redis.pcall('PEXPIRE', job_commands, 7 * 86400000)
    return true
end

-- True while a campaign is paused or cancelled.
local function is_stopped(job_commands, name)
    local text = redis.pcall('HGET', job_commands, 'campaign:' .. name)
    return type(text) == 'table' or read_command(text).state ~= nil
end

-- A guard is JSON. Its `rules` are an array of counters, each with the share in percent that stops the campaign. With fewer than `min`
-- notifications, the guard never stops it. `base` has the counters at the time from which the guard counts. While it has stopped the
-- campaign, it has `stopped_at` and a `reason`, but no `base`, so that notifications in flight do not count. A share is a percentage of the
-- notifications that ended; for `retried`, the retries are added to them. Suppressed notifications count only for `suppressed`, because
-- they were not sent.

-- Returns the counters that a guard compares.
local function guard_counters(key, rules, ended)
    local counters, names = { ended = ended }, { 'retried', 'suppressed' }
    for _, rule in ipairs(rules) do
        names[#names + 1] = rule[1]
    end
    local values = redis.pcall('HMGET', key, unpack(names))
    for i, name in ipairs(names) do
        counters[name] = bounded(values[i])
    end
    return counters
end

-- Returns the JSON of a guard that counts from now on.
local function counting_guard(key, guard, facts)
    guard.base = guard_counters(key, guard.rules, ended_of(facts))
    return cjson.encode(guard)
end

-- Returns the JSON of a guard that has stopped its campaign. Raises an error if another client has written a guard with a value that JSON
-- does not have, such as infinity.
local function stopped_guard(guard, now, reason)
    guard.base, guard.stopped_at, guard.reason = nil, now, reason
    return cjson.encode(guard)
end

-- Pauses a campaign if one of the shares of its guard is above its limit. Returns the reason, or nil. After the campaign was resumed, its
-- guard counts again, beginning with the `counts` of the first settlement. While an operator has paused the campaign, the guard waits, and
-- may stop it after the operator has resumed it.
local function apply_guard(key, now, name, facts, job_commands, counts)
    local guard = decoded_object(facts.guard)
    local minimum, base = tonumber(guard.min), guard.base
    local is_counting = type(base) == 'table'
    if type(guard.rules) ~= 'table' or not minimum
        or not is_counting and (not guard.stopped_at or is_stopped(job_commands, name)) then
        return nil
    end
    local counters = guard_counters(key, guard.rules, ended_of(facts))
    if not is_counting then
        base = { ended = counters.ended - ended_of(counts) }
        for counter, number in pairs(counters) do
            base[counter] = base[counter] or number - (counts[counter] or 0)
        end
        guard.base = base
        redis.pcall('HSET', key, 'guard', cjson.encode(guard))
    end
    local function since_base(counter)
        return counters[counter] - bounded(base[counter])
    end
    for _, rule in ipairs(guard.rules) do
        local counter, limit = rule[1], tonumber(rule[2])
        local number, all = since_base(counter), since_base('ended')
        if string.sub(counter, 1, 7) == 'retried' then
            all = all + since_base('retried')
        end
        if counter ~= 'suppressed' then
            all = all - since_base('suppressed')
        end
        if limit and all >= math.max(1, minimum) and number * 100 > limit * all then
            local reason = string.format('%s is %.1f%% of %.0f, above %.14g%%', counter, number * 100 / all, all, limit)
            local stopped = stopped_guard(guard, now, reason)
            local is_paused, by = pause_campaign(job_commands, name, 'guard', reason)
            if is_paused or by == 'guard' then
                redis.pcall('HSET', key, 'guard', stopped)
            end
            return is_paused and reason or nil
        end
    end
    return nil
end

-- Adds counts by field to a campaign's counters, which are kept for ninety days. Call write_results afterwards. With `job_commands` its
-- guard is applied; returns the reason if the guard has paused it. `times` is JSON with the numbers of delivered notifications by the upper
-- bound of their times.
local function add_to_campaign(campaigns, prefix, now, name, counts, results, limit, job_commands, times)
    local key = prefix .. name
    for field, amount in pairs(counts) do
        redis.pcall('HINCRBY', key, field, amount)
    end
    local facts = campaign_facts(key)
    local fields = { 'updated_at', now }
    if times then
        local sums = latency_counts(facts.latency)
        for bound, amount in pairs(decoded_object(times)) do
            sums[bound] = bounded((sums[bound] or 0) + bounded(amount))
        end
        fields[3], fields[4] = 'latency', cjson.encode(sums)
    end
    if facts.started_at or facts.wrong then
        redis.pcall('HSET', key, unpack(fields))
    else
        facts.started_at = now
        redis.pcall('HSET', key, 'started_at', now, unpack(fields))
        local number = redis.pcall('ZCARD', campaigns)
        for _, old in ipairs(type(number) == 'number' and number >= MAX_CAMPAIGNS
            and redis.pcall('ZRANGE', campaigns, 0, 9) or {}) do
            redis.pcall('UNLINK', prefix .. old)
            redis.pcall('ZREM', campaigns, old)
        end
    end
    local ended = ended_of(counts)
    if ended > 0 then
        -- The periods of older campaigns are longer, so that their number is bounded: about 500 in 90 days. The absolute value bounds it
        -- even if the clock was set back to before the start.
        local age = math.abs(now - bounded(facts.started_at))
        local length = age < 7200000 and 60 or age < 86400000 and 600 or age < 1209600000 and 7200 or 86400
        local start = math.floor(now / 1000 / length) * length
        redis.pcall('HINCRBY', key, string.format('at:%.0f/%d', start, length), ended)
    end
    redis.pcall('PEXPIRE', key, CAMPAIGN_LIFE)
    redis.pcall('ZADD', campaigns, now, name)
    finish_campaign(key, now, name, facts, results, limit)
    if job_commands and facts.guard then
        -- A guard that another client has written in another form is ignored.
        local is_applied, reason = pcall(apply_guard, key, now, name, facts, job_commands, counts)
        return is_applied and reason or nil
    end
    return nil
end
