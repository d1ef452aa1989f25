import NIOCore
import PushQueue

/// The operations of a consumer on its queue in Redis; see ``QueueConnection``. All calls and completions are on the lane's event loop.
protocol QueueStore: AnyObject {
    var isReady: Bool { get }
    var canWait: Bool { get }
    var holdsInvalidTokens: Bool { get }

    func use(worker: String)
    func claim(_ request: ClaimRequest, completion: @escaping Completion<Claimed>)
    func reserve(_ reservations: [Reservation], completion: @escaping Completion<[ReservationResult]>)
    func newest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>)
    func settle(_ settlement: Settlement, completion: @escaping Completion<QueueConnection.Settled>)
    func stop(_ stopped: StoppedCampaign, completion: @escaping Completion<Bool>)
    func reclaim(_ other: String, completion: @escaping Completion<QueueConnection.Reclaimed?>)
    func release(
        of configuration: ConfigurationDigest, endOf process: String?,
        completion: @escaping Completion<QueueConnection.Released>)
    func claims(completion: @escaping Completion<[ClaimID]>)
    func bodies(of claims: [ClaimID], completion: @escaping Completion<[ByteBuffer?]>)
    func gauges(completion: @escaping Completion<QueueGauges>)
    func waitForJob(seconds: Int, completion: @escaping Completion<Bool>)
    func stopWaiting()
}

extension QueueConnection: QueueStore {}
