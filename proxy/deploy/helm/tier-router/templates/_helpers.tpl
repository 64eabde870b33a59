{{- define "tier-router.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tier-router.selector" -}}
app.kubernetes.io/name: tier-router
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tier-router.labels" -}}
{{ include "tier-router.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tier-router.secret" -}}
{{- if .Values.keys.existingSecret -}}
{{- .Values.keys.existingSecret -}}
{{- else if .Values.keys.values -}}
{{- include "tier-router.name" . -}}
{{- end -}}
{{- end -}}

{{- /* The configuration: the user's, and what the chart knows better. */ -}}
{{- define "tier-router.config" -}}
{{- $host := ternary "127.0.0.1" "0.0.0.0" (eq .Values.mode "sidecar") -}}
{{- $own := dict "host" $host "port" .Values.port "workers" .Values.workers "drain" .Values.drainSeconds -}}
{{- if include "tier-router.secret" . -}}
{{- $_ := set $own "api_keys" "${TIER_ROUTER_KEYS}" -}}
{{- end -}}
{{- $server := merge $own (deepCopy (.Values.config.server | default dict)) -}}
{{- toYaml (merge (dict "server" $server) (deepCopy .Values.config)) -}}
{{- end -}}

{{- /* What both ways of running the container share. */ -}}
{{- define "tier-router.container" -}}
name: tier-router
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/tier-router/config.yaml]
{{- with include "tier-router.secret" . }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- with .Values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: tier-router-config, mountPath: /etc/tier-router, readOnly: true}
  - {name: tier-router-tmp, mountPath: /tmp}
{{- end -}}

{{- define "tier-router.volumes" -}}
- name: tier-router-config
  configMap: {name: {{ include "tier-router.name" . }}}
- name: tier-router-tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}

{{- /* An entry of a Pod's initContainers: a sidecar in Kubernetes' own sense.  It listens on
loopback alone, where the kubelet cannot reach it: its probes run inside. */ -}}
{{- define "tier-router.sidecar" -}}
{{- $probe := printf "import http.client; c = http.client.HTTPConnection('127.0.0.1', %d, timeout=2); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)" (int .Values.port) -}}
- restartPolicy: Always
  {{- include "tier-router.container" . | nindent 2 }}
  startupProbe:
    exec: {command: [python, -c, {{ $probe | quote }}]}
    periodSeconds: 2
    timeoutSeconds: 3
    failureThreshold: 30
  livenessProbe:
    exec: {command: [python, -c, {{ $probe | quote }}]}
    periodSeconds: 20
    timeoutSeconds: 3
{{- end -}}
