-- Runs one command that must also be possible on a Redis whose memory is full, which is when operators act: a pause, a command to
-- a worker, an entry of the audit log.
--
-- KEYS  1 key             the key that it writes, a small one
-- ARGV  1 command         its name
--       then its arguments after the key
-- Reply that of the command
--
-- Run twice, it runs the command twice.
-- Needs: base

local key, command = KEYS[1], ARGV[1]

write_when_full(key)
return redis.call(command, key, unpack(ARGV, 2))
