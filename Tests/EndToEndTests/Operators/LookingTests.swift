import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Commands and pages may read only few bytes of large jobs from Redis.
    @Suite("Looking costs little")
    struct LookingTests {
        private static let count = 100
        private static let size = 68_000
        /// A page of jobs shows, and reads, at most fifty jobs.
        private static let limit = 60 * size

        private let redis: RedisServer
        private let connection: RedisTestConnection

        /// Writes a hundred large jobs to each place of a queue: 34 MB in all.
        init() throws {
            redis = try RedisServer()
            connection = try redis.connect()
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            func job(_ number: Int) -> String {
                let text = String(repeating: "a", count: Self.size)
                let token = TestJob.token("ab", number)
                return #"{"id":"j\#(number)","campaign":"news","token":"\#(token)","alert":"\#(text)"}"#
            }
            func add(_ key: String, _ number: Int, _ head: String, _ tail: String = "") throws {
                let due = now + (key.hasPrefix("d") || key.hasPrefix("c") ? -3_600_000 : 3_600_000)
                try connection.run("ZADD", "push:{default}:\(key)", "\(due)", head + job(number) + tail)
            }
            let error = #""error":{"reason":"Shutdown","at":\#(now)}"#
            let wait = #""wait":{"reason":"CampaignPaused","at":\#(now)}"#
            for number in 0..<Self.count {
                try connection.run("RPUSH", "push:{default}:jobs", job(number))
                try add("failed", 1000 + number, #"{"apns_worker":1,"attempt":2,\#(error),"job":"#, "}")
                try add("retry", 2000 + number, #"{"apns_worker":1,\#(wait),"job":"#, "}")
                for (place, reason) in [("dead", "BadPayload"), ("cancelled", "Cancelled")] {
                    let head = #"{"v":1,"claim":"w:\#(place)\#(number)","reason":"\#(reason)","id":"j\#(number)"}"#
                    try add(place, 3000 + number, head + "\n")
                }
            }
            try connection.run("HSET", "push:{default}:campaign:news", "total", "1000", "delivered", "500")
        }

        /// Returns the number of bytes that Redis sends to other clients while a body runs.
        private func bytes(_ body: () async throws -> Void) async throws -> Int {
            func written() throws -> (bytes: Int, own: Int) {
                let text = try #require(connection.run("INFO", "stats").text)
                let found = try #require(text.firstMatch(of: /total_net_output_bytes:(\d+)/).flatMap { Int($0.1) })
                return (found, text.utf8.count)
            }
            let before = try written()
            try await body()
            return try written().bytes - before.bytes - before.own
        }

        @Test("a command reads at most a page of jobs, and one that searches all jobs each of them once")
        func commands() async throws {
            let token = TestJob.token("ab", 1)
            let looking = [
                ["status"], ["status", "--json"], ["status", "--check"], ["jobs", "list"],
                ["jobs", "list", "--state", "retrying"], ["dead", "list"], ["dead", "list", "--json"],
                ["campaign", "list"], ["campaign", "show", "news"], ["results"], ["invalid", "list"], ["health"],
                ["check", "--redis", redis.url],
            ]
            let searching = [
                ["jobs", "list", "--json"], ["jobs", "list", "--campaign", "none"], ["device", token],
                ["jobs", "cancel", "--campaign", "none", "--dry-run"],
            ]
            for (commands, limit) in [(looking, Self.limit), (searching, 6 * Self.count * Self.size)] {
                for command in commands {
                    let found = try await bytes {
                        _ = try await redis.apnsWorker(command)
                    }
                    #expect(found <= limit, "\(command.joined(separator: " ")): \(found) bytes")
                }
            }
            // A new command must be in one of the lists.
            let help = try await CommandLineTests.run(["--help"]).output
            let inspecting = try #require(help.firstMatch(of: /INSPECT SUBCOMMANDS:\n([^:]*)\n\n/)).1
            let names = inspecting.matches(of: #/(?m)^  ([a-z]+) /#).map { String($0.1) }
            #expect(Set(names).subtracting(["web"]).isSubset(of: (looking + searching).map { $0[0] }), "\(names)")
        }

        @Test("a page and each answer of the API read at most a page of jobs, and a search each job once")
        func pages() async throws {
            let web = try await WebProcess(redis.url, [:])
            // Requests each path to which a page links, once, and each path in the API's description.
            var (waiting, seen) = (["/", "/api/v1/openapi.json"], Set<String>())
            while let path = waiting.popLast() {
                let place = path.prefix { $0 != "?" }.replacing(/\/[0-9a-f]{10,}$/, with: "/")
                guard seen.insert(String(place)).inserted else { continue }
                var answer: RawConnection.Answer?
                let found = try await bytes { answer = try await RawConnection.request(path, port: web.port) }
                let page = try #require(answer)
                // A search reads each job once.
                let isSearch = path.contains("/devices/") || path.hasPrefix("/search")
                let limit = isSearch ? 6 * Self.count * Self.size : Self.limit
                #expect(page.status < 500 && found <= limit, "\(path): \(page.status), \(found) bytes")
                waiting += page.body.matches(of: /href="(\/[^"#]*)"/).map {
                    String($0.1).replacing("&amp;", with: "&")
                }
                waiting += page.body.matches(of: /"(\/api\/v1\/[^"]*)":/).map {
                    String($0.1).replacing("{token}", with: TestJob.token("ab", 1)).replacing(
                        "{campaign}", with: "news"
                    )
                    .replacing("{queue}", with: "default")
                }
            }
            let places = ["/jobs", "/dead", "/campaigns/news", "/queues/default", "/api/v1/jobs", "/api/v1/status"]
            #expect(seen.isSuperset(of: places), "\(seen.sorted())")
        }
    }
}
