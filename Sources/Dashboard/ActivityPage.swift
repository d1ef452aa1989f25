import Operations
import PushQueue
import WebPages

/// The actions of operators, through commands and the dashboard.
struct ActivityPage: DashboardPage {
    let path = "/activity"
    let section = Section.activity

    func isLive(_ query: Form) -> Bool { query["after"] == nil }

    static let limit = 100

    /// Returns a page of entries, newest first.
    static func entries(_ request: PageRequest) async throws -> [AuditEntry] {
        let keys = request.source.fleet.sharedKeys
        let after = request.query["after"]
        guard after?.allSatisfy({ $0.isNumber || $0 == "-" }) ?? true else {
            throw WebError(.badRequest, "after is not an entry of the activity")
        }
        return try await AuditLog.latest(limit, before: after, request.source.fleet.client(for: keys.audit), keys)
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let entries = try await Self.entries(request)
        let table = Elements.table(
            "Activity", ["Time", "User", "Action", "Subject", "Number", "Detail", "Via"],
            entries.map { entry -> [HTML] in
                [
                    request.time(entry.at), "\(entry.by)", "\(entry.actionName.replacing("_", with: " "))",
                    "\(entry.subject)",
                    "\(entry.count.map(Words.number) ?? "–")", "\(entry.detail ?? "–")",
                    "\(entry.via?.rawValue ?? "–")",
                ]
            }, numbers: [4], empty: "No actions yet.")
        let isFirst = isLive(request.query)
        let more = request.next(["activity"], entries.count == Self.limit ? entries.last?.id : nil)
        return PageContent(
            title: "Activity", main: "\(isFirst ? Elements.live("activity", table) : table)\(more)")
    }
}
