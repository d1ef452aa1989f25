import APNS
import LegacyAPNS
import NIOCore
import PushJob
import PushQueue
import TLS
import Testing

@testable import PushWorker

@Suite("Changes by a reload")
struct AppDifferenceTests {
    private func app(_ name: String = "shop", _ change: (inout AppConfiguration) -> Void = { _ in }) -> AppConfiguration
    {
        var app = AppConfiguration(name: name, topic: "com.example.\(name)", credential: .providerTokens([]))
        app.renewal = (CredentialPlan(.certificate(.file("/a"), key: nil, passphrase: nil)), [[1]])
        change(&app)
        return app
    }

    static let transportChanges: [@Sendable (inout AppConfiguration) -> Void] = [
        { $0.endpoint = .sandbox }, { $0.trust = .file("/ca") }, { $0.transport = .gateway(GatewayOptions()) },
        { $0.minimumConnections = 0 }, { $0.maximumConnections = 9 }, { $0.idleTimeout = 1 },
        { $0.maximumConnectionAge = 1 }, { $0.maximumStreams = 1 }, { $0.requestTimeout = 1 },
        { $0.proxy = try? HTTPProxy("http://localhost:3128") },
    ]
    static let credentialChanges: [@Sendable (inout AppConfiguration) -> Void] = [
        { $0.renewal?.contents = [[2]] }, { $0.renewal = nil },
        { $0.renewal?.plan = CredentialPlan(.certificate(.file("/b"), key: nil, passphrase: nil)) },
    ]
    static let otherChanges: [@Sendable (inout AppConfiguration) -> Void] = [
        { $0.topic = "x" }, { $0.otherTopics = ["x"] }, { $0.maximumPerSecond = 1 },
    ]

    @Test("connections are replaced after changes that affect them, and the credential if it has changed")
    func changes() {
        func expect(
            _ isChanged: Bool, _ transport: Bool, _ credential: Bool, _ name: String,
            _ change: (inout AppConfiguration) -> Void
        ) {
            let difference = AppDifference(from: app(), to: app("shop", change))
            #expect(difference.isChanged == isChanged, "\(name)")
            #expect(difference.changesTransport == transport && difference.changesCredential == credential, "\(name)")
        }
        expect(false, false, false, "none") { _ in }
        for (index, change) in Self.transportChanges.enumerated() { expect(true, true, false, "\(index)", change) }
        for (index, change) in Self.credentialChanges.enumerated() { expect(true, false, true, "\(index)", change) }
        for (index, change) in Self.otherChanges.enumerated() { expect(true, false, false, "\(index)", change) }
    }

    @Test("apps are reported by name")
    func report() {
        let report = ReloadReport(
            from: [app("a"), app("b"), app("c")], to: [app("b") { $0.maximumPerSecond = 1 }, app("c"), app("d")])
        #expect(report.added == ["d"] && report.changed == ["b"] && report.removed == ["a"])
    }

    @Test("jobs are routed to the remaining apps, by their old indices")
    func router() throws {
        var router = JobRouter([app("a"), app("b")].map(RoutedApp.init))
        let job = { (text: String) throws in try JobDecoder.decode(ByteBuffer(string: text)) }
        let named = try job(#"{"token":"ab","app":"b","payload":{}}"#)
        let byTopic = try job(#"{"token":"ab","topic":"com.example.c","payload":{}}"#)
        let unnamed = try job(#"{"token":"ab","payload":{}}"#)
        #expect(try router.route(named).index == 1)
        router.replace([app("a"), app("b"), app("c")].map(RoutedApp.init)) { $0 < 1 }
        #expect(try router.route(named).index == 1)
        #expect(try router.route(byTopic).index == 2)
        #expect(throws: Reason.self) { try router.route(unnamed) }
        // An app that was removed and added again is a new app.
        router.replace([app("a"), app("b"), app("c"), app("b")].map(RoutedApp.init)) { $0 < 2 }
        #expect(try router.route(named).index == 3)
        router.replace([app("a"), app("b"), app("c"), app("b")].map(RoutedApp.init)) { $0 != 2 }
        #expect(try router.route(unnamed).index == 2)
        #expect(throws: Reason.self) { try router.route(named) }
    }
}
