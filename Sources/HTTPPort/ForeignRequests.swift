import HTTPTypes
import Hummingbird
import Sockets

/// Detects requests made by a foreign web page in a browser on this machine or network.
///
/// A page can send requests to any address. If its own host name resolves to a local address (DNS rebinding), it can also read the answers.
/// Such requests have the page's host name in `Host` or in `Origin`.
package struct ForeignRequests: Sendable {
    private let names: Set<String>

    /// - Parameter names: host names that requests may use, in addition to `localhost` and all IP addresses.
    package init(names: some Sequence<String> = []) {
        self.names = Set(names.map { $0.lowercased() } + ["localhost"])
    }

    /// Returns the reason to refuse a request, as a sentence without a final period; `nil` if the request is not
    /// foreign.
    package func refusal(host: String?, origin: String?) -> String? {
        if let host, !isKnown(host) {
            return "the Host header names \(host.prefix(100)); use localhost or an IP address"
        }
        guard let origin else { return nil }
        let own = host.map { "http://\($0)".lowercased() }
        return origin.lowercased() == own ? nil : "the Origin header names another site, \(origin.prefix(100))"
    }

    /// - Parameter host: a name or an address, with or without a port.
    private func isKnown(_ host: String) -> Bool {
        if host.hasPrefix("[") {
            guard let end = host.firstIndex(of: "]"), Self.isPort(host[host.index(after: end)...]) else { return false }
            return AddressRange.bytes(of: host[..<end].dropFirst()) != nil
        }
        let name = host.prefix { $0 != ":" }
        guard Self.isPort(host[name.endIndex...]) else { return false }
        return AddressRange.bytes(of: name) != nil || names.contains(name.lowercased())
    }

    private static func isPort(_ text: Substring) -> Bool {
        text.isEmpty || (text.first == ":" && UInt16(text.dropFirst()) != nil)
    }
}

extension Request {
    /// Checks the request's headers; see ``ForeignRequests/refusal(host:origin:)``.
    package func refusal(by rule: ForeignRequests) -> String? {
        if let refusal = rule.refusal(host: head.authority, origin: headers[.origin]) { return refusal }
        // Other sites' links may lead to this port, but their forms and scripts must not change anything.
        guard method != .get, method != .head, let site = headers[.secFetchSite] else { return nil }
        return ["same-origin", "none"].contains(site) ? nil : "the request comes from another site"
    }
}

extension HTTPField.Name {
    /// The relation between the page that makes a request and the site that gets it: `same-origin`, `cross-site` and
    /// others.
    ///
    /// Source: W3C, "Fetch Metadata Request Headers".
    package static let secFetchSite = Self("Sec-Fetch-Site")!
}
