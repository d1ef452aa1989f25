-- Wrapped jobs.
--
-- A retry, a scheduled job and a piece of a split job are the producer's bytes in a wrapper:
-- {"apns_worker":1,<members>,"job":<the producer's bytes>}. Any producer can write one, so nothing in it is trusted: a head
-- with a member that the worker would not write makes the whole body a plain job.

local WRAPPER = '{"apns_worker":1,'
-- Bytes; the worker writes shorter heads.
local MAX_HEAD = 4194304

-- True for nil, and for an integer from `least` up that the worker could have written.
local function is_counter(value, least)
    return value == nil or (type(value) == 'number' and value >= least and value < 2 ^ 31 and value % 1 == 0)
end

-- True for a time in ms from 1970 to 9999.
local function is_time(value)
    return type(value) == 'number' and value >= 0 and value < 253402300800000 and value % 1 == 0
end

local is_utf8
do
    -- The forms of a character of several bytes (RFC 3629, section 4).
    local UTF8_FORMS = {
        '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
        '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
        '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
    }

    function is_utf8(text)
        for _, form in ipairs(UTF8_FORMS) do
            if not string.find(text, '[\128-\255]') then
                return true
            end
            text = string.gsub(text, form, ' ')
        end
        return not string.find(text, '[\128-\255]')
    end
end

-- True for nil, and for a string of UTF-8.
local function is_text(value)
    return value == nil or (type(value) == 'string' and is_utf8(value))
end

-- True for nil, and for a JSON array of at least one string.
local function is_token_list(value)
    if value == nil then
        return true
    end
    if type(value) ~= 'table' or #value == 0 then
        return false
    end
    local members = 0
    for _, token in pairs(value) do
        if type(token) ~= 'string' or not is_utf8(token) then
            return false
        end
        members = members + 1
    end
    return members == #value
end

-- True if there is white space between the members of a head, which the worker does not write.
local function has_space(head)
    if not string.find(head, '[ \t\r\n]') then
        return false
    end
    for _, nested in ipairs({ '\\.', '"[^"]*"', '%b{}', '%b[]' }) do
        head = string.gsub(head, nested, '')
    end
    return string.find(head, '[ \t\r\n]') ~= nil
end

-- Splits a wrapped job into its head, which ends with `"job":`, the producer's bytes, and the members of the head. Returns nil,
-- the whole body and no members for a plain job. The first `"job":` is the wrapper's: in a string its quotes would be escaped,
-- and within an object the head would not be JSON.
local function unwrap(body)
    if string.sub(body, 1, #WRAPPER) == WRAPPER and string.sub(body, -1) == '}' then
        local _, stop = string.find(body, '"job":', 1, true)
        if stop and stop <= MAX_HEAD then
            local head = string.sub(body, 1, stop)
            local is_json, members = pcall(cjson.decode, head .. 'null}')
            -- A reclaim replaces the counter in the text, so the head must have no second counter, not even within another member.
            local _, counters = string.gsub(head, '"reclaims":', '')
            if is_json and not has_space(head) and counters == (members.reclaims and 1 or 0) and is_counter(members.attempt, 1)
                and is_counter(members.reclaims, 0) and is_counter(members.requeues, 0)
                and (members.enqueued == nil or is_time(members.enqueued))
                and (members.requeued == nil or is_time(members.requeued))
                and (members.reserved == nil or members.reserved == true) and is_text(members.id)
                and is_text(members.origin) and is_text(members.refused) and is_token_list(members.tokens) then
                return head, string.sub(body, stop + 1, -2), members
            end
        end
    end
    return nil, body, {}
end

-- True for a job that has failed: its wrapper has an `error`, which a deferral leaves as it was. Such a job waits among the failed jobs,
-- whatever it waits for. The head is not decoded, because the result decides only where the job waits.
local function has_failed(body)
    local _, stop = string.find(body, '"job":', 1, true)
    return stop ~= nil and string.sub(body, 1, #WRAPPER) == WRAPPER
        and string.find(string.sub(body, 1, stop), ',"error":{', 1, true) ~= nil
end

-- Splits a member of `sorted`: {"apns_worker":1,"claim":"sorted:<number>","job":<the bytes of the list>}. Returns the bytes of the list,
-- which may be a wrapped job, and the number, which grows from job to job. A member that no worker wrote is a job itself, without a number.
local unsorted
do
    local START = WRAPPER .. '"claim":"sorted:'

    function unsorted(member)
        if string.sub(member, 1, #START) == START and string.sub(member, -1) == '}' then
            local number, first = string.match(member, '^(%d+)","job":()', #START + 1)
            if number then
                return string.sub(member, first, -2), tonumber(number)
            end
        end
        return member, nil
    end
end

-- Returns the members of a dead letter that restore the wrapper when the job is requeued, each with a leading comma, and the
-- number of notifications: a wrapper may name only some of the job's tokens, because the others have ended.
local function carried(members)
    local text, notifications = '', 1
    for _, name in ipairs({ 'id', 'origin' }) do
        if members[name] then
            text = text .. ',"' .. name .. '":' .. cjson.encode(members[name])
        end
    end
    for _, name in ipairs({ 'enqueued', 'requeues', 'requeued' }) do
        if members[name] then
            text = text .. string.format(',"%s":%.0f', name, members[name])
        end
    end
    if members.tokens then
        text, notifications = text .. ',"tokens":' .. cjson.encode(members.tokens), #members.tokens
    end
    return text, notifications
end

-- Returns the digests of the configurations that have refused a job, including a lane's own; nil if all of `others` have refused it,
-- because the lane's verdict is then final. `members` are those of the job's wrapper.
local function undecided(members, others, own)
    local refused = members.refused and #members.refused < 1024 and members.refused or ''
    for _, other in ipairs(others) do
        if not string.find(refused, other, 1, true) then
            return string.find(refused, own, 1, true) and refused or own .. (refused == '' and '' or ' ') .. refused
        end
    end
    return nil
end

-- Returns the ms after which a job is due again if a worker's configuration refuses it. The longest pause is a quarter of the job's age,
-- from 1 to 30 s, and the shortest is half of that. `share` is a random number from 0 to 1. RetryPolicy.configurationPauses in Swift has
-- the same pauses.
local function configuration_pause(members, now, share)
    local longest = math.max(1000, math.min((now - (members.enqueued or now)) / 4, 30000))
    return math.floor(longest / 2 * (1 + share))
end

-- Returns the deliveries of the group and of the app at the time of the last failure; nil if the wrapper lacks them.
local function seen_deliveries(failure)
    local seen = type(failure.seen) == 'table' and failure.seen or {}
    local group, app = seen[1], seen[2]
    if type(group) == 'number' and type(app) == 'number' and group >= 0 and group < 2 ^ 53 and app >= 0 and app < 2 ^ 53 then
        return { group = group, app = app }
    end
    return nil
end

-- Returns the last failure as a member of a wrapper, with a leading comma; '' for a job that has not failed.
local function failure_member(members)
    local failure, facts = members.error, {}
    if type(failure) ~= 'table' then
        return ''
    end
    if failure.status and is_counter(failure.status, 0) then
        facts[#facts + 1] = string.format('"status":%d', failure.status)
    end
    if failure.reason and is_text(failure.reason) then
        facts[#facts + 1] = '"reason":' .. cjson.encode(failure.reason)
    end
    if is_time(failure.at) then
        facts[#facts + 1] = string.format('"at":%.0f', failure.at)
    end
    if is_time(failure.first) then
        facts[#facts + 1] = string.format('"first":%.0f', failure.first)
    end
    local seen = seen_deliveries(failure)
    if seen then
        facts[#facts + 1] = string.format('"seen":[%.0f,%.0f]', seen.group, seen.app)
    end
    return ',"error":{' .. table.concat(facts, ',') .. '}'
end

-- Returns the head of the wrapper of a job that returns to the queue because a worker's configuration refuses it. `claim` is unique.
local function deferred_head(members, now, claim, reason, refused)
    members.enqueued = members.enqueued or now
    return string.format('%s"attempt":%d%s%s%s%s%s,"refused":%s,"claim":%s,"wait":{"reason":"%s","at":%d},"job":', WRAPPER,
        members.attempt or 1, members.reclaims and string.format(',"reclaims":%d', members.reclaims) or '',
        members.reserved and ',"reserved":true' or '', members.due == true and ',"due":true' or '', (carried(members)),
        failure_member(members), cjson.encode(refused), cjson.encode(claim), reason, now)
end

-- Ends the reservation of an id, if it is still that of the job with this origin.
local function free_id(unique, origin)
    if redis.pcall('GET', unique) == origin then
        redis.call('DEL', unique)
    end
end
