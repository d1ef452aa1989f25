import Operations
import PushQueue
import WebPages

/// The actions of operators, through commands and the dashboard.
struct ActivityPage: DashboardPage {
    let path = "/activity"
    let section = Section.activity

    static let limit = 100

    /// Returns a page of entries, newest first.
    static func entries(_ look: PageRequest) async throws -> [AuditEntry] {
        let keys = look.source.fleet.sharedKeys
        let after = look.query["after"]
        guard after?.allSatisfy({ $0.isNumber || $0 == "-" }) ?? true else {
            throw WebError(.badRequest, "after is not an entry of the activity")
        }
        return try await AuditLog.latest(limit, before: after, look.source.fleet.client(for: keys.audit), keys)
    }

    func content(_ look: PageRequest) async throws -> PageContent {
        let entries = try await Self.entries(look)
        let table = Elements.table(
            "Activity", ["Time", "User", "Action", "Subject", "Number", "Detail", "Via"],
            entries.map { entry -> [HTML] in
                [
                    look.time(entry.at), "\(entry.by)", "\(entry.actionName.replacing("_", with: " "))",
                    "\(entry.subject)",
                    "\(entry.count.map(Words.number) ?? "–")", "\(entry.detail ?? "–")",
                    "\(entry.via?.rawValue ?? "–")",
                ]
            }, numbers: [4], empty: "No actions yet.")
        let isFirst = look.query["after"] == nil
        let more = look.next(["activity"], entries.count == Self.limit ? entries.last?.id : nil)
        return PageContent(
            title: "Activity", main: "\(isFirst ? Elements.live("activity", table) : table)\(more)", isLive: isFirst)
    }
}
