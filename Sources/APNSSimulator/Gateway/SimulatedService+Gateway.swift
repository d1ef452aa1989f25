// What connections to the binary gateway and to the feedback service ask of the service.
extension SimulatedService {
    /// Whether a notification has to be asked about at all.
    var judgesGatewayNotifications: Bool { state.withLock { $0.gatewayScript.judgesNotifications } }

    var gatewayRules: [GatewayRule] { state.withLock { $0.gatewayScript.rules } }

    /// Replaces the rules; their counts start anew.
    func setGatewayRules(_ rules: [GatewayRule]) { state.withLock { $0.gatewayScript = GatewayScript(rules: rules) } }

    /// Adds a rule behind the others, whose counts go on.
    func addGatewayRule(_ rule: GatewayRule) { state.withLock { $0.gatewayScript.add(rule) } }

    /// Enters the connection of a client that is taken into the account, and decides about it.
    /// - Returns: the connection's number, from 1, and what is decided.
    func judgeGatewayConnection() -> (number: Int, verdict: GatewayScript.Verdict?) {
        state.withLock { state in
            state.account.gateway.connections += 1
            return (state.account.gateway.connections, state.gatewayScript.judgeConnection(&state.generator))
        }
    }

    /// Decides about a notification that passed every check.
    func judgeGateway(_ token: SimulatedToken, ordinal: Int) -> GatewayScript.Verdict? {
        state.withLock { $0.gatewayScript.judge(token, ordinal: ordinal, &$0.generator) }
    }

    func clientRefused() { state.withLock { $0.account.gateway.refusedClients += 1 } }

    func add(_ tally: GatewayTally) { state.withLock { $0.account.add(tally) } }

    // MARK: Feedback

    /// Notes that an app is gone, for the feedback service to tell; for nobody if there is none.
    /// - Parameter milliseconds: since 1970.
    func addFeedback(_ token: SimulatedToken, milliseconds: Int64) {
        guard configuration.feedbackPort != nil else { return }
        addFeedback([FeedbackRecord(token: token, seconds: UInt32(clamping: milliseconds / 1000))])
    }

    /// - Returns: how many wait to be told.
    @discardableResult
    func addFeedback(_ records: [FeedbackRecord]) -> Int {
        state.withLock { state in
            for record in records { state.feedback.add(record) }
            state.account.feedback.waiting = state.feedback.count
            return state.feedback.count
        }
    }

    /// What the feedback service has to tell.
    var waitingFeedback: [FeedbackRecord] { state.withLock { $0.feedback.waiting } }

    /// Forgets what the feedback service has to tell.
    /// - Returns: how many records that were.
    func forgetFeedback() -> Int {
        state.withLock { state in
            defer {
                state.feedback = FeedbackList()
                state.account.feedback.waiting = 0
            }
            return state.feedback.count
        }
    }

    /// Takes records off the list: they are forgotten.
    func takeFeedback(_ count: Int) -> [FeedbackRecord] {
        state.withLock { state in
            let records = state.feedback.take(count)
            state.account.feedback.served += records.count
            state.account.feedback.waiting = state.feedback.count
            return records
        }
    }

    /// Enters a connection to the feedback service into the account, and says how it goes.
    func feedbackConnectionOpened() -> FeedbackDelivery {
        state.withLock { state in
            state.account.feedback.connections += 1
            let fault = state.feedbackScript.next()
            return FeedbackDelivery(fault, seed: state.generator.next())
        }
    }

    func feedbackClientRefused() { state.withLock { $0.account.feedback.refusedClients += 1 } }
}
