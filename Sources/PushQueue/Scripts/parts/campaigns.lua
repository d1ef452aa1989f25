-- The counters of campaigns, and the entry of the results about a campaign that has finished.

-- Beyond this number, the campaigns that were settled longest ago lose their counters.
local MAX_CAMPAIGNS = 10000
-- The number of reasons in the entry about a finished campaign.
local MAX_FINISHED_REASONS = 20
-- The limit for a script that does not know how many results are kept: it removes none.
local UNLIMITED_RESULTS = '9007199254740991'
local OUTCOMES = { 'delivered', 'invalid_token', 'expired', 'dropped', 'suppressed', 'dead', 'cancelled' }

-- Returns the most frequent reasons of a counter, such as those of `dead:BadPayload`, as a JSON object.
local function reasons_json(counters, counter)
    local found = {}
    for field, amount in pairs(counters) do
        local reason = string.match(field, '^' .. counter .. ':(.+)')
        if reason and tonumber(amount) then
            found[#found + 1] = { reason = reason, amount = tonumber(amount) }
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

-- Adds an entry to the results once all notifications of a campaign have ended, and records that. `facts` are its
-- `started_at`, `total`, `open`, `finished_at`, and its counters by outcome. Call write_results afterwards.
--
-- Only a total that will not grow says when a campaign has finished. A producer that does not know it yet sets `open`.
local function finish_campaign(key, now, name, facts, results, limit)
    local total, ended, outcomes = tonumber(facts.total or nil), 0, {}
    if not total or total <= 0 or facts.open or facts.finished_at then
        return
    end
    for i, outcome in ipairs(OUTCOMES) do
        local number = tonumber(facts[outcome] or 0) or 0
        ended, outcomes[i] = ended + number, string.format('"%s":%.0f', outcome, number)
    end
    if ended < total or type(redis.pcall('HSET', key, 'finished_at', now)) ~= 'number' then
        return
    end
    local counters, all = {}, redis.pcall('HGETALL', key)
    for i = 1, #all, 2 do
        counters[all[i]] = all[i + 1]
    end
    local started = tonumber(facts.started_at or nil) or now
    local report = string.format('{"total":%.0f,"ended":%.0f,"outcomes":{%s},"dead_reasons":%s,"retry_reasons":%s,'
        .. '"invalid_share":%.4f,"started_at":%.0f,"finished_at":%.0f,"duration_ms":%.0f}',
        total, ended, table.concat(outcomes, ','), reasons_json(counters, 'dead'), reasons_json(counters, 'retried'),
        (tonumber(facts.invalid_token or 0) or 0) / ended, started, now, now - started)
    add_results(results, tonumber(limit) == 0 and UNLIMITED_RESULTS or limit,
        string.format('[{"event":"campaign_finished","campaign":%s,"report":%s,"notifications":[\n{}]}]',
            cjson.encode(name), report), 1)
end

-- Returns what finish_campaign needs to know of a campaign; `wrong` is true if its key is of another type.
local function campaign_facts(key)
    local names = { 'started_at', 'total', 'open', 'finished_at', unpack(OUTCOMES) }
    local values = redis.pcall('HMGET', key, unpack(names))
    local facts = { wrong = values.err ~= nil }
    for i, name in ipairs(names) do
        facts[name] = values[i]
    end
    return facts
end

-- Adds counts by field to a campaign's counters, which are kept for ninety days. Call write_results afterwards.
local function add_to_campaign(campaigns, prefix, now, name, counts, results, limit)
    local key = prefix .. name
    for field, amount in pairs(counts) do
        redis.pcall('HINCRBY', key, field, amount)
    end
    local facts = campaign_facts(key)
    if facts.started_at or facts.wrong then
        redis.pcall('HSET', key, 'updated_at', now)
    else
        facts.started_at = now
        redis.pcall('HSET', key, 'started_at', now, 'updated_at', now)
        local number = redis.pcall('ZCARD', campaigns)
        for _, old in ipairs(type(number) == 'number' and number >= MAX_CAMPAIGNS
            and redis.pcall('ZRANGE', campaigns, 0, 9) or {}) do
            redis.pcall('UNLINK', prefix .. old)
            redis.pcall('ZREM', campaigns, old)
        end
    end
    redis.pcall('PEXPIRE', key, 90 * 86400000)
    redis.pcall('ZADD', campaigns, now, name)
    finish_campaign(key, now, name, facts, results, limit)
end
