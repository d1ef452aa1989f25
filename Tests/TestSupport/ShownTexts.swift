/// Returns the texts that printing a value can show: its description, its debug description, and its dump.
/// - Throws: if the value contains an object without a mirror of its own. Reflection would read the object's state on this thread while
///   another thread may change it.
package func shownTexts(of value: Any) throws -> [String] {
    try refuseObjects(in: value)
    var dumped = ""
    dump(value, to: &dumped)
    return ["\(value)", String(reflecting: value), dumped]
}

private func refuseObjects(in value: Any) throws {
    let reflectable = value as? any CustomReflectable
    if reflectable == nil, type(of: value) is AnyClass {
        throw ChildProcess.Failure(description: "\(type(of: value)) would show its state")
    }
    for child in (reflectable?.customMirror ?? Mirror(reflecting: value)).children {
        try refuseObjects(in: child.value)
    }
}
