{{- define "dmindex.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dmindex.selector" -}}
app.kubernetes.io/name: dmindex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "dmindex.labels" -}}
{{ include "dmindex.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "dmindex.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "dmindex.devicePlugin.selector" -}}
app.kubernetes.io/name: dmindex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: device-plugin
{{- end }}

{{- define "dmindex.devicePlugin.labels" -}}
{{ include "dmindex.devicePlugin.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The namespaces with indexes, as a list; empty = all. An upgrade does not take rights from an operator that watched all: its indexes would be left alone. */}}
{{- define "dmindex.namespaces" -}}
{{- if .Values.watchAllNamespaces }}
{{- if .Values.watchNamespaces }}{{ fail "watchAllNamespaces and watchNamespaces are both set: take one of them away" }}{{ end }}
{{- list | toYaml }}
{{- else if .Values.watchNamespaces }}
{{- .Values.watchNamespaces | toYaml }}
{{- else }}
{{- if lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" (include "dmindex.fullname" .) }}
{{- fail "this release watches all namespaces, and would watch its own only: set watchAllNamespaces=true to leave that as it is, or name the namespaces with indexes in watchNamespaces" }}
{{- end }}
{{- list .Release.Namespace | toYaml }}
{{- end }}
{{- end }}

{{- /* Of bindings of policies: the namespaces with indexes. */}}
{{- define "dmindex.watched" -}}
{{- with .Values.watchNamespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
