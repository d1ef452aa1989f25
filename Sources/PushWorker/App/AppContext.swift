import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// The state that the parts of an app's sender share: the app, its credential and transport, and the notifications in flight.
///
/// Belongs to the lane's event loop.
final class AppContext {
    let lane: LaneContext
    let id: AppID
    let ledger: Ledger
    let fleet: Fleet
    /// The app as its jobs see it.
    var rules: RoutedApp
    var transport: any Transport
    var credential: AppCredential
    /// True if the worker's configuration no longer has the app. It finishes what it has and gets no new jobs.
    var isRemoved = false
    let inFlight = Table<FlightID, InFlight>()

    init(
        _ configuration: AppConfiguration, id: AppID, transport: any Transport, lane: LaneContext, ledger: Ledger,
        fleet: Fleet
    ) {
        self.lane = lane
        self.id = id
        self.ledger = ledger
        self.fleet = fleet
        self.transport = transport
        rules = RoutedApp(configuration)
        credential = AppCredential(configuration.credential, jitter: lane.random(in: 0...300))
    }

    deinit { inFlight.deallocate() }

    var configuration: AppConfiguration { rules.configuration }

    var name: String { configuration.name }

    /// The digest of what can make APNs refuse the app. A pause is for workers that have the same.
    var refusable: ConfigurationDigest {
        ConfigurationDigest(
            routing: configuration.routing + [configuration.endpoint.description], rules: credential.identity)
    }

    var logMetadata: Logger.Metadata { ["app": "\(name)", "endpoint": "\(configuration.endpoint)"] }

    /// True if a connection accepts requests or can be opened on demand.
    var isConnected: Bool { transport.usableConnections > 0 || transport.isDormant }

    // MARK: Notifications

    /// Recreates the notification of a job with one token from the claimed bytes, because the transport consumes what
    /// it is given.
    /// - Returns: `nil` if the job can't be decoded.
    /// - Throws: the reason for which the app, whose configuration may have changed, refuses it now.
    func notification(ofJob id: JobID) throws(Reason) -> Notification? {
        guard let job = lane.jobs[id].job else { return nil }
        let identity = ledger.queue(of: id).identity(
            of: job, claim: lane.jobs[id].claim, generation: lane.jobs[id].generation)
        return try rules.notification(for: job, identity: identity, firstSeen: lane.jobs[id].firstSeen)
    }

    /// Returns the topic and push type with which a job's notifications are sent.
    func address(of id: JobID) -> (topic: String, type: String) {
        if let template = lane.jobs[id].fanOut?.template {
            return (String(buffer: template.topic), template.pushType.rawValue)
        }
        do throws(Reason) {
            if let notification = try notification(ofJob: id) {
                return (String(buffer: notification.topic), notification.pushType.rawValue)
            }
        } catch {
            // The app's configuration has changed since the job was accepted.
        }
        return (String(buffer: rules.topic), "unknown")
    }

    /// True if a job expires before it could be sent again.
    func expires(_ id: JobID, _ job: Job, within delay: Int64) -> Bool {
        guard let end = rules.end(of: job, firstSeen: lane.jobs[id].firstSeen) else { return false }
        return ledger.queue(of: id).now + delay >= end
    }

    // MARK: Recipients

    /// Returns the token of a notification as text; empty for a broadcast.
    func token(of flight: FlightID, _ job: Job? = nil) -> ByteBuffer {
        if let token = inFlight[flight].deviceToken { return token.hex }
        guard let job = job ?? lane.jobs[inFlight[flight].job].job, let field = job.token else { return ByteBuffer() }
        return DeviceToken.plain(job.text(field))
    }

    /// Returns the token or channel of a notification.
    func recipient(of flight: FlightID) -> ByteBuffer? {
        if let token = inFlight[flight].deviceToken { return token.hex }
        return lane.jobs[inFlight[flight].job].job.flatMap(\.recipient)
    }
}
