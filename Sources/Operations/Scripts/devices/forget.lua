-- Removes values of one key that name a device, or replaces them by values that do not. Skips values that have left their place.
--
-- KEYS  1 values          LIST of jobs, ZSET of jobs or dead letters, or STREAM
--       2 bytes           sorted: STRING the sum of the lengths of dead letters; only for these
-- ARGV  1 kind            list, sorted, results (a STREAM with `results-marks` beside it), or entries (a STREAM)
--       2 end             list: the end from which indexes count, LEFT or RIGHT
--       3 max results     results: the approximate number that is kept
--       then (place value rest n)...
--         place           list: the index at which the value was read, from 0, ascending; results, entries: the ID of the entry
--         value           list, sorted: the value; entries: the name of its field
--         rest            the replacement, '' for none: a value, an array of groups of results, or the tokens of the field
--         n               the number of results of the array
-- Reply a digit for each value: 1 if it was still in place, else 0
--
-- An entry of a stream can't be changed. So the entry is deleted, and the rest becomes a new entry at the end, which readers see
-- again. A value of a list is searched near its index, because producers may have pushed other values since it was read. Values
-- that have moved further, or were claimed, stay for another call. The last value of the list replaces a removed value, so it is
-- sent a little earlier. Without a gap to close, the time does not depend on the length of the list.
-- Run twice, the second run finds none of them.
-- Needs: base dead-letters results lists invalid-tokens

local values, bytes_key = KEYS[1], KEYS[2]
local kind, list_end, max_results = unpack(ARGV, 1, 3)
local FIRST_VALUE, ARGUMENTS = 4, 4
local types = { list = 'list', sorted = 'zset', results = 'stream', entries = 'stream' }
-- A job is searched among at most MOST_NEW jobs, because producers may have pushed jobs before it. A call searches at most `search_bytes`.
local MOST_NEW, search_bytes = 2048, 1048576

if not types[kind] then
    return redis.error_reply('ERR forget: unknown kind ' .. tostring(kind))
end
local wrong = wrong_type({ [values] = types[kind] })
if wrong then
    return wrong
end
write_when_full(values)

local function index_on_left(index)
    return list_end == 'LEFT' and index or -1 - index
end

-- Returns the index of a value of the list from its end, from `start` on; nil if it is not found.
local function find(start, value)
    if redis.call('LINDEX', values, index_on_left(start)) == value then
        return start
    end
    local read = list_reader(values, list_end)
    local some = read_portions(function(from, to)
        return read(start + 1 + from, start + 1 + to)
    end, MOST_NEW, search_bytes, nil)
    for i, one in ipairs(some) do
        search_bytes = search_bytes - #one
        if one == value then
            return start + i
        end
    end
    return nil
end

local found, freed, removed = {}, 0, 0

for i = FIRST_VALUE, #ARGV, ARGUMENTS do
    local place, value, rest, n = unpack(ARGV, i, i + ARGUMENTS - 1)
    local is_found = false
    if kind == 'list' then
        local index = find(math.max(0, place - removed), value)
        if index and rest == '' then
            local last = redis.call(list_end == 'LEFT' and 'LPOP' or 'RPOP', values)
            if index > 0 then
                redis.call('LSET', values, index_on_left(index - 1), last)
            end
            removed = removed + 1
        elseif index then
            redis.call('LSET', values, index_on_left(index), rest)
        end
        is_found = index ~= nil
    elseif kind == 'sorted' then
        local score = redis.call('ZSCORE', values, value)
        if score then
            redis.call('ZREM', values, value)
            if rest ~= '' then
                redis.call('ZADD', values, score, rest)
            end
            is_found, freed = true, freed + #value - #rest
        end
    elseif redis.call('XDEL', values, place) == 1 then
        is_found = true
        if rest ~= '' and kind == 'results' then
            add_results(values, max_results, rest, n)
        elseif rest ~= '' then
            announce_tokens(values, value, rest)
        end
    end
    found[#found + 1] = is_found and 1 or 0
end

if kind == 'results' then
    write_results(values, max_results)
end
if bytes_key and freed > 0 then
    subtract_dead_bytes(values, bytes_key, freed)
end
return table.concat(found)
