import ArgumentParser

/// What only apps have whose notifications travel by the binary gateway.
struct GatewayFlags: ParsableArguments {
    @Option(
        help: """
            Which command of the protocol: items (2), enhanced (1) or simple (0), of which nothing is learned. \
            (APNS_WORKER_GATEWAY_FRAME; default items)
            """)
    var gatewayFrame: String?

    @Option(help: "Bytes that are written at once. (APNS_WORKER_GATEWAY_BATCH_BYTES; default 16384, a TLS record's)")
    var gatewayBatchBytes: Int?

    @Option(help: "How long a write waits for more, in ms. (APNS_WORKER_GATEWAY_BATCH_TIME; default 2)")
    var gatewayBatchTime: Int?

    @Option(
        help: """
            After how many ms without an error a notification counts as delivered, up to 600000. \
            (APNS_WORKER_GATEWAY_CONFIRM_AFTER; default 2000)
            """)
    var gatewayConfirmAfter: Int?

    @Option(
        help: """
            on, or off: whether to send a deliberately bad item when a window is full or the worker stops, whose error \
            proves that all before it were taken. (APNS_WORKER_GATEWAY_BARRIER; default on)
            """)
    var gatewayBarrier: String?

    @Option(
        help: """
            Notifications on a connection that are not confirmed, at the most. (APNS_WORKER_GATEWAY_WINDOW; default 5000)
            """)
    var gatewayWindow: Int?

    @Option(help: "The same in bytes. (APNS_WORKER_GATEWAY_WINDOW_BYTES; default 33554432)")
    var gatewayWindowBytes: Int?

    @Option(help: "The longest payload, in bytes. (APNS_WORKER_GATEWAY_PAYLOAD_LIMIT; default 2048)")
    var gatewayPayloadLimit: Int?

    /// What the flags say.
    var given: [SettingKey: String] {
        let texts = SettingKey.given([(.gatewayFrame, gatewayFrame), (.gatewayBarrier, gatewayBarrier)])
        let numbers = SettingKey.given([
            (.gatewayBatchBytes, gatewayBatchBytes), (.gatewayBatchTime, gatewayBatchTime),
            (.gatewayConfirmAfter, gatewayConfirmAfter), (.gatewayWindow, gatewayWindow),
            (.gatewayWindowBytes, gatewayWindowBytes), (.gatewayPayloadLimit, gatewayPayloadLimit),
        ])
        return texts.merging(numbers) { $1 }
    }
}
