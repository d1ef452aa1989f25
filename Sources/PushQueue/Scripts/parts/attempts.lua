-- The attempts that failures spend.
--
-- A failure spends an attempt only if it is the notification's own fault: if other notifications of its group were delivered since its last
-- failure. So the wrapper has the deliveries of the group at that failure (`seen`), and the time of the first failure (`first`). The group
-- is the job's campaign, whose counter is exact. Without a campaign it is the app with the push type, whose deliveries each lane adds about
-- once per second. Counters only grow, unless they expire or are evicted.
-- Needs: values wrapper

-- A group with fewer notifications is judged by the deliveries of its app.
local SMALLEST_GROUP = 8
-- A failure of the server spends no attempt for this time after the first failure, ms.
local SERVER_FREE = 3600000
-- Without other deliveries, no failure spends an attempt for this time after the first failure, ms.
local ALL_FREE = 86400000
-- The maximum number of fields of the counters of apps and push types, and how long they are kept, ms.
local MAX_DELIVERY_FIELDS, DELIVERIES_LIFE = 1000, 2 * 86400000

-- Returns the deliveries and the failed notifications of a group, and the deliveries of its app. `unwritten` are the counts of the campaign
-- that this call has not written yet. A counter that is not a number counts as 0.
local function attempt_counts(campaign_key, unwritten, deliveries, group, app)
    local function read(key, fields)
        local values, numbers = redis.pcall('HMGET', key, unpack(fields)), {}
        for i = 1, #fields do
            numbers[i] = bounded(values[i])
        end
        return unpack(numbers)
    end
    if campaign_key then
        local delivered, failed, total = read(campaign_key, { 'delivered', 'failed', 'total' })
        delivered = delivered + (unwritten and unwritten.delivered or 0)
        failed = failed + (unwritten and unwritten.failed or 0)
        return { group = delivered, app = (read(deliveries, { ':' .. app })), size = math.max(total, delivered + failed) }
    end
    local delivered, failed, of_app = read(deliveries, { group, 'failed:' .. group, ':' .. app })
    return { group = delivered, app = of_app, size = delivered + failed }
end

-- True if a counter has grown since its value was `before`. A counter that is smaller was deleted and counts again.
local function has_grown(count, before)
    return count > before or count < before and count > 0
end

-- Decides if a failure of a claimed job spends an attempt. Returns the number of the next attempt, true if there is none, true if this is
-- the first failure, and the facts for the next failure.
--   rule    `<never, always, own or server> <maximum attempts> <1 if the notification expires>`
--   counts  see attempt_counts
local function judge_failure(body, rule, now, counts)
    local kind, maximum, expires = string.match(rule, '^(%l+) (%d+) (%d)$')
    local _, _, members = unwrap(body)
    local last = type(members.error) == 'table' and members.error or {}
    local first, seen = is_time(last.first) and last.first or nil, seen_deliveries(last)
    local spends = kind == 'always'
    if first and seen and (kind == 'own' or kind == 'server') then
        local others
        if counts.size < SMALLEST_GROUP then
            others = has_grown(counts.app, seen.app)
        else
            others = has_grown(counts.group, seen.group)
        end
        local age = now - first
        spends = others and (kind == 'own' or age >= SERVER_FREE) or expires == '0' and age >= ALL_FREE
    end
    local attempt = (members.attempt or 1) + (spends and 1 or 0)
    local is_last = spends and kind ~= 'always' and attempt > tonumber(maximum)
    return attempt, is_last, not first, { first = first or now, group = counts.group, app = counts.app }
end

-- Returns the head of a wrapper that a worker wrote, with the number of the next attempt and the facts for the next failure.
local function failed_head(head, attempt, facts)
    local start = string.match(head, '^{"apns_worker":1,"attempt":%d+()')
    local _, stop = string.find(head, ',"error":{', 1, true)
    return string.format('{"apns_worker":1,"attempt":%d%s"first":%.0f,"seen":[%.0f,%.0f],', attempt,
        string.sub(head, start, stop), facts.first, facts.group, facts.app) .. string.sub(head, stop + 1)
end

-- Adds to the counters of apps and push types. `sums` holds field, amount, field, amount, ...
local function add_to_deliveries(deliveries, sums)
    local fields = redis.pcall('HLEN', deliveries)
    if #sums == 0 or type(fields) ~= 'number' then
        return
    end
    for i = 1, #sums, 2 do
        if fields < MAX_DELIVERY_FIELDS or redis.call('HEXISTS', deliveries, sums[i]) == 1 then
            if redis.pcall('HINCRBY', deliveries, sums[i], sums[i + 1]) == tonumber(sums[i + 1]) then
                fields = fields + 1
            end
        end
    end
    redis.pcall('PEXPIRE', deliveries, DELIVERIES_LIFE)
end
