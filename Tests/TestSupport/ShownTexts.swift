/// Returns everything that printing shows of a value: its description, its debug description, and its dump.
///
/// - Throws: if it would read the state of an object that has no mirror of its own. Reflection reads that state on the
///   calling thread, while another thread may change it.
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
