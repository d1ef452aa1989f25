{{/* The name of the objects. It leaves room for -feedback and the suffixes of jobs and pods. A hash keeps long names different. */}}
{{- define "apns-worker.fullname" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}
{{- $name = printf "%s-%s" $name .Chart.Name }}
{{- end }}
{{- $name = .Values.fullnameOverride | default $name }}
{{- if gt (len $name) 42 }}
{{- $name = printf "%s-%s" ($name | trunc 33 | trimSuffix "-") ($name | sha256sum | trunc 8) }}
{{- end }}
{{- $name }}
{{- end }}

{{/* Labels that choose all pods of the release. They cannot be changed later. */}}
{{- define "apns-worker.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels that choose the pods of a component: (list $ "worker"). With an empty name, the pods of all components. */}}
{{- define "apns-worker.componentLabels" -}}
{{ include "apns-worker.selectorLabels" (first .) }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* The metadata of an object of one or all components: (list $ "web" "-web"), (list $ "" "" labels annotations). */}}
{{- define "apns-worker.metadata" -}}
{{- $root := first . }}
{{- $labels := include "apns-worker.componentLabels" . | fromYaml }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") }}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $metadata := dict "name" (printf "%s%s" (include "apns-worker.fullname" $root) (index . 2)) "labels" $labels }}
{{- if gt (len .) 3 }}
{{- $_ := merge $labels (index . 3 | default dict) }}
{{- with index . 4 }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- end }}
{{- toYaml $metadata }}
{{- end }}

{{/* The metadata of a component's pods: (list $ "worker" annotations). The chart's labels win, because selectors need them. */}}
{{- define "apns-worker.podMetadata" -}}
{{- $values := (first .).Values -}}
labels:
  {{- toYaml (merge (include "apns-worker.componentLabels" . | fromYaml) ($values.podLabels | default dict)) | nindent 2 }}
{{- with merge (deepCopy ($values.podAnnotations | default dict)) (index . 2) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "apns-worker.image" -}}
{{- $image := .Values.image | default dict }}
{{- $image.repository | default .Chart.Name }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "apns-worker.serviceAccountName" -}}
{{- $account := .Values.serviceAccount | default dict }}
{{- $account.name | default (ternary (include "apns-worker.fullname" .) "default" ($account.create | default false)) }}
{{- end }}

{{/* Members of every pod. */}}
{{- define "apns-worker.pod" -}}
serviceAccountName: {{ include "apns-worker.serviceAccountName" . | quote }}
automountServiceAccountToken: {{ (.Values.serviceAccount).automount | default false }}
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- $members := dict "securityContext" .Values.podSecurityContext }}
{{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
{{- $_ := set $members $name (index $.Values $name) }}
{{- end }}
{{- range $name, $value := $members }}
{{- with $value }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Members of every container. */}}
{{- define "apns-worker.container" -}}
image: {{ include "apns-worker.image" . | quote }}
imagePullPolicy: {{ (.Values.image).pullPolicy | default "IfNotPresent" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{/* The files of the Secret that a component can read, as a JSON array: (list $ "web"). Empty if it can read all. */}}
{{- define "apns-worker.secretFiles" -}}
{{- $secret := (first .).Values.secret | default dict }}
{{- $files := list }}
{{- if ne (index . 1) "worker" }}
{{- $files = concat (compact (list $secret.redisUrl)) ($secret.redisFiles | default list) }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/*
The environment and mounts of a component that uses config: (list $ "worker" "" ""). The component can have a Secret of its own,
mounted at /etc/apns-worker/<name>: (list $ "web" "users" "apns-worker-web").
*/}}
{{- define "apns-worker.environment" -}}
{{- $values := (first .).Values }}
{{- $secret := $values.secret | default dict -}}
env:
  - name: APNS_WORKER_CONFIG
    value: /etc/apns-worker/config/worker.yaml
  {{- if and $secret.name $secret.signingKey (eq (index . 1) "worker") }}
  - name: APNS_WORKER_KEY
    value: {{ printf "/etc/apns-worker/secrets/%s" $secret.signingKey | quote }}
  {{- end }}
  {{- if and $secret.name $secret.redisUrl }}
  - name: APNS_WORKER_REDIS_URL_FILE
    value: {{ printf "/etc/apns-worker/secrets/%s" $secret.redisUrl | quote }}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  # Whole folders, because a subPath mount is not updated in a running pod.
  - name: config
    mountPath: /etc/apns-worker/config
    readOnly: true
  {{- if include "apns-worker.mountsSecret" . }}
  - name: secrets
    mountPath: /etc/apns-worker/secrets
    readOnly: true
  {{- end }}
  {{- with index . 2 }}
  - name: {{ . }}
    mountPath: /etc/apns-worker/{{ . }}
    readOnly: true
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Not empty if a component mounts the Secret. */}}
{{- define "apns-worker.mountsSecret" -}}
{{- $files := include "apns-worker.secretFiles" . | fromJsonArray }}
{{- if and ((first .).Values.secret).name (or $files (eq (index . 1) "worker")) }}true{{ end }}
{{- end }}

{{/* The volumes for the mounts of "apns-worker.environment". */}}
{{- define "apns-worker.volumes" -}}
{{- $root := first . -}}
volumes:
  - name: config
    configMap:
      name: {{ include "apns-worker.fullname" $root }}
  {{- if include "apns-worker.mountsSecret" . }}
  - name: secrets
    secret:
      secretName: {{ $root.Values.secret.name | quote }}
      # The files belong to root, and the pod's fsGroup can read them. With fsGroup, 0400 would become 0440 anyway.
      defaultMode: 0440
      {{- with include "apns-worker.secretFiles" . | fromJsonArray }}
      items:
        {{- range . }}
        - {key: {{ quote . }}, path: {{ quote . }}}
        {{- end }}
      {{- end }}
  {{- end }}
  {{- with index . 2 }}
  - name: {{ . }}
    secret:
      secretName: {{ index $ 3 | quote }}
      defaultMode: 0440
  {{- end }}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The text of a scalar; empty for null. Helm's numbers are floating-point numbers, and it would print 1e+06. */}}
{{- define "apns-worker.text" -}}
{{- if not (kindIs "invalid" .) }}{{ ternary (toJson .) (toString .) (kindIs "float64" .) }}{{ end }}
{{- end }}

{{/*
The names of the queues in config and the keys of their lists, as a JSON array of {queue, list}. `apns-worker config --keys` prints
the same, and a test compares the two.
*/}}
{{- define "apns-worker.queues" -}}
{{- range .Values.extraEnv }}
{{- if regexMatch "^APNS_WORKER_(QUEUE|QUEUES_.*|PREFIX|FORMAT|LIST)$" .name }}
{{- fail (printf "KEDA watches the queues in config: set %s there, not in extraEnv" .name) }}
{{- end }}
{{- end }}
{{- $config := .Values.config }}
{{- $queues := $config.queues | default dict }}
{{- $names := list "default" }}
{{- if not (kindIs "invalid" $config.queue) }}
{{- $names = list }}
{{- range kindIs "slice" $config.queue | ternary $config.queue (list $config.queue) }}
{{- $names = concat $names (regexReplaceAll ":[0-9]+(,|$)" (include "apns-worker.text" .) "${1}" | splitList ",") }}
{{- end }}
{{- else if $queues }}
{{- $names = keys $queues | sortAlpha }}
{{- end }}
{{- $common := dict }}
{{- range $member := list "prefix" "format" "list" }}
{{- $_ := set $common $member (include "apns-worker.text" (get $config $member)) }}
{{- end }}
{{- $lists := list }}
{{- range $name := $names }}
{{- $own := get $queues $name | default dict }}
{{- $format := include "apns-worker.text" $own.format | default $common.format | lower }}
{{- $list := include "apns-worker.text" $own.list | default $common.list }}
{{- $list = $list | default (get (dict "sidekiq" (printf "queue:%s" $name) "resque" (printf "resque:queue:%s" $name)) $format) }}
{{- $list = $list | default (printf "%s:{%s}:jobs" ($common.prefix | default "push") $name) }}
{{- $lists = append $lists (dict "queue" $name "list" $list) }}
{{- end }}
{{- toJson $lists }}
{{- end }}

{{/* A PromQL selector, without its braces, of the series of this release. The PodMonitor's job is its namespace and name. */}}
{{- define "apns-worker.prometheusSelector" -}}
{{- if .Values.prometheusSelector }}
{{- .Values.prometheusSelector }}
{{- else if (.Values.podMonitor).enabled }}
{{- printf "job=%q" (printf "%s/%s" .Release.Namespace (include "apns-worker.fullname" .)) }}
{{- else }}
{{- fail "Prometheus may have several releases: set podMonitor.enabled, or prometheusSelector to labels of this one, such as job=\"push\"" }}
{{- end }}
{{- end }}

{{/* The milliseconds of config.drain_timeout, such as 25s, 1m30s or 25000. */}}
{{- define "apns-worker.drainTimeout" -}}
{{- $milliseconds := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 "" 1 }}
{{- $text := "25s" }}
{{- if hasKey .Values.config "drain_timeout" }}
{{- $text = toJson .Values.config.drain_timeout }}
{{- end }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[a-z]*" $text -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" .) (get $milliseconds (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}
