import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

@Suite("Routing a job to a notification")
struct JobRouterTests {
    private let router = JobRouter(
        ["shop", "news"].map { name in
            var app = AppConfiguration(name: name, topic: "com.example.\(name)", credential: .providerTokens([]))
            app.otherTopics = [app.topic + ".pro"]
            return RoutedApp(app)
        })

    private func job(_ members: String) throws -> Job {
        try JobDecoder.decode(ByteBuffer(string: #"{"token":"abcd",\#(members)}"#))
    }

    private func notification(_ members: String, id: String = "job") throws -> Notification {
        let job = try job(members)
        return try router.apps[router.route(job).index].notification(
            for: job, identity: ByteBuffer(string: id), firstSeen: 1_000_000)
    }

    private func text(_ buffer: ByteBuffer?) -> String? {
        buffer.map { String(decoding: $0.readableBytesView, as: UTF8.self) }
    }

    @Test(
        "an app is chosen by its name, or by any of its topics with any suffix",
        arguments: [
            (#""app":"news""#, 1), (#""topic":"com.example.shop""#, 0), (#""topic":"com.example.news.voip""#, 1),
            (#""topic":"com.example.news.pro""#, 1), (#""topic":"com.example.shop.push-type.liveactivity""#, 0),
            (#""app":"shop","topic":"com.example.news""#, 0),
        ])
    func routes(_ members: String, app: Int) throws {
        #expect(try router.route(job(members + #","payload":{}"#)).index == app)
    }

    @Test(
        "a job that matches no app gets the reason",
        arguments: [
            (#""app":"other""#, "UnknownApp"), (#""topic":"com.example.other""#, "UnknownApp"),
            (#""priority":5"#, "NoApp"),
        ])
    func strangers(_ members: String, reason: String) throws {
        let job = try job(members + #","payload":{}"#)
        let error = #expect(throws: Reason.self) { try router.route(job) }
        #expect(error?.code.text == reason)
    }

    @Test(
        "a job that names an environment goes to the app of that environment, or nowhere",
        arguments: [
            (#""topic":"com.example.shop","environment":"production""#, 0, nil),
            (#""topic":"com.example.shop","environment":"Sandbox""#, 1, nil),
            (#""topic":"com.example.shop","sandbox":true"#, 1, nil),
            (#""topic":"com.example.shop","development":true,"production":false"#, 1, nil),
            (#""topic":"com.example.shop","production":true"#, 0, nil),
            (#""topic":"com.example.shop","environment":"staging""#, 0, nil), (#""sandbox":true"#, 1, nil),
            (#""app":"test","environment":"sandbox""#, 1, nil), (#""app":"local","environment":"sandbox""#, 2, nil),
            (#""app":"shop","environment":"sandbox""#, nil, "for the sandbox, and the app shop is for production"),
            (#""app":"test","production":true"#, nil, "for production, and the app test is for sandbox"),
            (
                #""app":"shop","production":true,"sandbox":true"#, nil,
                "for production and the sandbox, and the app shop"
            ),
            (#""topic":"com.example.other","sandbox":true"#, nil, "no app with the job's `topic`"),
        ] as [(String, Int?, String?)])
    func environments(_ members: String, app: Int?, words: String?) throws {
        let apps = [("shop", "shop", APNSEndpoint.production), ("test", "shop", .sandbox), ("local", "local", nil)]
            .map { name, topic, endpoint in
                var app = AppConfiguration(
                    name: name, topic: "com.example.\(topic)", credential: .providerTokens([]))
                app.endpoint = endpoint ?? APNSEndpoint(host: "localhost", port: 2197)
                return RoutedApp(app)
            }
        // A job needs no topic if only one app fits, so the app without an environment is left out.
        let router = JobRouter(members == #""sandbox":true"# ? Array(apps[..<2]) : apps)
        let job = try job(members + #","payload":{}"#)
        guard let words else {
            #expect(try router.route(job).index == app)
            return
        }
        let error = #expect(throws: Reason.self) { try router.route(job) }
        #expect(error?.code.text == "UnknownApp" && error?.detail?.contains(words) == true, "\(error?.detail ?? "")")
    }

    @Test("the push type's suffix is added to the app's topic and to the job's own")
    func topics() throws {
        let voip = #""push_type":"voip","payload":{}"#
        #expect(text(try notification(#""app":"shop","# + voip).topic) == "com.example.shop.voip")
        #expect(text(try notification(#""topic":"com.example.news.pro","# + voip).topic) == "com.example.news.pro.voip")
        #expect(text(try notification(#""topic":"com.example.news.voip","# + voip).topic) == "com.example.news.voip")
        #expect(text(try notification(#""app":"shop","payload":{}"#).topic) == "com.example.shop")
        let accessory = try notification(#""app":"shop","push_type":"accessory","payload":{"aps":{"keyID":"k"}}"#)
        #expect(text(accessory.topic) == "com.example.shop.push-type.accessory")
        #expect(accessory.pushType.name == "accessory")
    }

    @Test("with collapse_duplicates each job has its own collapse ID, the same at each attempt")
    func collapses() throws {
        let members = #""app":"shop","collapse_duplicates":true,"payload":{}"#
        let first = try notification(members)
        let again = try notification(members)
        let other = try notification(members, id: "other")
        #expect(first.collapseID != nil && first.collapseID == again.collapseID)
        #expect(first.apnsID == again.apnsID)
        #expect(first.collapseID != other.collapseID)
        #expect((first.collapseID?.readableBytes ?? 0) <= 64)
        let own = try notification(#""collapse_id":"mine","# + members)
        #expect(text(own.collapseID) == "mine")
        #expect(try notification(#""app":"shop","payload":{}"#).collapseID == nil)
    }

    @Test("short forms become the payload, and what APNs would refuse is refused with the rule")
    func payloads() throws {
        let short = try notification(#""app":"shop","alert":"hi","badge":1"#)
        #expect(text(short.payload) == #"{"aps":{"alert":"hi","badge":1}}"#)
        let background = try notification(#""app":"shop","content_available":true"#)
        #expect(background.pushType == .background && background.priority == 5)
        let error = #expect(throws: Reason.self) {
            try notification(#""app":"shop","content_available":true,"priority":10"#)
        }
        #expect(error?.code.text == "BadPriority")
    }
}
