extension HTTPProxy {
    /// The proxy that the environment names for an endpoint: `HTTPS_PROXY` or `https_proxy`, unless `NO_PROXY` or
    /// `no_proxy` excepts it. Upper case wins; an empty variable counts as unset.
    /// - Returns: `nil` where the endpoint is to be reached directly.
    /// - Throws: ``Invalid``, naming the variable.
    public static func fromEnvironment(
        _ environment: [String: String], for endpoint: APNSEndpoint
    ) throws(Invalid) -> HTTPProxy? {
        guard let (name, url) = value(of: "HTTPS_PROXY", environment) else { return nil }
        if let (name, text) = value(of: "NO_PROXY", environment) {
            let exceptions: ProxyExceptions
            do {
                exceptions = try ProxyExceptions(text)
            } catch {
                throw Invalid(description: "\(name): \(error)")
            }
            if exceptions.contain(endpoint) { return nil }
        }
        do {
            return try HTTPProxy(url)
        } catch {
            throw Invalid(description: "\(name): \(error)")
        }
    }

    private static func value(of name: String, _ environment: [String: String]) -> (name: String, value: String)? {
        for name in [name, name.lowercased()] {
            if let value = environment[name]?.trimmed, !value.isEmpty { return (name, value) }
        }
        return nil
    }
}
