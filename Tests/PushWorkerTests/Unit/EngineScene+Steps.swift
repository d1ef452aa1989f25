import APNS
import NIOCore
import PushQueue
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
