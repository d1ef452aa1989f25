-- Reads the jobs of one key, a page at a time.
--
-- KEYS  1 place           the LIST of jobs or of the inbox; the ZSET of postponed jobs, sorted jobs or dead letters; or the HASH of a
--                         lane's claims
-- ARGV  1 kind            list, head, set or claimed. head is a list that is read from the end from which workers claim
--       2 cursor          'start', then the cursor of the reply before; with claimed any text
--       3 limit           the maximum number of jobs
--       4 max bytes       the page ends with the job at which the jobs reach this total
--       5 end             list: the end from which the jobs are read, LEFT or RIGHT
--                         set: LEFT to begin with the job that is due first, RIGHT with the one that is due last
--       then with claimed the fields to read
-- Reply { now, cursor, (position size job)... }
--       now               Redis' time, ms
--       cursor            for the next page; '' after the last. With claimed the number of fields that were read
--       position          set: the score, such as the due time in ms; claimed: the field; list: the index of the job from that end, from 0
--       size              of the job in bytes
--       job               its bytes; of a job beyond 16 MiB only the first 64 KiB
--
-- Changes nothing. A list is usually read from its tail: workers claim from its head, so a page misses no job that
-- stays. Producers add to the tail, so the cursor names the last job that was read, and the next page begins after that job.
-- If the job has left the list, jobs may be read twice. Reading from the head works likewise, because jobs leave in their order.
-- Jobs with one score have a fixed order, and the cursor counts the jobs of that score that were read.
-- Needs: time base lists

local place = KEYS[1]
local kind, cursor, limit, max_bytes, list_end = unpack(ARGV, 1, 5)
limit, max_bytes = tonumber(limit), tonumber(max_bytes)
local FIRST_FIELD = 6
local WHOLE_BYTES, PART_BYTES = 16777216, 65536
-- The maximum number of new jobs among which a cursor finds its job again.
local MOST_NEW, NEW_PORTION = 512, 32
local types = { list = 'list', head = 'list', set = 'zset', claimed = 'hash' }

if not types[kind] then
    return redis.error_reply('ERR page-jobs: unknown kind ' .. tostring(kind))
end
local wrong = wrong_type({ [place] = types[kind] })
if wrong then
    return wrong
end

local reply = { now_ms(), '' }

local function add(position, job)
    reply[#reply + 1] = position
    reply[#reply + 1] = #job
    reply[#reply + 1] = #job > WHOLE_BYTES and string.sub(job, 1, PART_BYTES) or job
end

-- Returns a digest of a job for a cursor.
local function digest(job)
    return redis.sha1hex(#job > PART_BYTES and #job .. string.sub(job, 1, PART_BYTES) or job)
end

if kind == 'list' or kind == 'head' then
    local read = list_reader(place, list_end)
    local start, largest, last = 0, nil, nil
    if cursor ~= 'start' then
        start, largest, last = string.match(cursor, '^(%d+) (%d+) (%x+)$')
        start, largest = tonumber(start), tonumber(largest)
        if not start then
            return redis.error_reply('ERR page-jobs: CURSOR that no reply had')
        end
        -- Returns the distance of the last job from its former place; nil if it is not found.
        local function find(jobs_at)
            local distance, bytes = 0, 0
            while distance < MOST_NEW and bytes < max_bytes do
                local found, _, is_last = read_portions(function(from, to)
                    return jobs_at(distance + from, distance + to)
                end, distance == 0 and 1 or NEW_PORTION, max_bytes - bytes, largest)
                for _, job in ipairs(found) do
                    if digest(job) == last then
                        return distance
                    end
                    distance, bytes = distance + 1, bytes + #job
                end
                if is_last then
                    return nil
                end
            end
        end
        local added = find(function(from, to)
            return read(start - 1 + from, start - 1 + to)
        end)
        if added then
            start = start + added
        elseif kind == 'head' then
            local removed = find(function(from, to)
                local found, turned = from < start and read(math.max(0, start - 1 - to), start - 1 - from) or {}, {}
                for i = #found, 1, -1 do
                    turned[#turned + 1] = found[i]
                end
                return turned
            end)
            -- Claims begin at the head, so the jobs before a claimed job were claimed, too.
            start = removed and start - removed or 0
        end
    end
    local jobs, seen, is_end = read_portions(function(from, to)
        return read(start + from, start + to)
    end, limit, max_bytes, largest)
    for i, job in ipairs(jobs) do
        add(string.format('%d', start + i - 1), job)
    end
    if not is_end then
        -- The largest size is forgotten slowly, because one large job must not make all later portions small.
        reply[2] = string.format('%d %d %s', start + #jobs, math.max(1, seen * 7 / 8), digest(jobs[#jobs]))
    end
    return reply
elseif kind == 'set' then
    local is_latest = list_end == 'RIGHT'
    local time, passed, largest = is_latest and '+inf' or '-inf', 0, nil
    if cursor ~= 'start' then
        local total
        time, passed, total, largest = string.match(cursor, '^([^ ]+) (%d+) (%d+) (%d+)$')
        if not time or not tonumber(time) then
            return redis.error_reply('ERR page-jobs: CURSOR that no reply had')
        end
        largest = tonumber(largest)
        passed = math.max(0, passed - math.max(0, total - redis.call('ZCOUNT', place, time, time)))
    end
    local before = is_latest and redis.call('ZCOUNT', place, '(' .. time, '+inf')
        or redis.call('ZCOUNT', place, '-inf', '(' .. time)
    local range, rank = is_latest and 'ZREVRANGE' or 'ZRANGE', before + passed
    local jobs, seen, is_end = read_portions(function(from, to)
        return redis.call(range, place, rank + from, rank + to)
    end, limit, max_bytes, largest)
    for _, job in ipairs(jobs) do
        local score = redis.call('ZSCORE', place, job)
        if score ~= time then
            time, passed = score, 0
        end
        passed = passed + 1
        add(score, job)
    end
    if not is_end then
        reply[2] = string.format(
            '%s %d %d %d', time, passed, redis.call('ZCOUNT', place, time, time), math.max(1, seen * 7 / 8))
    end
    return reply
end

local bytes, read = 0, 0
for i = FIRST_FIELD, #ARGV do
    if read >= limit or bytes >= max_bytes then
        break
    end
    local size = redis.call('HSTRLEN', place, ARGV[i])
    if read > 0 and bytes + size > max_bytes then
        break
    end
    local job = redis.call('HGET', place, ARGV[i])
    read = read + 1
    if job then
        bytes = bytes + #job
        add(ARGV[i], job)
    end
end
reply[2] = tostring(read)
return reply
