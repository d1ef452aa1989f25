import FoundationEssentials
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
        #expect(await users.user("ada", password: "correct horse")?.role == .operator)
        #expect(await users.user("ada", password: "correct horsf") == nil)
        #expect(await users.user("ada", password: "") == nil)
        #expect(await users.user("bob", password: "correct horse") == nil)
        #expect(await users.user("ci", password: token) == nil)
        #expect(users.user(token: token)?.name == "ci")
        #expect(users.user(token: token + "0") == nil)
        #expect(users.role(of: "ada") == .operator)
        #expect(users.role(of: "ci") == nil)
    }

    @Test("Two hashes of a password differ, and so do the keys of two files")
    func salts() throws {
        let lines = [NewCredential.password("correct horse"), NewCredential.password("correct horse")]
        #expect(lines[0] != lines[1])
        #expect(!lines[0].contains("correct"))
        let keys = try lines.map { try Users("ada viewer \($0)").sessionKey }
        #expect(keys[0] != keys[1])
    }

    @Test(
        "An invalid line is reported",
        arguments: [
            ("ada operator", "line 1: a user is a name, a role and a credential"),
            ("\nada admin token$00", "line 2: admin is not a role; roles are viewer and operator"),
            ("ada viewer secret", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer scrypt$3$8$1$00$00", "line 1: the credential was not made by `apns-worker web-user`"),
            ("ada viewer token$00", "line 1: the credential was not made by `apns-worker web-user`"),
            ("# nothing", "the file has no users"), ("", "the file has no users"),
        ])
    func malformed(text: String, problem: String) {
        #expect(throws: Users.Malformed(description: problem)) { try Users(text) }
    }

    @Test("A name can have one password")
    func twice() throws {
        let credential = NewCredential.password("correct horse")
        #expect(throws: Users.Malformed(description: "line 2: duplicate user ada")) {
            try Users("ada viewer \(credential)\nada operator \(credential)")
        }
        _ = try Users("ada viewer \(credential)\nada operator \(NewCredential.token().credential)")
    }

    @Test("Five wrong passwords within a minute are too many for a name from an address")
    func limits() {
        let limits = LoginLimits()
        for _ in 0..<5 {
            #expect(limits.wait("ada", "10.0.0.1") == nil)
            limits.failed("ada", "10.0.0.1")
        }
        #expect((1...60).contains(limits.wait("ada", "10.0.0.1") ?? 0))
        #expect(limits.wait("bob", "10.0.0.1") == nil)
        #expect(limits.wait("ada", "10.0.0.2") == nil)
        for index in 0..<15 { limits.failed("name \(index)", "10.0.0.1") }
        #expect(limits.wait("bob", "10.0.0.1") != nil)
    }
}

@Suite struct FormTests {
    @Test("A form is decoded as browsers encode it")
    func decodes() {
        let form = Form("a=1&a=2&b=x+y%26%3D%C3%A9&c=&d&e=%zz%4")
        #expect(form.all("a") == ["1", "2"])
        #expect(form["b"] == "x y&=é")
        #expect(form["c"] == nil)
        #expect(form["d"] == nil)
        #expect(form["e"] == "%zz%4")
        #expect(form.without(["a"]).map(\.name) == ["b", "e"])
    }

    @Test("A value is trimmed, but a text is unchanged")
    func spaces() {
        let form = Form("reason=++why++&job=+%7B%7D%0A")
        #expect(form["reason"] == "why")
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
        #expect(described == Set(Actions.all.keys))
        for (path, operations) in description.paths {
            #expect(operations.keys.sorted() == [path.hasPrefix(prefix) || path.hasSuffix("/check") ? "post" : "get"])
        }
    }
}
