import Testing

@testable import PushWorker

/// `#expect` for conditions that call mutating methods, which the macro cannot take apart.
func check(_ condition: Bool, sourceLocation: SourceLocation = #_sourceLocation) {
    #expect(condition, sourceLocation: sourceLocation)
}

extension Reason: ExpressibleByStringLiteral {
    /// Reads a code.
    public init(stringLiteral code: String) { self.init(.init(text: code)) }
}
