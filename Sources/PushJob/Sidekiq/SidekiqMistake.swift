/// Why a body is not a job as Sidekiq and Resque write it. The raw value ends the sentence "the job is not of the form …:".
public enum SidekiqMistake: String, Sendable {
    /// JSON, but not an object.
    case notAnObject = "it is no JSON object"
    /// No `class`, or one that is no string.
    case noClass = "it has no `class`, a string"
    /// No `args`, or not an array of at least one argument.
    case noArguments = "it has no `args`, an array of at least one argument"
    /// Two `args`, and either could be meant.
    case twoArguments = "it has `args` more than once"
    /// An ActiveJob without arguments.
    case noActiveJobArguments = "its `arguments` (it is an ActiveJob's) are not an array of at least one argument"
    /// The first argument is neither an object nor the text of one.
    case notAJob = "its first argument is neither an object nor the JSON text of one"
}
