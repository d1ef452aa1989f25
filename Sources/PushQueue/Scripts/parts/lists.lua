-- Lists, whose head can be at either end, and reading many jobs without reading too many bytes.
--
-- Redis returns the size of a field of a hash, but not that of an element of a list or a sorted set, and a copy of one costs
-- about 2 ms per MB. So jobs are read in portions that would fit even if all their jobs were as large as the largest that is
-- known. Without a known one, portions begin with one job and double. Each portion is probed at its end, and a large one in
-- its middle: producers push jobs of one kind together.

-- Returns the values of a list from its last to its first.
local function reversed(list)
    local backwards = {}
    for i = #list, 1, -1 do
        backwards[#backwards + 1] = list[i]
    end
    return backwards
end

-- Returns the command that pushes to the head of the list. `head` is the end at which it is, LEFT or RIGHT.
local function push_head(head)
    return head == 'RIGHT' and 'RPUSH' or 'LPUSH'
end

-- Removes a number of values at the head of a list, which is its end LEFT or RIGHT.
local function trim_head(list, head, n)
    if head == 'RIGHT' then
        redis.call('LTRIM', list, 0, -n - 1)
    else
        redis.call('LTRIM', list, n, -1)
    end
end

local MOST_AT_ONCE, PROBED_TWICE = 64, 16

-- Reads jobs one after the other until `limit` jobs are read, until they reach `max_bytes`, or until there are no more.
--   read     returns the jobs at two indexes and between them, counted from 0, in their order
--   largest  the size of the largest job that is known, or nil
-- Returns the jobs, the size of the largest, true if there are no more, and the size of all.
local function read_portions(read, limit, max_bytes, largest)
    local jobs, number, bytes = {}, 0, 0
    local portion = largest and MOST_AT_ONCE or 1
    largest = largest or 1
    while number < limit and bytes < max_bytes do
        local space = max_bytes - bytes
        local n = math.max(1, math.min(limit - number, portion, math.floor(space / largest)))
        local probe = n >= PROBED_TWICE and math.floor(n / 2) or n - 1
        while probe > 0 do
            local size = #(read(number + probe, number + probe)[1] or '')
            if size > largest then
                largest = size
                n = math.max(1, math.min(n, math.floor(space / size)))
                break
            end
            probe = probe < n - 1 and n - 1 or 0
        end
        local some = read(number, number + n - 1)
        for i = 1, #some do
            local size = #some[i]
            number, bytes = number + 1, bytes + size
            jobs[number] = some[i]
            if size > largest then
                largest = size
            end
            if bytes >= max_bytes then
                return jobs, largest, false, bytes
            end
        end
        if #some < n then
            return jobs, largest, true, bytes
        end
        portion = math.min(2 * portion, MOST_AT_ONCE)
    end
    return jobs, largest, false, bytes
end

-- Returns a function that reads a list, counted from one of its ends, LEFT or RIGHT.
local function list_reader(key, from)
    if from == 'LEFT' then
        return function(start, stop)
            return redis.call('LRANGE', key, start, stop)
        end
    end
    return function(start, stop)
        return reversed(redis.call('LRANGE', key, -stop - 1, -start - 1))
    end
end
