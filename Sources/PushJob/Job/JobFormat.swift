/// How the jobs on a queue's list are written.
public enum JobFormat: Sendable, Equatable {
    /// As this project's own documentation has it: the job's members at the top.
    case native
    /// As Sidekiq and Resque write theirs, `{"class":…,"args":[the job],"jid":…}`, and ActiveJob through either. Only the
    /// classes named are taken; all, if none is.
    case sidekiq(classes: [String])

    /// The same format, with all classes taken: for a job that was taken before.
    public var withoutClasses: JobFormat {
        switch self {
        case .native: .native
        case .sidekiq: .sidekiq(classes: [])
        }
    }
}
