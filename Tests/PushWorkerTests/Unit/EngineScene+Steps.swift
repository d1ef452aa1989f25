import APNS
import Foundation
import NIOCore
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

extension EngineScene {
    /// Ends the oldest unanswered request, and settles its job.
    func finish(_ result: RequestResult = delivered) {
        answer(result)
        run()
    }

    func finish(_ reason: APNSReason, retryAfter: Int? = nil) {
        answer(reason, retryAfter: retryAfter)
        run()
    }

    /// Pushes jobs with these tokens, and ends each request before the next.
    func finishEach(_ tokens: Range<Int>, _ result: RequestResult = delivered) {
        for token in tokens {
            pushOne(token: String(token))
            answer(result)
        }
    }

    /// Delivers the notifications in flight until there are none.
    func deliverAll() {
        while !transport.submitted.isEmpty { answer(Self.delivered) }
        run()
    }

    /// Advances time. Jobs return when they are due, and requests of the first app are answered at once, or not at all.
    func pass(_ time: TimeAmount, answer: () -> RequestResult?) { passByToken(time) { _ in answer() } }

    /// The same.
    /// - Parameter answer: gets the device token of each request.
    func passByToken(_ time: TimeAmount, answer: (String) -> RequestResult?) {
        let end = loop.now + time
        var since: [UInt64: NIODeadline] = [:]
        while loop.now < end {
            run(.milliseconds(200))
            if queue.returnDue() { lane.wake(QueueID(index: 0)) }
            let now = loop.now
            for index in transport.submitted.indices.reversed() {
                if let result = answer(String(buffer: transport.submitted[index].notification.deviceToken.hex)) {
                    transport.isUnanswered = false
                    transport.answer(result, at: index)
                    continue
                }
                let began = since[transport.submitted[index].tag] ?? now
                since[transport.submitted[index].tag] = began
                if now - began >= .seconds(5) { transport.isUnanswered = true }
                guard now - began >= .seconds(20) else { continue }
                since[transport.submitted[index].tag] = nil
                transport.answer(.uncertain(.timedOut), at: index)
            }
        }
    }

    /// A signing key for which requests need a token.
    static func keyCredential() throws -> AppConfiguration.Credential {
        let key = try SigningKey(pem: Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        return .providerTokens([try ProviderTokenSource(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")])
    }

    /// Makes the lane claim postponed jobs, of which some must be due.
    func claimPostponed(after time: TimeAmount, _ sourceLocation: SourceLocation = #_sourceLocation) {
        run(time)
        #expect(queue.returnDue(), sourceLocation: sourceLocation)
        lane.wake(QueueID(index: 0))
        run()
    }
}

extension JobCommands.Command {
    init(_ change: (inout JobCommands.Command) -> Void) {
        self.init()
        change(&self)
    }
}
