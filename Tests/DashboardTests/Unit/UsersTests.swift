import Foundation
import HTTPPort
import NIOCore
import Operations
import TLS
import TestSupport
import Testing

@testable import Dashboard

@Suite struct UsersTests {
    @Test("A password is accepted with its name only, and a token without")
    func credentials() async throws {
        let (token, credential) = NewCredential.token()
        let users = try Users(
            """
            # name role credential
            ada operator \(NewCredential.password("correct horse"))

            ci  viewer   \(credential)
            """)
        let checks = PasswordChecks()
        for (name, password, isRight) in [
            ("ada", "correct horse", true), ("ada", "correct horsf", false), ("ada", "", false),
            ("bob", "correct horse", false), ("ci", token, false),
        ] { #expect(try await checks.isRight(password, of: users[name], from: "a") == isRight, "\(name) \(password)") }
        #expect(users["ada"]?.role == .operator && users["ci"] == nil)
        #expect(users.user(token: token)?.name == "ci")
        #expect(users.user(token: token + "0") == nil)
    }

    @Test("Each change of a user changes the user's fingerprint, and no other's")
    func fingerprints() throws {
        let lines = [NewCredential.password("correct horse"), NewCredential.password("correct horse")]
        #expect(lines[0] != lines[1])
        #expect(!lines[0].contains("correct"))
        func fingerprint(_ role: String, _ line: String, _ other: String = "") throws -> String? {
            try Users("ada \(role) \(line)\n\(other)")["ada"]?.fingerprint
        }
        let first = try fingerprint("viewer", lines[0])
        #expect(try fingerprint("viewer", lines[1]) != first)
        #expect(try fingerprint("operator", lines[0]) != first)
        #expect(try fingerprint("  viewer", lines[0], "bob viewer \(lines[1])") == first)
    }

    private static let token = "token$" + String(repeating: "0", count: 64)
    private static let password = NewCredential.password("correct horse")

    @Test("A producer's line has its queues, apps and the length at which they are full")
    func producers() throws {
        let (token, credential) = NewCredential.token()
        let rights = ProducerRights(queues: ["a", "b=c"], apps: ["shop"], maximumQueueLength: 5)
        #expect(rights.words == "queue=a queue=b=c app=shop max_queue_length=5")
        let user = try Users("shop producer \(credential) \(rights.words)").user(token: token)
        #expect(user?.role == .producer && user?.producer == rights)
        let other = try Users("shop producer \(credential) queue=a").user(token: token)
        #expect(other?.producer == ProducerRights(queues: ["a"]) && other?.fingerprint != user?.fingerprint)
    }

    @Test(
        "An invalid line is reported",
        arguments: [
            ("ada operator", "line 1: a user is a name, a role and a credential"),
            (
                "\r\nada admin token$00",
                "line 2: the second word is not a role; roles are viewer, operator and producer"
            ),
            ("ada viewer secret", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer scrypt$3$8$1$00$00", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer token$00", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer proxy$", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer proxy\nada operator \(password)", "line 2: duplicate user ada"),
            ("shop producer proxy queue=a", "line 1: a producer has a token, not a password"),
            ("# nothing", "the file has no users"), ("", "the file has no users"),
            ("ada viewer x queue=a", "line 1: only a producer has words after the credential"),
            ("shop producer \(token)", "line 1: a producer needs queue=NAME"),
            ("shop producer \(password) queue=a", "line 1: a producer has a token, not a password"),
            (
                "shop producer \(token) queue=a max_queue_length=0",
                "line 1: max_queue_length must be at least 1"
            ),
        ]
            + ["queue=", "queue={a}", "app=", "queues=a", "a", "="].map {
                (
                    "shop producer \(token) queue=a \($0)",
                    "line 1: a producer can only have queue=NAME, app=NAME and max_queue_length=NUMBER"
                )
            })
    func malformed(text: String, problem: String) {
        #expect(throws: Users.Malformed(description: problem)) { try Users(text) }
    }

}

@Suite("Checks of passwords") struct PasswordChecksTests {
    @Test("A sender with many waiting checks neither delays nor excludes the others")
    func fairness() async throws {
        let checks = PasswordChecks()
        let user = try Users("ada viewer \(NewCredential.password("correct horse"))")["ada"]
        try await withThrowingTaskGroup(of: (String, Bool?).self) { group in
            for _ in 0..<200 {
                group.addTask { ("stranger", try await checks.isRight("wrong", of: nil, from: "stranger")) }
            }
            // Waits until no further check can wait.
            var ended: [(String, Bool?)] = []
            while let one = try await group.next(), one.1 == nil || ended.count < 100 {
                ended.append(one)
                if one.1 == nil, ended.count == 100 { break }
            }
            group.addTask { ("ada", try await checks.isRight("correct horse", of: user, from: "ada")) }
            var before = 0
            while let (name, isRight) = try await group.next() {
                if name == "ada" {
                    #expect(isRight == true)
                    break
                }
                if isRight != nil { before += 1 }
            }
            #expect(before < 10)
            group.cancelAll()
        }
    }
}

@Suite("The file of users") struct UserFileTests {
    private typealias State = UserFile.State

    private static let lines = (1...3).map { "user\($0) operator \(NewCredential.token().credential)" }

    private func names(_ state: State) -> [String] {
        let all = try? Users(Self.lines.joined(separator: "\n"))
        return all == state.users ? ["all"] : state.users.isEmpty ? [] : ["some"]
    }

    private func read(_ state: inout State, _ text: String, at seconds: Int64) {
        state.read(.success(Array(text.utf8)), warning: nil, now: .uptimeNanoseconds(UInt64(seconds) * 1_000_000_000))
    }

    @Test("A bad line takes only its user's access, and is a problem")
    func badLine() {
        var state = State(path: "users")
        read(&state, Self.lines.joined(separator: "\n"), at: 100)
        #expect(names(state) == ["all"] && state.problems.isEmpty)
        read(&state, Self.lines[0] + "\nuser2 operator\n" + Self.lines[2], at: 101)
        #expect(names(state) == ["some"])
        #expect(state.problems == ["users, line 2: a user is a name, a role and a credential; this user has no access"])
        read(&state, Self.lines.joined(separator: "\n"), at: 102)
        #expect(names(state) == ["all"] && state.problems.isEmpty)
    }

    @Test(
        "A file that has no users, or cannot be read, keeps those before it for a minute", arguments: [nil, "", "# x"])
    func unusable(text: String?) {
        var state = State(path: "users")
        read(&state, Self.lines.joined(separator: "\n"), at: 100)
        func lose(at seconds: Int64) {
            guard let text else {
                let missing = Result { () throws(SecretSource.Unreadable) in try SecretSource.file("/no/users").read() }
                return state.read(missing, warning: nil, now: .uptimeNanoseconds(UInt64(seconds) * 1_000_000_000))
            }
            read(&state, text, at: seconds)
        }
        for seconds in [101, 130, 160] as [Int64] {
            lose(at: seconds)
            #expect(names(state) == ["all"] && state.problems.count == 1)
            #expect(state.problems[0].hasSuffix("the previous users keep their access for a minute"))
        }
        lose(at: 161)
        #expect(names(state) == [] && state.problems[0].hasSuffix("no user has access"))
        read(&state, Self.lines.joined(separator: "\n"), at: 162)
        #expect(names(state) == ["all"] && state.problems.isEmpty)
    }

    @Test("Changes at the same time are all kept")
    func together() throws {
        try withTemporaryDirectory { directory in
            let path = directory.appending(path: "users").path
            DispatchQueue.concurrentPerform(iterations: 40) { number in
                let line = "user-\(number) viewer scrypt$1"
                #expect(throws: Never.self) {
                    try UserFile.replace("user-\(number)", isToken: false, with: line, in: path)
                }
            }
            let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
            #expect(lines.count == 40 && Set(lines).count == 40)
        }
    }

    @Test("A line is added, replaced and removed; the rest, the mode and a symbolic link remain")
    func replaces() throws {
        try withTemporaryDirectory { directory in
            let path = directory.appending(path: "users").path
            func text() throws -> String { try String(contentsOfFile: path, encoding: .utf8) }
            func mode() throws -> Int {
                try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int ?? 0
            }
            #expect(try !UserFile.replace("ada", isToken: false, with: "ada viewer scrypt$1", in: path))
            #expect(try text() == "ada viewer scrypt$1\n" && mode() == 0o600)
            try Data("# ours\n\nada viewer scrypt$1\nada viewer token$1".utf8).write(to: URL(filePath: path))
            try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: path)
            #expect(try UserFile.replace("ada", isToken: false, with: "ada operator scrypt$2", in: path))
            #expect(try text() == "# ours\n\nada operator scrypt$2\nada viewer token$1\n" && mode() == 0o640)
            let link = directory.appending(path: "link").path
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "users")
            #expect(try UserFile.replace("ada", isToken: true, with: nil, in: link))
            #expect(try text() == "# ours\n\nada operator scrypt$2\n")
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == "users")
            #expect(try !UserFile.replace("bob", isToken: false, with: nil, in: path))
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).count == 2)
            #expect(throws: Users.Malformed.self) {
                try UserFile.replace("ada", isToken: false, with: "x", in: directory.appending(path: "no/users").path)
            }
        }
    }
}

@Suite("Limits on guesses of passwords") struct LoginLimitsTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("Attempts count when they begin: of hundreds at once for a name from an address, five are checked")
    func atOnce() {
        var limits = LoginLimits()
        let turns = (0..<400).map { _ in limits.take("ada", "10.0.0.1", now: start) }
        #expect(turns.prefix(5) == [.check, .check, .check, .check, .check])
        #expect(turns.dropFirst(5).allSatisfy { $0 == .refuse(60) })
        #expect(limits.take("ada", "10.0.0.1", now: start + .seconds(59)) == .refuse(1))
        #expect(limits.take("ada", "10.0.0.1", now: start + .seconds(60)) == .check)
    }

    @Test("Strangers slow others down, and do not keep them out")
    func strangers() {
        do {
            var limits = LoginLimits()
            // Behind an untrusted proxy, all visitors have the proxy's address.
            for index in 0..<500 { _ = limits.take("name \(index % 60)", "10.0.0.1", now: start) }
            #expect(limits.take("ada", "10.0.0.1", now: start) == .checkSlowly)
            // The limit for all attempts together.
            #expect(limits.take("ada", "10.0.0.2", now: start) == .checkSlowly)
        }
        var limits = LoginLimits()
        // One name, from many addresses.
        for index in 0..<500 { _ = limits.take("ada", "10.0.1.\(index)", now: start) }
        #expect(limits.take("ada", "10.0.0.2", now: start) == .checkSlowly)
        #expect(limits.take("bob", "10.0.0.2", now: start + .minutes(1)) == .check)
    }

    @Test("The turn of a right password is given back")
    func givenBack() {
        var limits = LoginLimits()
        for _ in 0..<500 {
            #expect(limits.take("ada", "10.0.0.1", now: start) == .check)
            limits.giveBack("ada", "10.0.0.1")
        }
    }

    @Test("Unknown names are kept in a bounded number")
    func bounded() {
        var limits = LoginLimits()
        for index in 0..<50_000 { _ = limits.take("n\(index)", "10.\(index)", now: start) }
        #expect(limits.counts.count <= 10_004)
    }
}

@Suite("Admission to the dashboard and its API") struct AdmissionTests {
    private static let token = NewCredential.token()
    private static let users =
        (try? Users(
            """
            ada operator \(NewCredential.token().credential)
            ada operator \(password)
            vic viewer \(password)
            ci operator \(token.credential)
            """)) ?? .none
    private static let password = NewCredential.password("correct horse")
    private static let value = Sessions.value()

    private static func admission(hasUsers: Bool = true, isReadOnly: Bool = false) -> Admission {
        Admission(hasUsers: hasUsers, isReadOnly: isReadOnly, viewersSeeContent: false, foreign: ForeignRequests())
    }

    private static func session(_ name: String, _ users: Users = users) -> Sessions.Session {
        .init(name: name, user: users[name]?.fingerprint ?? "", until: .max)
    }

    @Test("Without a session, pages lead to the login, and the API, changes and streams are refused")
    func strangers() {
        let admission = Self.admission()
        func entry(_ head: Admission.Head) -> Admission.Entry { admission.entry(head, Self.users, session: nil) }
        #expect(entry(.init(path: "/")) == .login(to: nil))
        #expect(entry(.init(path: "/jobs", query: "a=b")) == .login(to: "/jobs?a=b"))
        for path in ["/login", "/assets/x.js", "/healthz"] { #expect(entry(.init(path: path)) == .open, "\(path)") }
        #expect(entry(.init(path: "/", isStream: true)) == .noContent)
        for head: Admission.Head in [
            .init(path: "/api/v1/status"), .init(isGet: false, isPost: true, path: "/actions/x"),
            .init(path: "/api/v1/status", authorization: "Bearer x"),
            .init(path: "/api/v1/status", authorization: "Bearer "),
            .init(path: "/api/v1/status", authorization: "Basic \(Self.token.token)"),
        ] {
            guard case .refused(.unauthorized, _) = entry(head) else {
                Issue.record("\(head) is admitted")
                continue
            }
        }
    }

    @Test("A session is its user's as long as the user's line is the same")
    func sessions() throws {
        let head = Admission.Head(path: "/", session: Self.value)
        func visitor(_ session: Sessions.Session, _ users: Users = Self.users, isReadOnly: Bool = false) -> Visitor? {
            let admission = Self.admission(isReadOnly: isReadOnly)
            guard case .admitted(let visitor, nil) = admission.entry(head, users, session: session) else { return nil }
            return visitor
        }
        let ada = try #require(visitor(Self.session("ada")))
        #expect(ada.name == "ada" && ada.role == .operator && ada.seesContent && ada.formToken.count == 64)
        let vic = try #require(visitor(Self.session("vic")))
        #expect(vic.role == .viewer && !vic.seesContent)
        #expect(visitor(Self.session("ada"), isReadOnly: true)?.role == .viewer)
        #expect(visitor(Self.session("ci")) == nil, "a program has no sessions")
        #expect(visitor(Self.session("ada"), .none) == nil)
        for line in [
            "ada viewer \(Self.password)", "ada operator \(NewCredential.password("correct horse"))",
            "vic viewer \(Self.password)",
        ] {
            let users = try Users(line)
            #expect(visitor(Self.session("ada"), users) == nil, "\(line)")
        }
    }

    @Test("A token is a program's; its rights do not depend on cookies, and it needs no form token")
    func tokens() {
        let head = Admission.Head(
            isGet: false, isPost: true, path: "/api/v1/actions/x", fetchSite: "cross-site",
            authorization: "bearer \(Self.token.token)", session: Self.value)
        let admission = Self.admission()
        guard case .admitted(let visitor, nil) = admission.entry(head, Self.users, session: Self.session("vic")) else {
            Issue.record("it is refused")
            return
        }
        #expect(visitor.name == "ci" && visitor.role == .operator && visitor.formToken.isEmpty)
        #expect(admission.refusal(of: head, formToken: "", visitor) == nil)
    }

    @Test("A change needs the form token of its session, and a page of this site", arguments: [true, false])
    func forms(hasUsers: Bool) {
        let admission = Self.admission(hasUsers: hasUsers)
        func refused(_ token: String, _ change: (inout Admission.Head) -> Void = { _ in }) -> Bool {
            var head = Admission.Head(
                isGet: false, isPost: true, path: "/actions/x", host: "127.0.0.1", session: Self.value)
            change(&head)
            switch admission.entry(head, Self.users, session: Self.session("ada")) {
            case .admitted(let visitor, _): return admission.refusal(of: head, formToken: token, visitor) != nil
            case .open: return admission.refusal(of: head, formToken: token, nil) != nil
            case .login, .noContent, .refused: return true
            }
        }
        let token = Admission.formToken(Self.value)
        #expect(!refused(token))
        #expect(refused("") && refused("0") && refused(Admission.formToken(Sessions.value())))
        for site in ["cross-site", "same-site", "none", ""] {
            #expect(refused(token) { $0.fetchSite = site }, "\(site)")
        }
        for origin in ["https://evil.example", "null", "http://127.0.0.1.evil.example", "127.0.0.1"] {
            #expect(refused(token) { $0.origin = origin }, "\(origin)")
            #expect(refused(token) { ($0.origin, $0.path) = (origin, "/login") }, "\(origin)")
        }
        #expect(!refused(token) { $0.origin = "https://127.0.0.1" })
        #expect(!refused("") { $0.path = "/login" })
        // A browser's session needs its form token even if the request has a token, too.
        #expect(refused("") { $0.authorization = hasUsers ? "Bearer x" : "Bearer \(Self.token.token)" })
    }

    @Test("Without users, a browser gets a session for its forms, and a program learns how to get a token")
    func withoutUsers() throws {
        let admission = Self.admission(hasUsers: false)
        guard case .admitted(let visitor, let new?) = admission.entry(.init(path: "/"), .none, session: nil) else {
            Issue.record("it is refused")
            return
        }
        #expect(visitor.role == .operator && visitor.formToken == Admission.formToken(new) && Sessions.isValue(new))
        for host in ["localhost:1", "127.0.0.1", "[::1]:8080"] {
            let entry = admission.entry(.init(path: "/", host: host, session: new), .none, session: nil)
            #expect(entry == .admitted(visitor, newSession: nil), "\(host)")
        }
        guard
            case .refused(.forbidden, _) = admission.entry(.init(path: "/", host: "evil.example"), .none, session: nil)
        else {
            Issue.record("another host name is accepted")
            return
        }
        let program = Admission.Head(isGet: false, isPost: true, path: "/api/v1/actions/x")
        let refusal = try #require(admission.refusal(of: program, formToken: "", visitor))
        #expect(refusal.problem.contains("web-user NAME --role operator --token"))
    }

    @Test("A header of a proxy names a user if it has one value, which is a plain name")
    func proxyUser() {
        typealias User = Admission.ProxyUser
        for name in ["ada", "ada@example.com", "#1", String(repeating: "a", count: 128)] {
            #expect(User([name]) == .named(name))
        }
        let others = [
            "", " ", "ada grace", "ada,grace", ",", "ada\u{0}", "ada\u{7F}", "ad\u{E4}", "\u{202E}ada", "ada\t",
            String(repeating: "a", count: 129),
        ]
        for name in others { #expect(User([name]) == .unnamed, "\(name)") }
        #expect(User([]) == .unnamed && User(["ada", "ada"]) == .unnamed && User(["", "ada"]) == .unnamed)
    }

    @Test("A user whom a proxy names has the role of the file, and no session, token or password")
    func proxied() throws {
        let users = try Users("grace operator proxy\nvic viewer \(Self.password)\nci operator \(Self.token.credential)")
        func entry(
            _ user: Admission.ProxyUser, _ users: Users, session: Sessions.Session? = nil, admitsUnlisted: Bool = false,
            _ change: (inout Admission.Head) -> Void = { _ in }
        ) -> Admission.Entry {
            var admission = Self.admission()
            admission.admitsUnlisted = admitsUnlisted
            var head = Admission.Head(path: "/", session: Self.value, proxyUser: user)
            change(&head)
            return admission.entry(head, users, session: session)
        }
        func visitor(_ entry: Admission.Entry) -> Visitor? {
            if case .admitted(let visitor, _) = entry { visitor } else { nil }
        }
        let grace = try #require(visitor(entry(.named("grace"), users)))
        #expect(grace.by == "grace (web)" && grace.role == .operator && grace.isOfProxy)
        #expect(grace.formToken == Admission.formToken(Self.value))
        #expect(visitor(entry(.named("vic"), users))?.role == .viewer)
        // The first page gives the browser a value for its forms.
        guard case .admitted(let first, let new?) = entry(.named("grace"), users, { $0.session = "" }) else {
            Issue.record("it has no value")
            return
        }
        #expect(first.formToken == Admission.formToken(new))
        for (name, admitsUnlisted) in [("ci", false), ("bob", false), ("Grace", false)] {
            guard case .refused(.forbidden, _) = entry(.named(name), users, admitsUnlisted: admitsUnlisted) else {
                Issue.record("\(name) is admitted")
                continue
            }
        }
        let bob = visitor(entry(.named("bob"), users, admitsUnlisted: true))
        #expect(bob?.role == .viewer && bob?.seesContent == false)
        // An unusable file admits no one.
        #expect(visitor(entry(.named("bob"), .none, admitsUnlisted: true)) == nil)
        // Only the name counts, even if the request has a token or a session.
        let both = entry(.named("vic"), users, session: Self.session("grace", users)) {
            $0.authorization = "Bearer \(Self.token.token)"
        }
        #expect(visitor(both)?.name == "vic")
        // Without a name, only a program's token counts.
        for path in ["/", "/login", "/api/v1/status"] {
            guard
                case .refused(.unauthorized, _) = entry(
                    .unnamed, users, session: Self.session("vic", users), { $0.path = path })
            else {
                Issue.record("\(path) is open")
                continue
            }
        }
        #expect(entry(.unnamed, users, { $0.path = "/healthz" }) == .open)
        #expect(visitor(entry(.unnamed, users) { $0.authorization = "Bearer \(Self.token.token)" })?.name == "ci")
        // A proxy's own token does not replace the form token.
        let head = Admission.Head(
            isGet: false, isPost: true, path: "/actions/x", authorization: "Bearer \(Self.token.token)",
            session: Self.value, proxyUser: .named("grace"))
        #expect(Self.admission().refusal(of: head, formToken: "", grace) != nil)
        #expect(Self.admission().refusal(of: head, formToken: grace.formToken, grace) == nil)
        // A user with the credential `proxy` cannot log in without the proxy.
        #expect(Self.admission().entry(.init(path: "/"), users, session: nil) == .login(to: nil))
    }

    @Test("A producer's token can enqueue jobs, and nothing else", arguments: [false, true])
    func producer(isReadOnly: Bool) throws {
        let (token, credential) = NewCredential.token()
        let users = try Users("shop producer \(credential) queue=a")
        var admission = Self.admission(hasUsers: true)
        admission = Admission(
            hasUsers: true, isReadOnly: isReadOnly, viewersSeeContent: true, foreign: admission.foreign)
        func entry(_ path: String, isGet: Bool = false) -> Admission.Entry {
            let head = Admission.Head(isGet: isGet, isPost: !isGet, path: path, authorization: "Bearer \(token)")
            return admission.entry(head, users, session: nil)
        }
        guard case .admitted(let visitor, nil) = entry("/api/v1/jobs") else {
            Issue.record("it is refused")
            return
        }
        #expect(visitor.role == .producer && visitor.producer?.queues == ["a"] && !visitor.seesContent)
        let others = [
            "", "/", "/jobs", "/try", "/try/check", "/actions/enqueue", "/api/v1/jobs/", "/api/v1/jobs/a/b",
            "/api/v1/check",
            "/api/v1/actions/pause-queue", "/api/v1/status", "/api/v1/openapi.json", "/API/v1/jobs", "//api/v1/jobs",
        ]
        let requests = others.flatMap { [($0, false), ($0, true)] } + [("/api/v1/jobs", true)]
        for (path, isGet) in requests {
            guard case .refused(.forbidden, _) = entry(path, isGet: isGet) else {
                Issue.record("\(path) is not refused")
                continue
            }
        }
    }

    @Test("No head of random parts gets more than its credential allows")
    func random() {
        var generator = SeededGenerator(seed: 34)
        func pick<Value>(_ values: [Value]) -> Value { values.randomElement(using: &generator) ?? values[0] }
        let parts = [
            "", "Bearer ", "bearer", Self.token.token, Self.value, "%", "\u{0}", ";", "=", "..", "/", "\u{202E}", "0",
        ]
        for _ in 0..<20_000 {
            func text() -> String { (0..<Int.random(in: 0...4, using: &generator)).map { _ in pick(parts) }.joined() }
            let head = Admission.Head(
                isGet: .random(using: &generator), isPost: .random(using: &generator),
                path: pick(["/", "/api/v1/status", "/actions/x", "/login", "/\(text())"]), query: pick([nil, text()]),
                host: pick([nil, text()]), origin: pick([nil, text()]), fetchSite: pick([nil, text()]),
                authorization: pick([nil, text()]), session: text(), isStream: .random(using: &generator))
            let entry = Self.admission().entry(head, Self.users, session: nil)
            guard case .admitted(let visitor, _) = entry else { continue }
            #expect(visitor.name == "ci" && head.bearer == Self.token.token, "\(head)")
        }
    }
}

@Suite struct FormTests {
    @Test("A form is decoded as browsers encode it")
    func decodes() {
        let form = Fields("a=1&a=2&b=x+y%26%3D%C3%A9&c=&d&e=%zz%4")
        #expect(form.all("a") == ["1", "2"])
        #expect(form["b"] == "x y&=é")
        #expect(form["c"] == nil)
        #expect(form["d"] == nil)
        #expect(form["e"] == "%zz%4")
        // Not hex digits: a sign, and digits of other scripts.
        #expect(Fields("a=%+f%-1%٣٣%1").raw("a") == "% f%-1%٣٣%1")
        #expect(form.without(["a"]).map(\.name) == ["b", "e"])
    }

    @Test("A value is unchanged, because names are their bytes, and one of spaces only is none")
    func spaces() {
        let form = Fields("campaign=++why++&job=+%7B%7D%0A&id=++")
        #expect(form["campaign"] == "  why  " && form["id"] == nil)
        #expect(form.raw("job") == " {}\n")
    }
}

@Suite struct DashboardDescriptionTests {
    private struct Description: Decodable {
        struct Server: Decodable { let url: String }
        let openapi: String
        let servers: [Server]
        let paths: [String: [String: Operation]]
    }

    private struct Operation: Decodable { let summary: String }

    @Test("OpenAPI describes each action, and no other")
    func actions() throws {
        let text = DashboardAPI.description(base: "/push")
        let description = try JSONDecoder().decode(Description.self, from: Data(text.utf8))
        #expect(description.servers.map(\.url) == ["/push"])
        let prefix = "/api/v1/actions/"
        let described = Set(
            description.paths.keys.filter { $0.hasPrefix(prefix) }.map { String($0.dropFirst(prefix.count)) })
        #expect(described == Set(ActionKind.all.filter(\.isInAPI).map(\.name)).union(["confirm-run", "stop-run"]))
        for (path, operations) in description.paths where path != "/api/v1/jobs" {
            #expect(operations.keys.sorted() == [path.hasPrefix(prefix) || path.hasSuffix("/check") ? "post" : "get"])
        }
    }

    @Test("Each reference of the description has its target, and no place of the file is left empty")
    func references() throws {
        let text = DashboardAPI.description(base: "")
        let root = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        let components = try #require(root["components"] as? [String: [String: Any]])
        let references = Set(text.matches(of: /#\/components\/(\w+)\/(\w+)/).map { [String($0.1), String($0.2)] })
        #expect(references.count > 20)
        for reference in references { #expect(components[reference[0]]?[reference[1]] != nil, "\(reference)") }
        for place in ["BASE", "GET", "PATHS", "SCHEMAS"] { #expect(!text.contains("\"\(place)\"")) }
    }
}
