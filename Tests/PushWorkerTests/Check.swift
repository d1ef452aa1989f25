import Testing

/// `#expect` for conditions that call mutating methods, which the macro cannot take apart.
func check(_ condition: Bool, sourceLocation: SourceLocation = #_sourceLocation) {
    #expect(condition, sourceLocation: sourceLocation)
}
