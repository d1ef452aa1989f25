import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Kubernetes' manifests")
    struct KubernetesFilesTests {
        private static func deployment() throws -> YAMLNode { try DeployFolder.yaml("kubernetes/deployment.yaml") }
        private static func container() throws -> YAMLNode { try deployment().at("spec/template/spec/containers/0") }

        /// The configuration of the pods.
        private static func configuration() throws -> String {
            try DeployFolder.yaml("kubernetes/configmap.yaml").text("data/worker.yaml")
        }

        /// The drain timeout in seconds.
        private static func drainTimeout() throws -> Int {
            let text = try YAMLNode(configuration(), "worker.yaml").text("drain_timeout")
            return try #require(text.hasSuffix("s") ? Int(text.dropLast()) : nil)
        }

        @Test("a worker starts and works with the configuration, variables and mounts of the pods")
        func works() async throws {
            let (redis, simulator) = try await startServers()
            let folder = try ConfigurationTests.Folder()
            // The mounted volumes and their contents.
            let mounts = try Dictionary(
                uniqueKeysWithValues: Self.container().list("volumeMounts").map { mount in
                    let name = try mount.text("name")
                    try FileManager.default.createDirectory(
                        at: folder.url.appending(path: name), withIntermediateDirectories: true)
                    return (try mount.text("mountPath"), folder.url.appending(path: name).path)
                })
            #expect(mounts.count == 2)
            let port = try RedisServer.freePort()
            // The test must not listen on all addresses, nor on a port that may be in use.
            try folder.write(
                Self.configuration().replacing("0.0.0.0", with: "127.0.0.1").replacing("9464", with: "\(port)"),
                as: "config/worker.yaml")
            let key = try String(contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8)
            try folder.write(key, as: "secrets/signing-key.p8")
            try folder.write(redis.url + "\n", as: "secrets/redis-url")
            var environment = ["APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)"]
            environment["APNS_WORKER_CA"] = try TestCertificates.path("ca.pem")
            for variable in try Self.container().list("env") {
                let value = try variable.text("value")
                let mount = try #require(mounts.first { value.hasPrefix($0.key + "/") }, "\(value)")
                environment[try variable.text("name")] = mount.value + value.dropFirst(mount.key.count)
            }
            let worker = try ChildProcess(
                BuiltProgram.path("apns-worker"), Self.container().list("args").map { try $0.text() },
                environment: environment)
            try redis.push(TestJob.many(5, members: #""app":"shop","#), queue: "critical")
            try await eventually("they are sent") {
                if let ending = worker.ending { throw worker.failure("ended with \(ending)") }
                return try QueueContents(redis, queue: "critical").count("delivered") == 5
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let path = try Self.container().text("\(probe)/httpGet/path")
                #expect(try await MetricsTests.get(port, path).status == 200, "\(path)")
            }
            worker.send(SIGTERM)
            #expect(try await worker.wait() == .exited(0))
        }

        @Test("all manifests name the same port")
        func ports() throws {
            let port = try YAMLNode(Self.configuration(), "worker.yaml").text("admin/port")
            let container = try Self.container()
            #expect(try container.text("ports/0/containerPort") == port)
            let name = try container.text("ports/0/name")
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                #expect(try container.text("\(probe)/httpGet/port") == name)
            }
            #expect(try DeployFolder.yaml("kubernetes/podmonitor.yaml").text("spec/podMetricsEndpoints/0/port") == name)
            let policy = try DeployFolder.yaml("kubernetes/networkpolicy.yaml")
            #expect(try policy.text("spec/ingress/0/ports/0/port") == port)
            let annotations = try Self.deployment().texts("spec/template/metadata/annotations")
            #expect(annotations["prometheus.io/port"] == port)
        }

        @Test("a pod gets enough time for a drain")
        func grace() throws {
            let grace = try Self.deployment().number("spec/template/spec/terminationGracePeriodSeconds")
            // Includes the time for the last settlements, and a reserve.
            #expect(grace > (try Self.drainTimeout()) + 2 + 5)
        }

        @Test("all label selectors match the workers")
        func labels() throws {
            let labels = try Self.deployment().texts("spec/template/metadata/labels")
            for (file, place) in [
                ("deployment", "spec/selector/matchLabels"), ("pdb", "spec/selector/matchLabels"),
                ("podmonitor", "spec/selector/matchLabels"), ("networkpolicy", "spec/podSelector/matchLabels"),
            ] {
                let chosen = try DeployFolder.yaml("kubernetes/\(file).yaml").texts(place)
                #expect(!chosen.isEmpty && chosen.allSatisfy { labels[$0.key] == $0.value }, "\(file)")
            }
            let target = try DeployFolder.yaml("kubernetes/keda-scaledobject.yaml").text("spec/scaleTargetRef/name")
            #expect(try Self.deployment().text("metadata/name") == target)
        }

        @Test("KEDA reads the lists of the queues in the configuration")
        func keda() throws {
            let queues = try #require(
                try YAMLNode(Self.configuration(), "worker.yaml").at("queues").node.mapping?.keys.compactMap(\.string))
            let triggers = try DeployFolder.yaml("kubernetes/keda-scaledobject.yaml").list("spec/triggers")
            let lists = try triggers.filter { try $0.text("type") == "redis" }.map { try $0.text("metadata/listName") }
            #expect(Set(lists) == Set(queues.map { "push:{\($0)}:jobs" }))
            let query = try #require(triggers.last).text("metadata/query")
            #expect(queues.allSatisfy { query.contains($0) })
        }

        @Test(
            "containers are read-only, unprivileged and without capabilities",
            arguments: ["deployment", "feedback-cronjob"])
        func hardening(file: String) throws {
            let whole = try DeployFolder.yaml("kubernetes/\(file).yaml")
            let pod = try whole.at(file == "deployment" ? "spec/template/spec" : "spec/jobTemplate/spec/template/spec")
            #expect(try pod.text("automountServiceAccountToken") == "false")
            #expect(try pod.text("securityContext/runAsNonRoot") == "true")
            #expect(try pod.text("securityContext/runAsUser") == "65532")
            #expect(try pod.text("securityContext/seccompProfile/type") == "RuntimeDefault")
            let container = try pod.at("containers/0/securityContext")
            #expect(try container.text("readOnlyRootFilesystem") == "true")
            #expect(try container.text("allowPrivilegeEscalation") == "false")
            #expect(try container.list("capabilities/drop").map { try $0.text() } == ["ALL"])
            #expect(try pod.text("containers/0/resources/limits/memory").isEmpty == false)
        }

        @Test("kustomization.yaml names every manifest, and each exists")
        func kustomization() throws {
            let text = try DeployFolder.text("kubernetes/kustomization.yaml")
            let named = text.matches(of: /- ([a-z-]+\.yaml)/).map { String($0.1) }
            let files = try FileManager.default.contentsOfDirectory(atPath: DeployFolder.url("kubernetes").path)
            #expect(Set(named) == Set(files).subtracting(["kustomization.yaml"]))
        }
    }
}
