/// The reason for which a list of device tokens cannot be used.
package struct TokenListFailure: Error, CustomStringConvertible {
    /// A sentence about the list, such as `it cannot be read: …`.
    package let description: String

    package init(_ description: String) { self.description = description }
}
