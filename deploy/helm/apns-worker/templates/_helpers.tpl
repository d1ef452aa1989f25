{{/* The name of the objects. */}}
{{- define "apns-worker.fullname" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}
{{- $name = printf "%s-%s" $name .Chart.Name }}
{{- end }}
{{- /* Room for -feedback and the suffixes of jobs and pods. */}}
{{- .Values.fullnameOverride | default $name | trunc 42 | trimSuffix "-" }}
{{- end }}

{{/* Labels that choose all pods of the release. They cannot be changed later. */}}
{{- define "apns-worker.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels that choose the workers. */}}
{{- define "apns-worker.workerLabels" -}}
{{ include "apns-worker.selectorLabels" . }}
app.kubernetes.io/component: worker
{{- end }}

{{/* Labels of all objects. */}}
{{- define "apns-worker.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "apns-worker.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "apns-worker.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Members of every pod. */}}
{{- define "apns-worker.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Members of every container. */}}
{{- define "apns-worker.container" -}}
image: {{ include "apns-worker.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{/* The names of the queues in config as a JSON array. */}}
{{- define "apns-worker.queues" -}}
{{- $names := list "default" }}
{{- with .Values.config }}
{{- if kindIs "string" .queue }}
{{- $names = regexReplaceAll ":[0-9]+|\\s" .queue "" | splitList "," }}
{{- else if .queue }}
{{- $names = .queue }}
{{- else if .queues }}
{{- $names = keys .queues | sortAlpha }}
{{- end }}
{{- end }}
{{- toJson $names }}
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
