import TestSupport

/// Returns the results of a queue as a producer reads them: a dictionary for each, without empty values.
func storedResults(_ redis: RedisServer, queue: String = "default") throws -> [[String: String]] {
    try redis.connect().run("XRANGE", "push:{\(queue)}:results", "-", "+").list().map { entry in
        try entry.list()[1].pairs().filter { !$0.value.isEmpty }
    }
}
