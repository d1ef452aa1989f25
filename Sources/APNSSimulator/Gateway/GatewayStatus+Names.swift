import APNS

extension GatewayStatus {
    /// Reads a number from 0 to 255, or a word such as `InvalidToken`.
    init?(_ text: String) {
        if let code = UInt8(text) {
            self.init(code: code)
        } else if let code = (UInt8.min ... .max).first(where: { GatewayStatus(code: $0).name == text }) {
            self.init(code: code)
        } else {
            return nil
        }
    }

    /// The name in the account, such as `8 InvalidToken`.
    var label: String {
        if case .other(let code) = self { "\(code)" } else { "\(code) \(name)" }
    }

    /// The error packet: command 8, the status, and the identifier of a notification.
    func packet(identifier: UInt32) -> [UInt8] { [8, code] + withUnsafeBytes(of: identifier.bigEndian) { Array($0) } }
}
