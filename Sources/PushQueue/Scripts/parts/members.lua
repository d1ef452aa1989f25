-- Members of jobs, found without decoding the jobs: decoding takes some ms per 100 KB, and more for hostile ones.
--
-- A search takes steps, about one per string of the job, of which each script has a number for all of its jobs. A name
-- that is written with escapes is not found.

local member_value, text_at, job_facts

do
    local find, match, gsub, sub, byte = string.find, string.match, string.gsub, string.sub, string.byte

    -- The maximum length of a campaign's name in bytes; a worker ignores a longer one.
    local MAX_LABEL = 100

    -- The changes of depth by the most frequent texts between two strings of a JSON document.
    local DEPTH_CHANGES = {
        [':'] = 0, [','] = 0, [': '] = 0, [', '] = 0, ['{'] = 1, [':{'] = 1, [': {'] = 1, ['},'] = -1, ['}, '] = -1,
        [':['] = 1, [': ['] = 1, ['],'] = -1, ['], '] = -1,
    }

    -- Returns the change of depth by the text between two strings.
    local function depth_change(between)
        local _, opened = gsub(between, '[%[{]', '')
        local _, closed = gsub(between, '[%]}]', '')
        return opened - closed
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

    -- Returns the index of a name's first quote, from an index on, or nil. `rest` is the name with its last
    -- quote: letters are rarer than quotes, so they are found faster.
    local function find_name(body, rest, at)
        local found = find(body, rest, at + 1, true)
        while found and byte(body, found - 1) ~= 34 do
            found = find(body, rest, found + 1, true)
        end
        return found and found - 1
    end

    -- Returns the index of the value of a member whose name is at an index, nil if it is not the name of a member: in a
    -- document of JSON, the quote before it can only begin a name, or be escaped.
    local function value_after(body, rest, at)
        return byte(body, at - 1) ~= 92 and match(body, '^[ \t\r\n]*:[ \t\r\n]*()', at + 1 + #rest) or nil
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

    -- Returns the index of the value of a member of the job's own object, nil if there is none, and how many steps are
    -- left. Sidekiq's jobs, and those of ActiveJob in them, have the job as their first argument.
    function member_value(body, name, steps)
        local rest = name .. '"'
        local wanted = find_name(body, rest, 1)
        local value = wanted and value_after(body, rest, wanted)
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
            value = wanted == open and depth == own and value_after(body, rest, open)
            if value then
                return value, steps
            end
            local stop
            local is_array = change == 1 and sub(between, -1) == '['
            if is_array and depth == own + 1 and sub(body, at - 8, at - 1) == '"tokens"' then
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
                wanted = find_name(body, rest, at)
            end
        end
        return nil, steps
    end

    -- Returns the text of a string at an index of a body, '' for another value, for one of more than `most` bytes, and
    -- for one with control characters.
    function text_at(body, at, most)
        -- A symbol of an ActiveJob.
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

    -- Returns the number of strings of the array at an index of a body, none of which has escapes or brackets, and how
    -- many steps are left. When none are left, the other strings are taken to be as long as those before.
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

    -- Returns the campaign of a job that ends unread, or nil, its number of notifications, and how many steps are left.
    -- `members` are those of its wrapper.
    function job_facts(original, members, steps)
        local campaign, tokens
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
end
