-- The set of invalid tokens, or a shard of it.
--
-- The set can be divided into shards, each in a slot of its own. In a shard, the set and the hash of registrations are sixteen keys
-- each, by the fifth digit of the token, so that none of them blocks Redis for long when it is moved to another server.
--
-- The details of a token are a field of one of 4,096 small hashes, which Redis stores as compact lists:
--   key    <details>:<the first 3 digits of the token's SHA-1>
--   field  the 5 bytes after them: two of a few million tokens hardly ever share a place, and would only share their details
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
        struct.pack('>I4I1', tonumber(string.sub(digest, 4, 11), 16), tonumber(string.sub(digest, 12, 13), 16))
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

-- The number of keys that a set or hash of a shard consists of, by a digit of the token.
local PARTS = 16

-- Returns the key that holds a token. `is_shard` is true if the set or hash consists of several keys.
local function key_of(base, token, is_shard)
    return is_shard and base .. ':' .. (string.match(token, '^....([0-9a-f])') or '0') or base
end

-- Returns tokens by the keys that hold them, and with them their places in the list.
local function by_key(base, tokens, is_shard)
    local groups = {}
    for place, token in ipairs(tokens) do
        local key = key_of(base, token, is_shard)
        local group = groups[key] or { tokens = {}, places = {} }
        groups[key] = group
        group.tokens[#group.tokens + 1] = token
        group.places[#group.places + 1] = place
    end
    return groups
end

-- Asks a set (SMISMEMBER) or a hash (HMGET) about tokens. Returns the answers in their order; nil and an error reply if a key has
-- another type.
local function ask(command, base, tokens, is_shard)
    local answers = {}
    local groups = is_shard and by_key(base, tokens, true) or { [base] = { tokens = tokens } }
    for key, group in pairs(groups) do
        local found = redis.pcall(command, key, unpack(group.tokens))
        if found.err then
            return nil, wrong_type({ [key] = command == 'HMGET' and 'hash' or 'set' }) or found
        end
        if not is_shard then
            return found, nil
        end
        for index, answer in ipairs(found) do
            answers[group.places[index]] = answer
        end
    end
    return answers, nil
end

-- The number of entries that the stream of changes has at least.
local CHANGES = 2000

-- Announces a change of the tokens that are looked up to the processes that keep a filter of them.
local function announce_tokens(changes, name, value)
    redis.call('XADD', changes, 'MAXLEN', '~', CHANGES, '*', name, value)
end

-- Announces a number of removed tokens, so that an addition without an announcement can't hide behind them. `changes` is nil for a
-- shard, whose slot has no stream.
local function announce_removed(changes, removed)
    if changes and removed > 0 then
        announce_tokens(changes, 'removed', removed)
    end
end

-- Removes members of a set, which were found to be sets, and their details. Returns the number of members.
local function remove_tokens(set, details, tokens, is_shard)
    local removed = 0
    for _, token in ipairs(tokens) do
        removed = removed + redis.call('SREM', key_of(set, token, is_shard), token)
        redis.call('HDEL', place_of_details(details, token))
    end
    return removed
end

-- Removes some of the tokens that were marked, and of the registrations that were recorded, before a time (ms since 1970), if any.
-- Returns the number of tokens.
--
-- They are found the way Redis finds expired keys: a few are sampled at random, and more while many of them are too old. So they
-- remain a small part, and no call takes long.
local function remove_old(set, details, registrations, oldest, is_shard)
    if not oldest then
        return 0
    end
    local removed = 0
    if is_shard then
        local part = string.format(':%x', now_us() % PARTS)
        set, registrations = set .. part, registrations .. part
    end
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
        for _, token in ipairs(redis.pcall('SRANDMEMBER', set, -SAMPLE)) do
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
        local sample = redis.pcall('HRANDFIELD', registrations, -SAMPLE, 'WITHVALUES')
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
