/// The place of the device tokens in a list.
package enum TokenListFormat: Equatable, Sendable {
    /// Each line is a token.
    case lines
    /// A column of a table with a header (RFC 4180), by its name. The fields are separated by commas or, if the header
    /// has none, by semicolons or tabs.
    case column(String)
    /// Each line is a JSON object, and this member of it is a token.
    case member(String)
}
