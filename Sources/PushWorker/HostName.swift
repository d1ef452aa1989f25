import Glibc

/// What this machine, or container, calls itself.
package enum HostName {
    /// As it was when the process first asked.
    package static let current: String = {
        var host = [CChar](repeating: 0, count: 256)
        gethostname(&host, host.count - 1)
        return String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }()
}
