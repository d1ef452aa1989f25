import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Users whom a proxy names")
    struct UserHeaderTests {
        /// The address of the trusted proxy. Other requests come from 127.0.0.1.
        private static let proxy = "127.0.0.2"

        private struct Site {
            let web: WebProcess

            /// - Parameter user: the values of the header `X-User`. Each has its own line.
            func ask(
                _ path: String, as user: [String] = [], from address: String = proxy, _ options: [String] = []
            ) async throws -> (status: Int, text: String) {
                let headers = user.flatMap { ["-H", $0.isEmpty ? "X-User;" : "X-User: \($0)"] }
                let curl = try ChildProcess(
                    "curl",
                    ["-sS", "-i", "--noproxy", "*", "--interface", address] + headers + options + [web.address + path])
                #expect(try await curl.wait() == .exited(0), "\(curl.errors)")
                let status = try #require(curl.output.firstMatch(of: /^HTTP\/1.1 (\d+)/).flatMap { Int($0.1) })
                return (status, curl.output)
            }

            /// Sends the form that pauses the queue, and returns the status.
            func pause(as user: String, _ change: [String] = []) async throws -> Int {
                let page = try await ask("/queues/default", as: [user]).text
                let cookie = try #require(page.firstMatch(of: /(?i)set-cookie: ([^;]+);/)?.1)
                let token = try #require(page.firstMatch(of: /name="form_token" value="([0-9a-f]+)"/)?.1)
                let form = ["-H", "Cookie: \(cookie)", "-d", "form_token=\(token)&queue=default&reason=x"]
                return try await ask("/actions/pause-queue", as: [user], form + change).status
            }
        }

        private static func start(
            _ redis: RedisServer, _ options: [String] = []
        ) async throws -> (site: Site, token: String) {
            try redis.push(TestJob.many(1))
            let web = try await WebProcess(
                redis.url, ["ci": ["--role", "operator"]],
                ["--trusted-proxy", proxy, "--user-header", "x-user"] + options)
            for arguments in [["grace", "--role", "operator"], ["vic", "--role", "viewer"]] {
                try await CommandLineTests.run(["web-user", "--proxy", "--users", web.path("users")] + arguments)
                    .succeeds()
            }
            return (Site(web: web), try #require(web.tokens["ci"]))
        }

        @Test("The users of a trusted proxy have their roles, and the audit log names them")
        func named() async throws {
            let redis = try RedisServer()
            let (site, _) = try await Self.start(redis)
            try await eventually("the file is read again") { try await site.ask("/", as: ["grace"]).status == 200 }
            let page = try await site.ask("/", as: ["grace"]).text
            #expect(page.contains("<span class=\"account\">grace (operator)</span>") && !page.contains("Log out"))
            #expect(try await site.pause(as: "grace", ["-H", "Sec-Fetch-Site: cross-site"]) == 403)
            #expect(try await site.pause(as: "grace") == 303)
            #expect(try await site.ask("/activity", as: ["vic"]).text.contains("grace (web)"))
            // A viewer also has a form token, because a viewer can choose colors.
            #expect(try await site.pause(as: "vic") == 403)
            #expect(try await site.ask("/login", as: ["vic"]).status == 303)
            #expect(try await site.ask("/", as: ["bob"]).status == 403)
            try await CommandLineTests.run(["web-user", "grace", "--remove", "--users", site.web.path("users")])
                .succeeds()
            try await eventually("the access ends") { try await site.ask("/", as: ["grace"]).status == 403 }
        }

        @Test("The header of another peer means nothing, and a trusted proxy must send it once")
        func strangers() async throws {
            let redis = try RedisServer()
            let (site, token) = try await Self.start(redis, ["--unlisted-users-view"])
            let bearer = ["-H", "Authorization: Bearer \(token)"]
            for user in [["grace"], ["grace", "grace"], [""], []] {
                let page = try await site.ask(
                    "/", as: user, from: "127.0.0.1", ["-H", "X-Forwarded-For: \(Self.proxy)"])
                #expect(page.status == 303 && page.text.contains("/login"), "\(user)")
                #expect(try await site.ask("/api/v1/status", as: user, from: "127.0.0.1").status == 401, "\(user)")
                #expect(try await site.ask("/api/v1/status", as: user, from: "127.0.0.1", bearer).status == 200)
            }
            for user in [[], [""], ["grace", "grace"], ["vic", "grace"], ["vic,grace"], ["grace x"]] {
                for path in ["/", "/login", "/queues", "/api/v1/status"] {
                    #expect(try await site.ask(path, as: user).status == 401, "\(user) \(path)")
                }
                let login = ["-d", "name=grace&password=x"]
                #expect(try await site.ask("/login", as: user, login).status == 401, "\(user)")
                #expect(try await site.ask("/healthz", as: user).status == 200, "\(user)")
                #expect(try await site.ask("/api/v1/status", as: user, bearer).status == 200, "\(user)")
            }
            let other = try await site.ask("/", as: ["bob"], bearer)
            #expect(other.status == 200 && other.text.contains("bob (viewer)"))
        }

        @Test(
            "Settings that would trust too much are refused",
            arguments: [
                (["--user-header", "X-User", "--trusted-proxy", "10.0.0.0/8"], "--user-header needs --users"),
                (["--user-header", "X-User", "--users", "users"], "--user-header needs --users"),
                (
                    ["--user-header", "X-User", "--trusted-proxy", "10.0.0.1", "--trusted-proxy", "::/0"],
                    "with --trusted-proxy ::/0, every client could name any user"
                ), (["--user-header", "X User", "--trusted-proxy", "10.0.0.1"], "not a name of a header"),
                (["--unlisted-users-view"], "--unlisted-users-view needs --user-header"),
            ])
        func refused(options: [String], message: String) async throws {
            let folder = try TemporaryFolder()
            try folder.write("vic viewer proxy\n", as: "users")
            let users = folder.path("users")
            var options = options.map { $0 == "users" ? users : $0 }
            if message.contains("every client") { options += ["--users", users] }
            try await CommandLineTests.run(["web", "--port", "0"] + options).fails(64, message)
        }
    }
}
