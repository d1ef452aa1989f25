-- The set of invalid tokens, or a shard of it.
--
-- The set can be divided into shards, each in a slot of its own. In a shard, the set and the hash of registrations are sixteen keys
-- each, by the fifth digit of the token, so that none of them blocks Redis for long when it is moved to another server.
--
-- A token is invalid for a topic in an environment: each such fact is a mark. Other programs read only that a token is in a set, so
-- there are three:
--   <set>            tokens that are invalid for the own topic of an app, in production or on another server than the sandbox
--   <set>:sandbox    tokens that are invalid for the own topic of an app in the sandbox
--   <set>:other      tokens that have marks and are in neither: they are invalid only for other topics, such as that of VoIP
-- A member without marks was added by another program, and is invalid for all topics of its set's environment.
--
-- The marks of a token are a field of one of 4,096 small hashes, which Redis stores as compact lists:
--   key    <details>:<the first 3 digits of the token's SHA-1>
--   field  the 5 bytes after them: two of a few million tokens hardly ever share a place, and would only share their marks
--   value  10 bytes for each mark, big-endian: invalid since (ms since 1970, 6 bytes), marked on (days since 1970, 2 bytes), facts
--          (2 bytes)
-- `facts` is a HASH number -> JSON, because few values are different: `reason`, `topic`, `environment`, `source`, and `set` with the value
-- `other` if the topic is not an app's own. 0 means no facts.
-- Needs: time base values

local MS_PER_DAY = 86400000
-- Tables, because Lua limits the number of local variables. `size` is that of a mark; more marks than the maximum would not fit into 64
-- bytes, the largest value of a compact list, so the oldest is dropped.
local MARKS = { size = 10, maximum = 6 }
-- The sets with their suffixes, and with their numbers in the sum of a token's sets.
local SETS = { all = { { '', 1 }, { ':sandbox', 2 }, { ':other', 4 } }, production = 1, sandbox = 2, other = 4 }
-- The number of tries to find a free number for facts, if other facts already have their number.
local TRIES = 16

-- Returns the key and the field of a token's details.
local function place_of_details(details, token)
    local digest = redis.sha1hex(token)
    return details .. ':' .. string.sub(digest, 1, 3),
        struct.pack('>I4I1', tonumber(string.sub(digest, 4, 11), 16), tonumber(string.sub(digest, 12, 13), 16))
end

-- Returns the marks at a place: `at`, `day`, and the number of their `facts`; none if another program wrote something else. As a second
-- value, an error reply if the key has another type.
function MARKS.at(key, field)
    local value = redis.pcall('HGET', key, field)
    if type(value) == 'table' then
        return nil, wrong_type({ [key] = 'hash' }) or value
    end
    local marks = {}
    if value and #value % MARKS.size == 0 then
        for first = 1, #value, MARKS.size do
            local at, day, facts = struct.unpack('>I6I2I2', value, first)
            marks[#marks + 1] = { at = at, day = day, facts = facts }
        end
    end
    return marks, nil
end

function MARKS.write(key, field, marks)
    local packed = {}
    for index, mark in ipairs(marks) do
        packed[index] = struct.pack('>I6I2I2', mark.at, mark.day, mark.facts)
    end
    if #packed == 0 then
        redis.call('HDEL', key, field)
    else
        redis.call('HSET', key, field, table.concat(packed))
    end
end

function MARKS.scope_text(environment, topic)
    return environment .. '\n' .. topic
end

-- Returns the scope of facts (environment and topic) as text, and the set of a token with them. The marks of a token differ in scope.
function MARKS.scope_of(text)
    local known = decoded_object(text)
    local function member(name)
        return type(known[name]) == 'string' and known[name] or ''
    end
    local set = member('set') == 'other' and SETS.other or member('environment') == 'sandbox' and SETS.sandbox or SETS.production
    return { text = MARKS.scope_text(member('environment'), member('topic')), set = set }
end

-- Returns a function that returns the scope of facts by their number.
function MARKS.scopes_in(facts)
    local scopes = {}
    return function(number)
        scopes[number] = scopes[number] or MARKS.scope_of(redis.call('HGET', facts, number) or '')
        return scopes[number]
    end
end

function SETS.has(sets, set)
    return math.floor(sets / set) % 2 == 1
end

-- Returns the sets of a token with the marks that are left. It enters no further set, because APNs may have accepted it since.
function SETS.left(sets, marks, scope)
    local left = 0
    for _, one in ipairs(SETS.all) do
        for _, mark in ipairs(marks) do
            if SETS.has(sets, one[2]) and scope(mark.facts).set == one[2] then
                left = left + one[2]
                break
            end
        end
    end
    return left > 0 and left or SETS.other
end

-- Returns an error reply if a key of an undivided form has another type than it should. Returns nil for a shard, whose keys are checked
-- when they are read.
function SETS.wrong_form(set, registrations, facts, changes, is_shard)
    local types = { [facts] = 'hash' }
    if not is_shard then
        types[registrations] = 'hash'
        if changes then
            types[changes] = 'stream'
        end
        for _, one in ipairs(SETS.all) do
            types[set .. one[1]] = 'set'
        end
    end
    return wrong_type(types)
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

-- Returns the sums of the sets that tokens are in, by their places in the list; nil for a token that is in none. As a second value, an
-- error reply if a key has another type.
function SETS.of(set, tokens, is_shard)
    local sums = {}
    for _, one in ipairs(SETS.all) do
        local key = set .. one[1]
        -- Most fleets have only the first set.
        if is_shard or redis.call('EXISTS', key) == 1 then
            local members, failure = ask('SMISMEMBER', key, tokens, is_shard)
            if failure then
                return nil, failure
            end
            for place, is_member in ipairs(members) do
                if is_member == 1 then
                    sums[place] = (sums[place] or 0) + one[2]
                end
            end
        end
    end
    return sums, nil
end

-- Reads tokens from the arguments `first` to `last` of the script: each `members` arguments begin with a token. Returns them, the sums of
-- their sets, and when their devices last registered (ms since 1970); nil and an error reply if a key has another type.
function SETS.read(set, registrations, first, last, members, is_shard)
    local tokens = {}
    for index = first, last, members do
        tokens[#tokens + 1] = ARGV[index]
    end
    local sums, wrong_set = SETS.of(set, tokens, is_shard)
    local recorded, wrong_hash = ask('HMGET', registrations, tokens, is_shard)
    if wrong_set or wrong_hash then
        return nil, wrong_set or wrong_hash
    end
    local registered = {}
    for place in ipairs(tokens) do
        registered[place] = tonumber(recorded[place] or nil)
    end
    return { tokens = tokens, sums = sums, registered = registered }, nil
end

-- The minimum number of entries in the stream of changes.
local CHANGES = 2000

-- Announces a change to the processes that keep a filter of tokens.
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

-- Moves a token from its sets to others, and writes its marks. Returns the decrease in the number of its sets.
function SETS.move(set, details, token, sets, next_sets, marks, is_shard)
    local fewer = 0
    for _, one in ipairs(SETS.all) do
        local was, is = SETS.has(sets, one[2]), SETS.has(next_sets, one[2])
        if was ~= is then
            redis.call(was and 'SREM' or 'SADD', key_of(set .. one[1], token, is_shard), token)
            fewer = fewer + (was and 1 or -1)
        end
    end
    local key, field = place_of_details(details, token)
    MARKS.write(key, field, marks)
    return fewer
end

-- Removes some of the marks and registrations that are older than `oldest` (ms since 1970), if that is given. Returns the decrease in the
-- number of sets, over all tokens.
--
-- They are found the way Redis finds expired keys: a few are sampled at random, and more while many of them are too old. So old ones remain
-- a small part, and no call takes long.
local function remove_old(set, details, facts, registrations, oldest, is_shard)
    if not oldest then
        return 0
    end
    local removed = 0
    -- Each call samples one part of a shard. An undivided set has only one part.
    local part = is_shard and string.format(':%x', now_us() % PARTS) or ''
    local scope = MARKS.scopes_in(facts)
    -- The size of a sample, the number of old elements in it that leads to another round, and the maximum number of rounds.
    local SAMPLE, MANY, ROUNDS = 10, 3, 50
    local function remove(sample)
        for _ = 1, ROUNDS do
            if sample() < MANY then
                return
            end
        end
    end
    -- Returns true if the token had old marks.
    local function forget_old(token)
        local marks = MARKS.at(place_of_details(details, token)) or {}
        local left = {}
        for _, mark in ipairs(marks) do
            if mark.day >= math.floor(oldest / MS_PER_DAY) then
                left[#left + 1] = mark
            end
        end
        if #left == #marks then
            return false
        end
        local sets = SETS.of(set, { token }, is_shard)
        sets = sets and sets[1] or 0
        removed = removed + SETS.move(
            set, details, token, sets, #left > 0 and SETS.left(sets, left, scope) or 0, left, is_shard)
        return true
    end
    -- With a negative count, each element is chosen independently, at a cost that does not depend on the number of members.
    for _, one in ipairs(SETS.all) do
        remove(function()
            local old = 0
            for _, token in ipairs(redis.pcall('SRANDMEMBER', set .. one[1] .. part, -SAMPLE)) do
                old = old + (forget_old(token) and 1 or 0)
            end
            return old
        end)
    end
    remove(function()
        local old = {}
        local sample = redis.pcall('HRANDFIELD', registrations .. part, -SAMPLE, 'WITHVALUES')
        for i = 1, #sample, 2 do
            local at = tonumber(sample[i + 1])
            if at and at < oldest then
                old[#old + 1] = sample[i]
            end
        end
        if #old > 0 then
            redis.call('HDEL', registrations .. part, unpack(old))
        end
        return #old
    end)
    return removed
end
