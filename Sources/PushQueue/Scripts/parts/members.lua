-- Members of jobs, found without decoding the jobs: decoding takes some ms per 100 KB, and more for hostile ones.
--
-- A search takes steps of about a microsecond. Each script has a limited number of steps for all of its jobs. A name that is written with
-- escapes is not found.
-- Needs: wrapper

local find, match, gsub, sub, byte = string.find, string.match, string.gsub, string.sub, string.byte

-- The maximum number of bytes in which brackets are counted at once, per step that is left.
local MOST_PER_STEP = 16
-- The maximum length of a campaign's name in bytes; a worker ignores a longer one.
local MAX_LABEL = 100
-- The maximum size in bytes of a job that is a JSON text in another job, because it must be decoded.
local MAX_NESTED = 65536

local function count_of(character, text)
    local number, at = 0, find(text, character, 1, true)
    while at do
        number, at = number + 1, find(text, character, at + 1, true)
    end
    return number
end

-- Returns the depth after a part of a body that begins and ends outside of strings, and how many steps are left: 0
-- if the part is too long for them.
local function depth_after(body, first, last, depth, steps)
    if last - first > MOST_PER_STEP * steps then
        return depth, 0
    end
    local text, escapes, strings = sub(body, first, last), 0, nil
    if find(text, '\\', 1, true) then
        text, escapes = gsub(text, '\\.', '')
    end
    text, strings = gsub(text, '"[^"]*"', '')
    local opened = count_of('{', text) + count_of('[', text)
    local closed = count_of('}', text) + count_of(']', text)
    return depth + opened - closed, steps - 1 - (last - first) / 50 - (escapes + strings + opened + closed) / 10
end

-- Finds the end of the string that begins with the quote at `open`. Returns the index of its last quote, or nil, and the steps that are left.
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

-- Searches for a name from an index on, and returns the index of its first quote, or nil. `rest` is the name with its last quote: letters
-- are rarer than quotes, so they are found faster.
local function find_name(body, rest, at)
    local found = find(body, rest, at + 1, true)
    while found and byte(body, found - 1) ~= 34 do
        found = find(body, rest, found + 1, true)
    end
    return found and found - 1
end

-- Returns the index of the value of the member whose name is at an index; nil if the text there is not a member's name: in a document of
-- JSON, the quote before it can only begin a name, or be escaped.
local function value_after(body, rest, at)
    return byte(body, at - 1) ~= 92 and match(body, '^[ \t\r\n]*:[ \t\r\n]*()', at + 1 + #rest) or nil
end

-- True if the name at an index is at the top level for certain, because nothing can be nested before it or after it. Most names are.
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

-- Returns the index of the value of a member of the object that begins at an index, nil if there is none, and how many steps are left.
local function value_within(body, start, name, steps)
    local rest, at, depth = name .. '"', start, 0
    local tokens, wanted = find_name(body, 'tokens"', start), find_name(body, rest, start)
    while wanted and steps > 0 do
        local value = value_after(body, rest, wanted)
        while value and tokens and tokens < wanted do
            local array, stop = value_after(body, 'tokens"', tokens), nil
            if array and byte(body, array) == 91 then
                -- Skip the job's own tokens, because there may be many. No token has a bracket.
                depth, steps = depth_after(body, at, tokens - 1, depth, steps)
                stop = depth == 1 and find(body, ']', array, true)
                at = stop and stop + 1 or tokens
            end
            steps = steps - 0.3
            tokens = steps > 0 and find_name(body, 'tokens"', math.max(at, tokens + 1))
        end
        if value and wanted >= at and steps > 0 then
            depth, steps = depth_after(body, at, wanted - 1, depth, steps)
            if depth == 1 and steps > 0 then
                return value, steps
            end
            at = wanted
        end
        steps = steps - 0.3
        wanted = find_name(body, rest, wanted + 1)
    end
    return nil, steps
end

-- Returns the index of the value of a member of the job's own object, nil if there is none, and how many steps are
-- left. Sidekiq's jobs, and those of ActiveJob in them, have the job as their first argument.
local function member_value(body, name, steps)
    local rest = name .. '"'
    local wanted = find_name(body, rest, 1)
    local value = wanted and value_after(body, rest, wanted)
    if not wanted or value and is_at_top(body, wanted) then
        return value, steps
    end
    local start = find(body, '{', 1, true)
    for _, list in ipairs({ 'args', 'arguments', '' }) do
        if not start then
            break
        end
        value, steps = value_within(body, start, name, steps)
        if value or list == '' then
            break
        end
        local arguments
        arguments, steps = value_within(body, start, list, steps)
        start = arguments and match(body, '^%[[ \t\r\n]*(){', arguments) or list == 'args' and start
    end
    return value, steps
end

-- Returns the text of a string at an index of a body, '' for another value, for one of more than `most` bytes, and
-- for one with control characters.
local function text_at(body, at, most)
    -- ActiveJob writes a symbol as an object.
    at = match(body, '^{"_aj_serialized":"[%w:]*","value":()', at) or at
    local close = byte(body, at) == 34 and find(body, '"', at + 1, true)
    -- An escape is at most six times as long as its character.
    if not close or close - at > 6 * most + 1 then
        return ''
    end
    local text = sub(body, at + 1, close - 1)
    if find(text, '\\', 1, true) then
        text = sub(body, at, at + 6 * most + 1)
        close = string_end(text, 1, #text)
        local is_json, decoded = pcall(cjson.decode, '[' .. sub(text, 1, close or 0) .. ']')
        text = is_json and decoded[1] or ''
    end
    local has_controls = find(text, '[%z\1-\31\127]') or find(text, '\194[\128-\159]')
    return #text <= most and not has_controls and text or ''
end

-- Returns the number of strings of the array at an index of a body, none of which has escapes or brackets, and how many steps are left.
-- When none are left, the number of the remaining strings is estimated from the length of the counted strings.
local function count_strings(body, at, steps)
    local close = byte(body, at) == 91 and find(body, ']', at, true)
    local quote, quotes, last = close and find(body, '"', at, true), 0, at
    while quote and quote < close and steps > 0 do
        -- Ten strings take about as long as another step.
        quotes, last, steps = quotes + 1, quote, steps - 0.05
        quote = find(body, '"', quote + 1, true)
    end
    if quote and quote < close and last > at then
        quotes = quotes * (close - at) / (last - at)
    end
    return math.floor(quotes / 2 + 0.5), steps
end

-- Returns the job that Sidekiq's arguments contain as a JSON text, or the body itself, and how many steps are left.
local function nested_job(body, steps)
    local arguments, close, is_json, texts
    arguments, steps = member_value(body, 'args', steps)
    local open = arguments and match(body, '^%[[ \t\r\n]*()"', arguments)
    if open then
        close, steps = string_end(body, open, steps)
        if close and close - open <= MAX_NESTED then
            is_json, texts = pcall(cjson.decode, '[' .. sub(body, open, close) .. ']')
        end
    end
    return is_json and texts[1] or body, steps
end

-- Returns the campaign of a job that ends unread, or nil, its number of notifications, and how many steps are left.
-- `members` are those of its wrapper.
local function job_facts(original, members, steps)
    local campaign, tokens
    original, steps = nested_job(original, steps)
    campaign, steps = member_value(original, 'campaign', steps)
    campaign = campaign and text_at(original, campaign, MAX_LABEL) or ''
    local number = members.tokens and #members.tokens
    if not number then
        tokens, steps = member_value(original, 'tokens', steps)
        if tokens then
            number, steps = count_strings(original, tokens, steps)
        end
    end
    return campaign ~= '' and is_utf8(campaign) and campaign or nil, math.max(1, number or 1), steps
end
