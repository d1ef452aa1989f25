-- The details of invalid tokens.
--
-- The details of a token are a field of one of 4,096 small hashes, which Redis stores as compact lists:
--   key    <details>:<the first 3 digits of the token's SHA-1>
--   field  the 8 bytes after them
--   value  10 bytes, big-endian: invalid since (ms since 1970, 6 bytes), marked on (days since 1970, 2 bytes), facts (2 bytes)
-- `facts` is a HASH number -> JSON, because few values are different: `reason`, `topic`, `environment` and `source`. 0 stands for
-- none.

local MS_PER_DAY = 86400000
local DETAILS_SIZE = 10
-- The numbers that are tried for facts whose own number has other facts.
local TRIES = 16

-- Returns the key and the field of a token's details.
local function place_of_details(details, token)
    local digest = redis.sha1hex(token)
    return details .. ':' .. string.sub(digest, 1, 3),
        struct.pack('>I4I4', tonumber(string.sub(digest, 4, 11), 16), tonumber(string.sub(digest, 12, 19), 16))
end

-- Returns the details at a place: invalid since, the day on which the token was marked, and the number of its facts; all nil for
-- none, or if another program wrote something else. As a fourth value, an error reply if the key has another type.
local function details_at(key, field)
    local value = redis.pcall('HGET', key, field)
    if type(value) == 'table' then
        return nil, nil, nil, wrong_type({ [key] = 'hash' }) or value
    end
    if not value or #value ~= DETAILS_SIZE then
        return nil, nil, nil, nil
    end
    local at, day, facts = struct.unpack('>I6I2I2', value)
    return at, day, facts, nil
end

-- The entries of the stream of changes that are kept, and the tokens of each.
local CHANGES, TOKENS_OF_CHANGE = 2000, 50

-- Announces changes of the set to the processes that keep a filter of it: `added`, tokens with commas between them, and `removed`, a
-- number.
local function announce(changes, added, removed)
    for i = 1, #added, TOKENS_OF_CHANGE do
        local tokens = table.concat(added, ',', i, math.min(i + TOKENS_OF_CHANGE - 1, #added))
        redis.call('XADD', changes, 'MAXLEN', '~', CHANGES, '*', 'added', tokens)
    end
    if removed > 0 then
        redis.call('XADD', changes, 'MAXLEN', '~', CHANGES, '*', 'removed', removed)
    end
end

-- Removes members of a set and their details. Returns the number of members.
local function remove_tokens(set, details, tokens)
    local removed = 0
    for _, token in ipairs(tokens) do
        removed = removed + redis.call('SREM', set, token)
        redis.call('HDEL', place_of_details(details, token))
    end
    return removed
end

-- Removes some of the tokens that were marked, and of the registrations that were recorded, before a time (ms since 1970), if any.
-- Returns the number of tokens.
--
-- They are found the way Redis finds expired keys: a few are sampled at random, and more while many of them are too old. So they
-- remain a small part, and no call takes long.
local function remove_old(set, details, registrations, oldest)
    if not oldest then
        return 0
    end
    local removed = 0
    -- The size of a sample, the number of old ones in it that leads to another round, and the maximum number of rounds.
    local SAMPLE, MANY, ROUNDS = 10, 3, 50
    local function remove(sample)
        for _ = 1, ROUNDS do
            if sample() < MANY then
                return
            end
        end
    end
    -- With a negative count, each is chosen independently, at a cost that does not depend on the number of members.
    remove(function()
        local old = {}
        for _, token in ipairs(redis.call('SRANDMEMBER', set, -SAMPLE)) do
            local _, day = details_at(place_of_details(details, token))
            if day and day < math.floor(oldest / MS_PER_DAY) then
                old[#old + 1] = token
            end
        end
        removed = removed + remove_tokens(set, details, old)
        return #old
    end)
    remove(function()
        local old = {}
        local sample = redis.call('HRANDFIELD', registrations, -SAMPLE, 'WITHVALUES')
        for i = 1, #sample, 2 do
            local at = tonumber(sample[i + 1])
            if at and at < oldest then
                old[#old + 1] = sample[i]
            end
        end
        if #old > 0 then
            redis.call('HDEL', registrations, unpack(old))
        end
        return #old
    end)
    return removed
end
