extension Job {
    /// The kind of notification of a job without ``pushType``.
    package enum Kind: Equatable, Sendable {
        /// Any other notification.
        case alert
        /// `content-available` 1 or true, and nothing to show: no `alert`, `badge` or `sound` (Apple: "Pushing
        /// background updates to your App").
        case background
        /// For a channel, because broadcasts are for Live Activities alone; with the short form `event` or
        /// `content_state`; or with a payload whose `aps` has `event` (`start`, `update` or `end`) beside
        /// `content-state` or `timestamp`, or any `event` beside both.
        case liveActivity
        /// With the short form `mdm`, or a payload with `mdm` and nothing in `aps` to show.
        case mdm
        /// `content-changed`, for widgets or for controls: the topic, which could distinguish them, does not.
        case widgetOrControl
        /// `content-changed`, and a topic that ends in `.push-type.widgets`.
        case widgets
        /// `content-changed`, and a topic that ends in `.push-type.controls`.
        case controls
    }

    /// The kind of notification. Use it only for jobs without ``pushType``.
    package var kind: Kind {
        if channel != nil || isLiveActivity { return .liveActivity }
        if traits.contains(.shortForms), facts.named.contains(.mdm), traits.contains(.mdm) { return .mdm }
        guard facts.named.isDisjoint(with: .visible) else { return .alert }
        if facts.valid.contains(.contentAvailable) { return .background }
        if facts.valid.contains(.contentChanged) { return kindOfReload }
        return facts.valid.contains(.mdm) && !traits.contains(.shortForms) ? .mdm : .alert
    }

    private var isLiveActivity: Bool {
        let (named, valid) = (facts.named, facts.valid)
        // Only the worker reads short forms. In a payload, an app may have data of its own with these names.
        if traits.contains(.shortForms) {
            return !traits.contains(.mdm) && !named.isDisjoint(with: [.event, .contentState])
        }
        guard named.contains(.event) else { return false }
        return facts.event != nil
            ? !valid.isDisjoint(with: [.contentState, .timestamp])
            : valid.isSuperset(of: [.contentState, .timestamp])
    }

    private var kindOfReload: Kind {
        guard let topic else { return .widgetOrControl }
        let text = self.text(topic).readableBytesView
        if text.suffix(18).elementsEqual(".push-type.widgets".utf8) { return .widgets }
        return text.suffix(19).elementsEqual(".push-type.controls".utf8) ? .controls : .widgetOrControl
    }
}
